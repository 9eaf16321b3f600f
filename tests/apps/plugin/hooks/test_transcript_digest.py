"""The digest of a transcript: what an import reads, also behind a kept digest; thrown away when the file is another one."""

import json
import shutil
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import rollouts
from claude_session import Line, boundary, call, prompt, reply, result, summary, text, written
from corpus import WITHOUT, corpus, golden
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from readings import called, own_ids

from pal.plugin.bounds import HOOK_BYTES
from pal.plugin.evidence import MESSAGE_CHARS, Digest, digest_slot, kept_digest, newest, refresh, whole_digest
from palimpsest.audit.evidence import EvidenceProjection
from palimpsest.core.log import Log
from palimpsest.core.plans import CommandRun, Evidence
from palimpsest.exchange.claude.reader import ClaudeFormat
from palimpsest.exchange.codex.reader import CodexFormat
from palimpsest.exchange.importing import import_session
from palimpsest.exchange.transcript import Format, PlacedEvents, ReadEvent, TranscriptSource
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions

GOLDEN = [*golden("claude/*/projects/**/*.jsonl"), *golden("codex/*/sessions/**/*.jsonl")]
CORPUS = [*corpus("claude-code/*.jsonl"), *corpus("codex/*.jsonl")]

TURNS: tuple[Line, ...] = (
    prompt("u1", None, "Fix the parser, please."),
    reply("a1", "u1", "m1", call("c1", "Read", file_path="/repo/parser.py")),
    result("r1", "a1", "c1", "def parse(): ..."),
    reply("a2", "r1", "m2", call("c2", "Edit", file_path="/repo/parser.py", old_string="...", new_string="pass")),
    result("r2", "a2", "c2", "The file has been updated."),
    reply("a3", "r2", "m3", text("Done.")),
    prompt("u2", "a3", "Now run the tests."),
    reply("a4", "u2", "m4", call("c3", "Bash", command="pytest -q tests/test_parser.py")),
    result("r3", "a4", "c3", "3 passed in 0.1s"),
    reply("a5", "r3", "m5", text("They pass.")),
)


def contents(found: Digest) -> tuple[list[str], tuple[str, ...], tuple[str, ...], list[str]]:
    evidence = found.evidence
    return [said.text for said in found.messages], evidence.edited, evidence.read, [ran.command for ran in evidence.commands]


def behind_a_kept_digest(folder: Path, write: Callable[[int], Path], stop: int, end: int) -> Digest:
    """The digest of a transcript of which the first lines were read before."""
    path = write(stop)
    slot = digest_slot(folder / "home", path)
    refresh(slot, path, always=True, most=0)
    path = write(end)
    return newest(slot, path, most=path.stat().st_size - 1)


def test_a_digest_has_messages_paths_commands_and_the_last_test(tmp_path: Path) -> None:
    found = whole_digest(written(tmp_path, *TURNS))

    said = ["Fix the parser, please.", "Now run the tests."]
    assert contents(found) == (said, ("/repo/parser.py",), (), ["pytest -q tests/test_parser.py"])
    assert found.evidence.tests is not None
    assert replace(found.evidence.tests, seq=-1) == CommandRun("pytest -q tests/test_parser.py", None, -1, "3 passed in 0.1s")
    assert (found.offset, found.skipped) == ((tmp_path / "11111111-2222-3333-4444-555555555555.jsonl").stat().st_size, 0)


@settings(max_examples=20)
@given(st.integers(1, len(TURNS) - 1))
def test_wherever_the_kept_digest_ends_the_digest_is_the_same(stop: int) -> None:
    with TemporaryDirectory() as folder:
        found = behind_a_kept_digest(Path(folder), lambda count: written(Path(folder), *TURNS[:count]), stop, len(TURNS))
        whole = whole_digest(written(Path(folder), *TURNS))

    assert contents(found) == contents(whole)


def test_what_the_user_took_back_is_not_in_it(tmp_path: Path) -> None:
    again = (prompt("u3", "a3", "No: run the linter."), reply("a6", "u3", "m6", text("It is clean.")))
    found = whole_digest(written(tmp_path, *TURNS, *again))

    assert contents(found) == (["Fix the parser, please.", "No: run the linter."], ("/repo/parser.py",), (), [])


def test_a_compaction_in_the_transcript_loses_nothing_of_it(tmp_path: Path) -> None:
    compacted = (boundary("b1", "a5"), summary("s1", "b1", "They fixed the parser."), prompt("u3", "s1", "Go on."))
    found = whole_digest(written(tmp_path, *TURNS, *compacted))

    assert contents(found)[0] == ["Fix the parser, please.", "Now run the tests.", "Go on."]


def test_a_rollout_of_codex_is_read_behind_a_kept_digest_too(tmp_path: Path) -> None:
    lines = (
        rollouts.meta(),
        rollouts.context(),
        rollouts.said("List the files."),
        rollouts.called("c1", "exec_command", json.dumps({"cmd": "ls src"})),
        rollouts.output("c1", "Process exited with code 0\nOutput:\na.py"),
        rollouts.answered("One file."),
        rollouts.said("Thanks."),
    )
    for stop in range(1, len(lines)):
        found = behind_a_kept_digest(tmp_path, lambda count: rollouts.write(tmp_path, *lines[:count]), stop, len(lines))

        assert contents(found) == (["List the files.", "Thanks."], (), (), ["ls src"])


def test_a_kept_digest_of_a_replaced_file_is_thrown_away(tmp_path: Path) -> None:
    path = written(tmp_path, *TURNS[:6])
    slot = digest_slot(tmp_path / "home", path)
    refresh(slot, path, most=1)
    first = whole_digest(path)
    path = written(tmp_path, *TURNS)

    assert kept_digest(slot, path) == first
    written(tmp_path, prompt("x1", None, "Something else." * 500))
    assert kept_digest(slot, path) == Digest()
    slot.save(b"\xff{")
    assert kept_digest(slot, path) == Digest()


def test_a_digest_is_kept_only_of_a_transcript_that_no_hook_reads_whole_and_that_grew(tmp_path: Path) -> None:
    path = written(tmp_path, *TURNS)
    size = path.stat().st_size
    slot = digest_slot(tmp_path / "home", path)
    refresh(slot, path, always=True, most=size)
    assert slot.load() is None
    refresh(slot, path, most=size - 1)
    kept = slot.load()
    written(tmp_path, *TURNS, prompt("u3", "a5", "Thanks."))
    refresh(slot, path, most=size - 1)
    assert slot.load() == kept
    refresh(slot, path, always=True, most=size - 1)
    assert [said.text for said in kept_digest(slot, path).messages][-1] == "Thanks."


def test_a_hook_reads_the_end_of_a_long_transcript_and_says_how_much_it_left_out(tmp_path: Path) -> None:
    filler = (result(f"f{number}", None, f"c{number}", "x" * 1_000_000) for number in range(10, 15))
    path = written(tmp_path, *filler, *TURNS)
    found = newest(digest_slot(tmp_path / "home", path), path)

    assert found.offset == path.stat().st_size
    assert found.offset - found.skipped <= HOOK_BYTES
    assert found.skipped > 1_000_000
    assert contents(found)[0] == ["Fix the parser, please.", "Now run the tests."]


def test_of_many_messages_the_newest_are_kept(tmp_path: Path) -> None:
    prompts = (prompt(f"u{number}", f"u{number - 1}" if number else None, f"{number} " + "z" * 9_000) for number in range(20))
    path = written(tmp_path, *prompts)
    found = whole_digest(path)

    assert [said.text[:3] for said in found.messages] == ["14 ", "15 ", "16 ", "17 ", "18 ", "19 "]
    assert {len(said.text) for said in found.messages} == {MESSAGE_CHARS}
    assert len(found.evidence.user_messages) == 20


def test_an_empty_file_and_one_without_a_line_end_have_no_evidence(tmp_path: Path) -> None:
    for data in (b"", b'{"type":"user"', b"\x00" * 5_000, b"\n\n\n"):
        path = tmp_path / "odd.jsonl"
        path.write_bytes(data)
        found = newest(digest_slot(tmp_path / "home", path), path)

        assert (found.evidence, found.messages) == (Evidence(), ())


def imported(form: Format, path: Path) -> tuple[Evidence, list[str]]:
    """What the log of an imported transcript proves, and the ids of the calls on its path."""
    store = MemorySessions()
    source = TranscriptSource(form.name, str(path), path.stem)
    done = import_session(form, source, store, MemoryBlobs(), FixedClock(1))
    log = Log.open(store, done.session, FixedClock(1))
    projection = EvidenceProjection()
    events = [event for event in log.reader.run(0, log.tip) if event.seq in log.path]
    for event in events:
        projection.take(event)
    return projection.value(), own_ids([event.body for event in events])[0]


def read_calls(form: Format, path: Path) -> list[str]:
    """The ids of the calls that a digest takes from a transcript without branches."""
    placed = PlacedEvents()
    outputs = form.read(TranscriptSource(form.name, str(path), path.stem), MemoryBlobs())
    events = [event for each in outputs if isinstance(each, ReadEvent) and (event := placed.place(each)) is not None]
    return called([event.body for event in events])


def proved(found: Evidence) -> dict[str, object]:
    """Evidence without the numbers of events, which are others in a digest."""
    runs = {"commands": found.commands, "errors": found.errors, "tests": (found.tests,) if found.tests else ()}
    return {
        **{name: [replace(ran, seq=0) for ran in value] for name, value in runs.items()},
        **{name: getattr(found, name) for name in ("edited", "read", "tasks", "names")},
        "messages": [(said.at, said.opening, said.tokens) for said in found.user_messages],
    }


@pytest.mark.parametrize("paths", [GOLDEN, pytest.param(CORPUS, marks=[pytest.mark.long, pytest.mark.skipif(not CORPUS, reason=WITHOUT)])])
def test_for_every_transcript_the_hook_knows_what_an_import_of_it_knows(paths: list[Path], tmp_path: Path) -> None:
    wrong: list[str] = []
    for path in paths:
        form: Format = CodexFormat() if "codex" in path.parts else ClaudeFormat()
        evidence, calls = imported(form, path)
        found = whole_digest(path)
        if proved(found.evidence) != proved(evidence):
            wrong.append(f"{path.name}: the whole file")
        read = read_calls(form, path)
        if not set(calls) <= set(read):
            wrong.append(f"{path.name}: {len(calls)} calls, {len(read)} read")
        # The first line of a fork names another rollout, which is found beside it.
        copy = tmp_path / "sessions" / path.name
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(path, copy)
        data = path.read_bytes()
        ends = list(accumulate(len(line) for line in data.splitlines(keepends=True)))
        for end in ends[len(ends) // 3 :: max(1, len(ends) // 2)]:
            slot = digest_slot(tmp_path / "home", copy)
            copy.write_bytes(data[:end])
            refresh(slot, copy, always=True, most=0)
            copy.write_bytes(data)
            if proved(newest(slot, copy, most=len(data) - 1).evidence) != proved(found.evidence):
                wrong.append(f"{path.name}: behind a digest of {end} bytes")

    assert wrong == []
    assert len(paths) >= 10
