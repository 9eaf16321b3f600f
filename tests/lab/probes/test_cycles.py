from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from corpus import CORPUS, WITHOUT, corpus
from generated import generate

from pal.replay.outcome import KindScores, ProbeScores, mean_scores
from pal.replay.probes import NOTHING_TO_FOLD, ProbedSession, SummarySource, probe_after, probed
from palimpsest.core.errors import CannotFold, PalimpsestError, TooFull
from palimpsest.core.events import Event, ModelReplied, SessionOpened, ToolReturned, Usage, UserSaid, ViewEdited
from palimpsest.core.items import Text, ToolCall, ToolResult
from palimpsest.core.log import Log
from palimpsest.core.plans import Moment, Plan, Situation
from palimpsest.core.view import View
from palimpsest.exchange.finding import find_sources
from palimpsest.exchange.formats import FORMATS, format_named
from palimpsest.exchange.importing import import_session
from palimpsest.policies.named import PROFILES, profile
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.wire.media import Fetch
from palimpsest.wire.models import card
from palimpsest.wire.request import Params, Tool

SONNET = card("claude-sonnet-4-5")


def _generated(seed: int, events: int) -> ProbedSession:
    log = Log.create(MemorySessions(), SessionOpened("made-up"), FixedClock(1_000, 1_000))
    for body in generate(seed, events):
        log.append(body)
    return ProbedSession(log.events())


@pytest.fixture(scope="module")
def long_session() -> ProbedSession:
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
    probed_session = ProbedSession(_chat(6))
    assert [[event.seq for event in part] for part in probed_session.parts(3)] == [
        [1, 2, 3, 5, 6, 7],
        [9, 10, 11, 13, 14, 15],
        [17, 18, 19, 21, 22, 23],
    ]
    assert [len(part) for part in probed_session.parts(1)] == [18]


def test_a_session_that_is_too_short_is_cut_into_fewer_parts() -> None:
    assert len(ProbedSession(_chat(2)).parts(10)) == 2
    assert ProbedSession(()).parts(10) == []


def test_without_a_policy_everything_can_be_answered(long_session: ProbedSession) -> None:
    asked = probe_after(long_session, profile("none"), SONNET, 5)
    assert (asked.folds, asked.forced, asked.sessions, asked.unfolded) == (0, 5, 0, 1)
    assert (asked.visible, asked.with_recall) == (1.0, 1.0)
    assert set(asked.kinds) >= {"asked", "edited", "commands", "tests", "open"}


def test_our_folds_keep_what_the_user_said_however_often_they_come(long_session: ProbedSession) -> None:
    for cycles in (1, 10):
        asked = probe_after(long_session, profile("palimpsest"), SONNET, cycles)
        assert (asked.folds, asked.forced, asked.sessions, asked.unfolded) == (cycles, cycles, 1, 0)
        assert asked.kinds["asked"].visible == 1.0
        assert asked.visible < 1.0
        assert asked.visible <= asked.with_recall


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_can_be_asked_and_says_the_same_twice(name: str, long_session: ProbedSession) -> None:
    once = probe_after(long_session, profile(name), SONNET, 2)
    assert once == probe_after(long_session, profile(name), SONNET, 2)
    assert set(once.kinds) == {probe.kind for probe in long_session.probes}
    assert all(0 <= each.visible <= each.with_recall <= 1 for each in once.kinds.values())


def test_a_summary_that_says_nothing_loses_what_it_covers(long_session: ProbedSession) -> None:
    async def real(view: View, tools: tuple[Tool, ...], params: Params, fetch: Fetch, /) -> ModelReplied:
        return ModelReplied((Text("<summary>We worked.</summary>", "assistant"),), usage=Usage(output=5))

    ours = probe_after(long_session, profile("palimpsest"), SONNET, 2)
    theirs = probe_after(long_session, profile("claude-code-2.1.325"), SONNET, 2, SummarySource(1.0, real))
    assert theirs.folds == 2
    assert theirs.kinds["asked"].visible < 0.2
    assert theirs.visible < ours.visible


def test_scores_are_reported_by_the_number_of_cycles(long_session: ProbedSession) -> None:
    asked = {str(cycles): probe_after(long_session, profile("palimpsest"), SONNET, cycles) for cycles in (1, 2)}
    assert probed(long_session, profile("palimpsest"), SONNET, (1, 2)) == asked


def test_a_fold_that_is_not_made_says_why() -> None:
    short = ProbedSession(_chat(3))
    assert probe_after(short, profile("palimpsest"), SONNET, 3).rested == {NOTHING_TO_FOLD: 3}
    assert probe_after(short, profile("claude-code-2.1.325"), SONNET, 3, SummarySource(1.0)).rested == {
        "the view would not be smaller": 2,
        "too_few_groups: there is only one exchange, and that stays": 1,
    }


@dataclass(frozen=True)
class _Failing:
    """A policy that cannot do what it is asked for."""

    error: PalimpsestError
    name: str = "failing"
    moments: frozenset[Moment] = frozenset({"asked"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Fail."""
        raise self.error


@pytest.mark.parametrize("error", [TooFull("there is no room"), CannotFold("nothing is left to be cut")])
def test_an_error_is_counted_with_its_message_and_not_as_a_fold_that_found_nothing(error: PalimpsestError) -> None:
    failing = replace(profile("palimpsest"), policies=(_Failing(error),))
    assert probe_after(ProbedSession(_chat(3)), failing, SONNET, 2).rested == {error.message: 2}


def test_several_sessions_are_averaged_over_those_that_were_folded() -> None:
    whole = ProbeScores(1.0, 1.0, 0, 2, 0, 1, {"too small": 2}, {"asked": KindScores(1.0, 1.0, 1)})
    first = ProbeScores(0.5, 0.6, 2, 2, 1, 0, {}, {"asked": KindScores(0.5, 0.6, 1)})
    second = ProbeScores(0.7, 0.8, 1, 2, 1, 0, {"too small": 1}, {"asked": KindScores(0.6, 0.8, 1), "open": KindScores(0.2, 0.4, 1)})
    kinds = {"asked": KindScores(0.55, 0.7, 2), "open": KindScores(0.2, 0.4, 1)}
    assert mean_scores((whole, first, second)) == ProbeScores(0.6, 0.7, 3, 6, 2, 1, {"too small": 3}, kinds)
    assert mean_scores((whole, whole)) == ProbeScores(1.0, 1.0, 0, 4, 0, 2, {"too small": 4}, {"asked": KindScores(1.0, 1.0, 2)})


@pytest.mark.skipif(not CORPUS.is_dir(), reason=WITHOUT)
def test_in_real_sessions_everything_can_be_answered_before_something_is_hidden() -> None:
    paths = [path for pattern in ("claude-code/*", "codex/*", "swe-agent/*", "copilot-cli/*") for path in corpus(pattern)[:1]]
    store, blobs, clock = MemorySessions(), MemoryBlobs(), FixedClock(1)
    for source in find_sources(FORMATS, paths).sources:
        session = import_session(format_named(source.format), source, store, blobs, clock).session
        probed_session = ProbedSession(Log.open(store, session, clock).events())
        asked = probe_after(probed_session, profile("none"), SONNET, 1)
        assert (source.path, asked.visible) == (source.path, 1.0)
        ours = probe_after(probed_session, profile("palimpsest"), SONNET, 5)
        assert (source.path, "asked" not in ours.kinds or ours.kinds["asked"].visible > 0.9) == (source.path, True)
