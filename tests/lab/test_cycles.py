from collections.abc import Iterator

import pytest
from corpus import CORPUS, WITHOUT, corpus

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import Event, ModelReplied, SessionOpened, ToolReturned, Usage, UserSaid, ViewEdited
from palimpsest.core.items import Text, ToolCall, ToolResult
from palimpsest.core.log import Log
from palimpsest.core.policy import Answer, Want
from palimpsest.engine.flow import answer_without_model
from palimpsest.engine.session import Session
from palimpsest.foreign.finding import find_sources
from palimpsest.foreign.formats import FORMATS, format_named
from palimpsest.foreign.importing import import_session
from palimpsest.lab.cycles import Asked, Material, ask_after, probed
from palimpsest.lab.generate import generate
from palimpsest.lab.outcome import Probed
from palimpsest.profiles.named import PROFILES, profile
from palimpsest.stores.ephemeral import FixedClock, MemoryBlobs, MemoryShelf
from palimpsest.wire.cards import card

SONNET = card("claude-sonnet-4-5")


def _generated(seed: int, events: int) -> Material:
    log = Log.create(MemoryShelf(), SessionOpened("made-up"), FixedClock(1_000, 1_000))
    for body in generate(seed, events):
        log.append(body)
    return Material(log.events())


@pytest.fixture(scope="module")
def long_session() -> Material:
    return _generated(4, 700)


def _chat(turns: int) -> Iterator[Event]:
    yield Event(0, -1, 0, "", SessionOpened("s"))
    for turn in range(turns):
        yield Event(4 * turn + 1, 4 * turn, turn, "", UserSaid((Text(f"Please list folder number {turn}."),)))
        call = ToolCall(f"c{turn}", "Bash", f'{{"command": "ls {turn}"}}')
        yield Event(4 * turn + 2, 4 * turn + 1, turn, "", ModelReplied((call,), usage=Usage(input=50)))
        yield Event(4 * turn + 3, 4 * turn + 2, turn, "", ToolReturned(ToolResult(f"c{turn}", (Text("a"),)), "Bash", 0))
        yield Event(4 * turn + 4, 4 * turn + 3, turn, "", ViewEdited((), "another program"))


def test_a_session_is_cut_into_parts_of_as_many_replies_where_no_call_is_open() -> None:
    material = Material(_chat(6))
    assert [[event.seq for event in part] for part in material.parts(3)] == [
        [1, 2, 3, 5, 6, 7],
        [9, 10, 11, 13, 14, 15],
        [17, 18, 19, 21, 22, 23],
    ]
    assert [len(part) for part in material.parts(1)] == [18]


def test_a_session_that_is_too_short_is_cut_into_fewer_parts() -> None:
    assert len(Material(_chat(2)).parts(10)) == 2
    assert Material(()).parts(10) == []


def test_without_a_policy_everything_can_be_answered(long_session: Material) -> None:
    asked = ask_after(long_session, profile("none"), SONNET, 5)
    assert (asked.folds, asked.visible.total, asked.with_recall.total) == (0, 1.0, 1.0)
    assert set(asked.visible.kinds) >= {"asked", "bound", "edited", "commands", "tests", "open"}


def test_our_folds_keep_what_the_user_said_however_often_they_come(long_session: Material) -> None:
    for cycles in (1, 10):
        asked = ask_after(long_session, profile("palimpsest"), SONNET, cycles)
        assert asked.folds == cycles
        assert (asked.visible.kinds["asked"], asked.visible.kinds["bound"]) == (1.0, 1.0)
        assert asked.visible.total < 1.0
        assert asked.visible.total <= asked.with_recall.total


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_can_be_asked_and_says_the_same_twice(name: str, long_session: Material) -> None:
    once = ask_after(long_session, profile(name), SONNET, 2)
    assert once == ask_after(long_session, profile(name), SONNET, 2)
    assert once.visible.probes == len(long_session.probes)
    assert all(0 <= share <= 1 for each in (once.visible, once.with_recall) for share in each.kinds.values())


def test_a_summary_that_says_nothing_loses_what_it_covers(long_session: Material) -> None:
    def answering(session: Session, want: Want) -> Answer:
        try:
            return answer_without_model(session, want)
        except PalimpsestError:
            return ModelReplied((Text("<summary>We worked.</summary>", "assistant"),), usage=Usage(output=5))

    ours = ask_after(long_session, profile("palimpsest"), SONNET, 2)
    theirs = ask_after(long_session, profile("claude-code-2.1.325"), SONNET, 2, answering)
    assert theirs.folds == 2
    assert theirs.visible.kinds["asked"] < 0.2
    assert theirs.visible.total < ours.visible.total


def test_a_replay_is_told_the_shares_by_the_number_of_cycles(long_session: Material) -> None:
    asked: list[Asked] = [ask_after(long_session, profile("palimpsest"), SONNET, cycles) for cycles in (1, 2)]
    assert probed(long_session, profile("palimpsest"), SONNET, (1, 2)) == {
        str(each.cycles): Probed(each.visible.total, each.with_recall.total) for each in asked
    }


@pytest.mark.skipif(not CORPUS.is_dir(), reason=WITHOUT)
def test_in_real_sessions_everything_can_be_answered_before_something_is_hidden() -> None:
    paths = [path for pattern in ("claude-code/*", "codex/*", "swe-agent/*", "copilot-cli/*") for path in corpus(pattern)[:2]]
    shelf, blobs, clock = MemoryShelf(), MemoryBlobs(), FixedClock(1)
    for source in find_sources(FORMATS, paths).sources:
        session = import_session(format_named(source.format), source, shelf, blobs, clock).session
        material = Material(Log.open(shelf, session, clock).events())
        asked = ask_after(material, profile("none"), SONNET, 1)
        assert (source.path, asked.visible.total) == (source.path, 1.0)
        ours = ask_after(material, profile("palimpsest"), SONNET, 5)
        assert (source.path, ours.visible.kinds.get("asked", 1.0) > 0.9) == (source.path, True)
