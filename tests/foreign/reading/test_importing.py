from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from generated import generate
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from tiny_format import BEGAN, MODEL, Tiny, reply, source_of, user, written

from palimpsest.core.errors import BadLog, Locked, StoreError
from palimpsest.core.events import Body, CallStarted, Event, Rewound, SessionOpened, TurnEnded, Usage, UserSaid, ViewEdited, items_of
from palimpsest.core.items import Text, text_of
from palimpsest.core.log import Log
from palimpsest.core.ports import Blobs, SessionStore
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.tokens import palimpsest_size
from palimpsest.core.verify import verify
from palimpsest.exchange.importing import Counts, Imported, Provenance, _LogImport, foreign_key, import_session, provenance_of, session_id
from palimpsest.exchange.transcript import ReadEvent, ReadOutput, ReadPosition, ReadProblem, TranscriptSource, inserted_ids
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions

TALK = (
    user("u1", "What is in a.py?", extra={"cwd": "shop"}),
    reply("r1", "I look.", calls=["c1"], input=900),
    {"id": "t1", "kind": "result", "call": "c1", "text": "timeout = 10"},
    reply("r2", "Ten seconds.", input=950),
    {"id": "n1", "kind": "noise"},
    {"id": "m1", "kind": "mask", "what": "t1"},
    {"id": "f1", "kind": "fold", "first": "u1", "text": "a.py was read"},
    user("u2", "And b.py?"),
)


def bring(path: Path, store: SessionStore, position: ReadPosition | None = None, since: int = -1) -> Imported:
    return import_session(Tiny(), source_of(path), store, MemoryBlobs(), FixedClock(BEGAN), position=position, since=since)


def raw(store: MemorySessions, session: str = "tiny-a") -> bytes:
    return b"".join(chunk for _, chunk in store.open(session).chunks())


def events(store: MemorySessions, session: str = "tiny-a") -> list[Event]:
    with Log.open(store, session, FixedClock()) as log:
        return list(log.reader.run(0, log.tip))


def shown(store: MemorySessions, session: str = "tiny-a") -> list[str]:
    with Log.open(store, session, FixedClock()) as log:
        return [item.mask.text if item.mask else text_of(item.content) for item in log.view.items]


def test_a_session_becomes_a_log_with_keys_lines_times_and_counts(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tiny", *TALK[:3])
    store = MemorySessions()

    imported = bring(path, store)

    assert imported == Imported("tiny-a", Counts(5, 1, 1, 1), (), ReadPosition(path.stat().st_size), 4)
    found = events(store)
    assert [foreign_key(event.body) for event in found] == ["open", "u1", "r1:call", "r1", "t1"]
    assert found[0].body == SessionOpened("tiny-a", "shop", "tiny", model=MODEL, foreign=Raw(b'{"key":"open"}'))
    assert found[0].at == BEGAN
    assert provenance_of(found[1].body) == Provenance("u1", Raw(b'{"extra":{"cwd":"shop"}}'))
    assert provenance_of(TurnEnded()) is None


def test_what_the_other_program_did_to_its_context_is_edits_of_ours(tmp_path: Path) -> None:
    store = MemorySessions()
    before = bring(written(tmp_path / "a.tiny", *TALK[:6]), store)

    assert shown(store) == ["What is in a.py?", "I look.", "read {}", "(cleared)", "Ten seconds."]

    after = bring(written(tmp_path / "a.tiny", *TALK[6:]), store, before.position, before.tip)

    assert (before.counts.masks, before.counts.folds, after.counts.masks, after.counts.folds) == (1, 0, 0, 1)
    assert shown(store) == ["a.py was read", "And b.py?"]


def test_importing_twice_changes_nothing_with_a_position_or_without(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tiny", *TALK)
    store = MemorySessions()
    first = bring(path, store)
    before = raw(store)

    assert bring(path, store).counts == Counts()
    assert bring(path, store, first.position, first.tip).counts == Counts()
    assert raw(store) == before


@given(st.integers(0, 8), st.booleans())
def test_in_two_parts_comes_the_same_log_as_at_once(tmp_path_factory: pytest.TempPathFactory, cut: int, marked: bool) -> None:
    folder = tmp_path_factory.mktemp("parts")
    branches = (*TALK, user("u3", "Or rather c.py?", after="u1"), reply("r3", "Yes.", input=800), user("u4", "Good.", after="u2"))
    once, twice = MemorySessions(), MemorySessions()
    bring(written(folder / "a.tiny", *branches), once)
    (folder / "a.tiny").unlink()

    first = bring(written(folder / "a.tiny", *branches[:cut]), twice)
    bring(written(folder / "a.tiny", *branches[cut:]), twice, first.position if marked else None, first.tip)

    assert raw(twice) == raw(once)


def test_a_line_that_is_still_being_written_is_read_next_time(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tiny", TALK[0])
    with path.open("ab") as file:
        file.write(b'{"id":"u9","kind":"user","te')
    store = MemorySessions()
    first = bring(path, store)
    with path.open("ab") as file:
        file.write(b'xt":"whole"}\n')

    assert (first.problems, shown(store)) == ((), ["What is in a.py?"])
    assert bring(path, store, first.position, first.tip).counts == Counts(1, 1)
    assert shown(store) == ["What is in a.py?", "whole"]


def test_a_branch_is_a_rewind_and_the_rest_follows_it(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tiny", user("u1", "one"), user("u2", "two"), user("u3", "other two", after="u1"), user("u4", "three"))
    store = MemorySessions()
    bring(path, store)

    assert [type(event.body) for event in events(store)][3:] == [Rewound, UserSaid, UserSaid]
    assert shown(store) == ["one", "other two", "three"]


def test_an_edit_on_a_branch_sees_that_branch_and_one_that_comes_to_nothing_leaves_no_trace(tmp_path: Path) -> None:
    nothing = {"id": "m1", "kind": "mask", "what": "never told", "after": "u1"}
    fold = {"id": "f1", "kind": "fold", "first": "u1", "text": "one, in short", "after": "u1"}
    path = written(tmp_path / "a.tiny", user("u1", "one"), user("u2", "two"), nothing)
    store = MemorySessions()
    bring(path, store)
    before = raw(store)

    assert bring(path, store).counts == Counts()
    assert raw(store) == before
    assert shown(store) == ["one", "two"]
    assert bring(written(path, fold), store).counts == Counts(1, folds=1)
    assert shown(store) == ["one, in short"]


def test_bad_lines_are_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.tiny"
    path.write_bytes(b'garbage\n{"id":"u1","kind":"user","text":"\xff"}\n')
    written(path, user("u2", "fine"))
    store = MemorySessions()

    imported = bring(path, store)

    assert [bad.where for bad in imported.problems] == [f"{path}:0", f"{path}:8"]
    assert imported.counts == Counts(2, 1, bad_lines=2)
    assert shown(store) == ["fine"]


def test_an_exception_of_a_reader_is_a_problem_and_the_events_before_it_stay(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tiny", user("u1", "one"), {"id": "x", "kind": "crash", "text": "no such shape"}, user("u2", "two"))
    store = MemorySessions()

    imported = bring(path, store)

    assert imported.problems == (ReadProblem(str(path), "reading stopped: RuntimeError: no such shape"),)
    assert imported.position is None
    assert shown(store) == ["one"]


def test_a_file_that_is_gone_is_a_bad_line_and_makes_no_log(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tiny", *TALK)
    source = source_of(path)
    path.unlink()
    store = MemorySessions()

    imported = import_session(_Lazy(), source, store, MemoryBlobs(), FixedClock())

    assert imported == Imported("tiny-a", Counts(bad_lines=1), (ReadProblem(str(path), "reading stopped: No such file or directory"),))
    assert list(store.sessions()) == []


class _Lazy(Tiny):
    """Opens its file before it yields anything."""

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        Path(source.path).read_bytes()
        yield from super().read(source, blobs, position)


def test_a_text_that_no_line_can_hold_is_a_bad_line(tmp_path: Path) -> None:
    imported = import_session(_Broken(), TranscriptSource("tiny", "a.tiny", "a"), MemorySessions(), MemoryBlobs(), FixedClock())

    assert [bad.where for bad in imported.problems] == ["u1"]
    assert imported.counts == Counts(2, 1, bad_lines=1)


class _Broken(Tiny):
    """Yields half a character."""

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        yield ReadEvent(SessionOpened(""), BEGAN, "open")
        yield ReadEvent(UserSaid((Text("\ud800"),)), BEGAN, "u1")
        yield ReadEvent(UserSaid((Text("fine"),)), BEGAN, "u2")


def test_what_was_recorded_here_since_stays_the_tip_and_the_others_part_is_a_branch(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tiny", user("u1", "one"))
    store = MemorySessions()
    first = bring(path, store)
    with Log.open(store, "tiny-a", FixedClock(), write=True) as log:
        log.append(UserSaid((Text("ours"),)))

    for text in ("two", "three"):
        written(path, user(text, text))
        bring(path, store, first.position, first.tip)

    assert shown(store) == ["one", "ours"]
    with Log.open(store, "tiny-a", FixedClock()) as log:
        newest = max(event.seq for event in log.reader.run(0, log.tip) if foreign_key(event.body) == "three")
        assert [text_of(item.content) for item in log.state_at(newest).view.items] == ["one", "two", "three"]
    before = raw(store)
    bring(path, store)
    assert raw(store) == before


def test_a_position_is_not_trusted_when_the_log_is_shorter_than_it_was(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tiny", *TALK)
    store = MemorySessions()
    first = bring(path, store)
    whole = raw(store)
    store.replace("tiny-a", b"".join(whole.splitlines(keepends=True)[:4]))

    bring(path, store, first.position, first.tip)

    assert raw(store) == whole


def test_calls_are_weighed_so_that_usage_teaches_the_estimate(tmp_path: Path) -> None:
    talk = [user("u0", "word " * 3000), reply("r0", "so.", input=9000)]
    for number in range(1, 9):
        talk += [user(f"u{number}", "word " * 1000), reply(f"r{number}", "so.", input=9000 + 1105 * number)]
    store = MemorySessions()
    bring(written(tmp_path / "a.tiny", *talk), store)

    estimates = [event.body.estimate for event in events(store) if isinstance(event.body, CallStarted)]
    assert estimates[0] == 0
    assert estimates == sorted(estimates)
    with Log.open(store, "tiny-a", FixedClock()) as log:
        assert log.ledger.calibration.factor(MODEL) == pytest.approx(1.33, rel=0.05)
        assert log.ledger.usage == Usage(input=sum(line["input"] for line in talk if line["kind"] == "reply"), output=9)


def test_a_call_weighs_what_the_whole_view_weighs_whatever_was_edited_before(tmp_path: Path) -> None:
    talk = (*TALK, *(line for number in range(5) for line in (user(f"v{number}", "And now?"), reply(f"s{number}", "Ten.", input=970))))
    store = MemorySessions()
    bring(written(tmp_path / "a.tiny", *talk), store)

    with Log.open(store, "tiny-a", FixedClock()) as log:
        calls = [(event.seq, event.body.estimate) for event in log.events() if isinstance(event.body, CallStarted) and event.body.estimate]
        unseen = {estimate - TokenCounter(palimpsest_size).raw(log.state_at(seq).view) for seq, estimate in calls}
    assert (len(calls), len(unseen)) == (6, 1)


def test_a_log_that_another_process_writes_is_refused_and_closed(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tiny", *TALK)
    store = MemorySessions()
    bring(path, store)
    with Log.open(store, "tiny-a", FixedClock(), write=True), pytest.raises(Locked):
        bring(path, store)

    assert bring(path, store).counts == Counts()


def test_a_damaged_log_is_refused_and_let_go(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tiny", *TALK)
    store = MemorySessions()
    bring(path, store)
    lines = raw(store).splitlines(keepends=True)
    store.replace("tiny-a", b"".join((*lines[:2], b"noise\n", *lines[3:])))

    for _ in range(2):
        with pytest.raises(BadLog):
            bring(path, store)


class _Full(Tiny):
    """The disk fills up while it reads."""

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        yield from super().read(source, blobs, position)
        raise StoreError("the disk is full", where="blobs")


def test_a_full_disk_stops_the_import_and_what_was_written_stays_valid(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tiny", *TALK)
    store = MemorySessions()
    with pytest.raises(StoreError):
        import_session(_Full(), source_of(path), store, MemoryBlobs(), FixedClock())

    assert verify(store, "tiny-a", MemoryBlobs()).ok
    assert bring(path, store).counts == Counts()


def test_ids_are_plain_names_that_stay_apart() -> None:
    assert session_id("codex", "019ed893-d2a6") == "codex-019ed893-d2a6"
    odd = [session_id("aider", name) for name in ("a/b", "a_b", "a:b", "é" * 300, "é" * 301)]
    assert len(set(odd)) == 5
    assert all(len(name) <= 128 and name.isascii() for name in odd)


@dataclass(frozen=True)
class _Recounted(Tiny):
    """Yields the given bodies."""

    bodies: tuple[Body, ...] = ()

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        yield ReadEvent(SessionOpened(""), BEGAN, "open")
        for number, body in enumerate(self.bodies):
            yield ReadEvent(body, BEGAN, f"k{number}")


def test_a_key_gives_the_ids_of_all_items_of_its_event(tmp_path: Path) -> None:
    store = MemorySessions()
    bodies = tuple(body for body in generate(7, 400) if not isinstance(body, SessionOpened))
    import_session(_Recounted(bodies=bodies), TranscriptSource("tiny", "a.tiny", "a"), store, MemoryBlobs(), FixedClock())

    context = _LogImport(store, "tiny-a", FixedClock())
    context.close()
    found = {foreign_key(event.body): event for event in events(store)}
    brought = {key: tuple(item.id for item in items_of(event.seq, event.body)) for key, event in found.items()}
    edits = {key: inserted_ids(event.seq, event.body) for key, event in found.items() if isinstance(event.body, ViewEdited)}
    assert {key: context.item_ids(key) for key in found} == brought | edits
    assert {"user_said", "model_replied", "tool_returned", "context_stated"} <= {str(type(each).__struct_config__.tag) for each in bodies}
    assert context.item_ids("never told") == ()
