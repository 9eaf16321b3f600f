import json
import os
from pathlib import Path

import pytest
from codex_homes import CODEX, PUBLIC, SESSION, bodies, imported
from corpus import WITHOUT
from readings import Home, faults
from readings import said as said_in
from rollouts import THREAD, Line, answered, context, counted, item, line, message, meta, said, write

from palimpsest.core.events import ModelReplied, SessionOpened, Usage, UserSaid
from palimpsest.core.items import Opaque, Text
from palimpsest.core.log import Log
from palimpsest.exchange.importing import import_session
from palimpsest.exchange.transcript import ReadProblem, TranscriptSource
from palimpsest.stores.in_memory import FixedClock
from palimpsest.wire.models import PriceBook

needs_corpus = pytest.mark.skipif(not PUBLIC, reason=WITHOUT)


@pytest.mark.states("CX-06")
def test_the_first_session_meta_is_canonical_and_bad_lines_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path, meta(), meta("01a1ddf6-0aea-7d31-ab7d-7f00117738b6", cwd="/other"), said("a"), said("b"))
    first, second, *rest = path.read_bytes().splitlines(keepends=True)
    bad = [b"{broken\n", b"[1]\n", b'"\xff\xfe"\n', b"\n", b"\x00\x00\n", b"[" * 5000 + b"\n"]
    path.write_bytes(b"".join([first, second, *bad, *rest, b'{"timestamp":"2026-1']))
    home = Home()
    (done,) = home.take(CODEX, path)
    assert [each.where.rpartition(":")[2] for each in done.problems] == ["3", "4", "5", "7", "8"]
    opened, *events = home.bodies(SESSION)
    assert isinstance(opened, SessionOpened)
    assert (opened.cwd, opened.meta["id"], said_in(events)) == ("/repo", THREAD, ["a", "b"])


@pytest.mark.states("CX-07")
def test_numbered_lines_with_metadata_states_and_usage_records_import(tmp_path: Path) -> None:
    snapshot: Line = {"type": "ghost_snapshot", "ghost_commit": {"id": "abc"}}
    path = write(
        tmp_path,
        line("session_meta", {"id": THREAD, "history_mode": "paginated"}, ordinal=0),
        line("response_item", message("user", "a", id="msg_1"), ordinal=1, metadata={"client_authored": False}),
        line("world_state", {"full": True, "state": {}}, ordinal=2),
        line("response_item", snapshot, ordinal=3),
        line("response_item", message("assistant", "b", id="msg_2"), ordinal=4, metadata={"client_authored": False}),
        line("token_usage_record", {"response_id": "resp_1", "usage": {"input_tokens": 50, "output_tokens": 5}}, ordinal=5),
    )
    home, session = imported(path)
    assert [body for body in bodies(path)[1:] if isinstance(body, UserSaid | ModelReplied)] == [
        UserSaid((Text("a", ref="msg_1"),)),
        ModelReplied((Text("b", "assistant", ref="msg_2"),), usage=Usage(50, output=5), stop="end_turn", message="resp_1"),
    ]
    assert [type(body) for body in home.bodies(session)][-1] is ModelReplied
    assert faults(home, session) == []


def test_searches_pictures_and_compactions_of_the_provider_stay_closed_with_words_beside_them(tmp_path: Path) -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "cats"}}
    drawn = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "revised_prompt": "a cat", "result": "aGk="}
    sealed = {"type": "compaction", "encrypted_content": "x"}
    path = write(tmp_path, meta(), context(), *(item(**each) for each in (search, drawn, sealed)), item(type="never_seen", text="?"))
    (reply,) = [body for body in bodies(path) if isinstance(body, ModelReplied)]
    assert [(json.loads(part.data), part.text_fallback) for part in reply.parts if isinstance(part, Opaque)] == [
        (search, "[web search: cats]"),
        (drawn, "[image: a cat]"),
        (sealed, ""),
    ]
    home, session = imported(path)
    assert faults(home, session) == []


def test_what_a_call_cost_in_which_the_provider_searched_is_unknown_because_it_bills_the_search_too(tmp_path: Path) -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "cats"}}
    path = write(tmp_path, meta(), context(), said("a"), item(**search), answered("Cats purr."), counted(105, 100, written=5))
    home, session = imported(path)
    with Log.open(home.store, session, FixedClock()) as log:
        assert [each.tier for each in bodies(path) if isinstance(each, ModelReplied)] == ["tool=web_search"]
        assert (log.ledger.usage.total, PriceBook().ledger_usd(log.ledger)) == (105, None)


def test_files_that_are_no_rollouts_are_passed_over_or_named(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text('{"session_id":"x","ts":1,"text":"hello"}\n')
    (tmp_path / "claude.jsonl").write_text('{"type":"user","uuid":"x","timestamp":"2026-11-15T06:00:00Z","message":{"role":"user"}}\n')
    for name, data in (("rollout-empty.jsonl", b""), ("rollout-noise.jsonl", b"\x00\x01noise\n")):
        (tmp_path / name).write_bytes(data)
        os.utime(tmp_path / name, (1, 1))
    (tmp_path / "loop").symlink_to(tmp_path)
    found = list(CODEX.sources(tmp_path))
    assert [(Path(each.where).name, each.why) for each in found if isinstance(each, ReadProblem)] == [
        ("rollout-empty.jsonl", "the file is empty"),
        ("rollout-noise.jsonl", "this is not a rollout"),
    ]
    assert len(found) == 2


def test_two_files_of_one_thread_are_two_sessions(tmp_path: Path) -> None:
    path = write(tmp_path, meta(), said("a"))
    copy = path.with_name(f"rollout-2026-11-16T06-00-00-{THREAD}.jsonl")
    copy.write_bytes(path.read_bytes())
    assert [source.session for source in CODEX.sources(tmp_path) if isinstance(source, TranscriptSource)] == [
        THREAD,
        f"2026-11-16T06-00-00-{THREAD}",
    ]


def test_a_compressed_rollout_is_read_where_something_can_unpack_it_and_named_where_not(tmp_path: Path) -> None:
    path = write(tmp_path, meta(), said("a"))
    packed = path.with_name(path.name + ".zst")
    # A frame of zstd that holds the bytes as they are.
    data = path.read_bytes()
    size = len(data)
    packed.write_bytes(b"\x28\xb5\x2f\xfd\xa0" + size.to_bytes(4, "little") + (size << 3 | 1).to_bytes(3, "little") + data)
    path.unlink()
    (found,) = CODEX.sources(packed)
    if isinstance(found, ReadProblem):
        assert found.why == "what is compressed with zstd needs Python 3.14 or the package `zstandard`; install it and import again"
    else:
        home, session = imported(packed)
        assert said_in(home.bodies(session)) == ["a"]


def test_the_default_folders_follow_the_environment(tmp_path: Path) -> None:
    assert CODEX.default_paths(tmp_path, {}) == (tmp_path / ".codex/sessions", tmp_path / ".codex/archived_sessions")
    assert CODEX.default_paths(tmp_path, {"CODEX_HOME": "/elsewhere"})[0] == Path("/elsewhere/sessions")


def test_the_position_of_a_file_that_shrank_is_ignored(tmp_path: Path) -> None:
    path = write(tmp_path, meta(), said("a"), said("b"))
    home = Home()
    (done,) = home.take(CODEX, path)
    write(tmp_path, meta(), said("a"))
    (source,) = [each for each in CODEX.sources(path) if isinstance(each, TranscriptSource)]
    again = import_session(CODEX, source, home.store, home.blobs, FixedClock(1), position=done.position)
    assert again.counts.events == 0
