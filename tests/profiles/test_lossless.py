"""The profile `lossless`: what it hides shows elsewhere, and no session costs more than its share because of it."""

from collections.abc import Iterator

import pytest
from corpus import CORPUS, GOLDEN
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from recorded import ended, recorded, said, used
from workplace import offline, reply, say, use, work

from pal.replay.comparison import own_card
from pal.replay.recording import LoadedSession, RecordedSession, RecordingIndex, load_all, load_log
from pal.replay.replay import replay
from palimpsest.agent.editing import run_policies
from palimpsest.audit.tool_calls import result_text
from palimpsest.core.errors import BadInput
from palimpsest.core.events import TurnEnded, TurnStarted, Usage, ViewEdited
from palimpsest.core.items import Loss, Text, ToolResult
from palimpsest.core.view import View
from palimpsest.policies.jobs import KeepAlive
from palimpsest.policies.named import profile
from palimpsest.policies.profile import CacheChoice
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.testing.synthetic import synthetic_session
from palimpsest.wire.models import ModelCard, card

MINUTE = 60_000
SONNET = card("claude-sonnet-4-5", window=200_000)
LINES = tuple(f"{number}: a line of some length that only this file has, number {number}" for number in range(40))
# Overlapping parts of one file, and another file.
TEXTS = ("\n".join(LINES), "\n".join(LINES[5:20]), "\n".join(LINES[10:30]), "\n".join(reversed(LINES)))


def hidden_texts(view: View) -> list[str]:
    """The texts of masked results that no other result of the view shows."""
    results = [(item, result_text(item.content)) for item in view.items if isinstance(item.content, ToolResult)]
    shown = [text for item, text in results if item.mask is None]
    return [text for item, text in results if item.mask is not None and not any(text in other for other in shown)]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(range(len(TEXTS))), st.sampled_from([1, 4, 12, 80])), min_size=2, max_size=12))
@pytest.mark.states("PA-29")
def test_what_is_hidden_shows_elsewhere_in_the_same_view(reads: list[tuple[int, int]]) -> None:
    clock = FixedClock(0, 0)
    session = work(profile("lossless"), clock=clock)
    say(session, "word " * 2_000)
    for number, (text, minutes) in enumerate(reads):
        clock.time += minutes * MINUTE
        offline(session, run_policies(session, "before_call"))
        assert hidden_texts(session.log.view) == []
        use(session, f"c{number}", "Read", '{"file_path":"a.py"}', TEXTS[text])
    offline(session, run_policies(session, "before_call"))
    edits = [event.body for event in session.log.events() if isinstance(event.body, ViewEdited)]
    assert hidden_texts(session.log.view) == []
    # The masked results are named, and nothing in them is lost.
    assert [replace(edit.loss or Loss(), ids=()) for edit in edits] == [Loss()] * len(edits)
    assert {edit.by for edit in edits} <= {"hide_repeats"}


def test_a_second_read_of_the_same_text_is_masked_before_it_is_sent_and_costs_nothing() -> None:
    session = work(profile("lossless"), clock=FixedClock(0, 0))
    session.log.append(TurnStarted())
    say(session, "word " * 8_000)
    use(session, "c1", "Read", '{"file_path":"a.py"}', TEXTS[0])
    reply(session, Text("once more", "assistant"), usage=Usage(cache_write=12_000))
    use(session, "c2", "Read", '{"file_path":"a.py"}', TEXTS[0])
    offline(session, run_policies(session, "before_call"))
    masks = [item.mask.text for item in session.log.view.items if item.mask is not None]
    first = next(item.id for item in session.log.view.items if isinstance(item.content, ToolResult))
    assert masks == [f"[the same text stands above, in the result of Read a.py, id {first}]"]
    session.log.append(TurnEnded())


def _with_pauses(*minutes: int) -> RecordedSession:
    """A session that reads a large file after each pause: of the user, and once of a tool."""
    at, timed = 0, said(0, "word " * 20_000)
    for number, pause in enumerate(minutes):
        timed += used(at + 1, f"c{number}", "Bash", f'{{"command": "make part{number}"}}', f"part {number} " * 400)
        timed += ended(at + 10)
        at += pause * 60
        timed += said(at, f"go on with part {number + 1}")
    return recorded(*timed, *ended(at + 1))


@pytest.mark.states("PA-28")
def test_a_replay_keeps_the_cache_alive_as_the_engine_does_and_bills_it() -> None:
    recording = _with_pauses(*[1] * 30, 7, 1, 1)
    plain, kept = (replay(recording, profile("lossless", {"PAL_KEEP_ALIVE": switch}), SONNET) for switch in ("off", "on"))
    reads = [call for call in kept.calls if call.purpose == "keep_alive"]
    turns = [call for call in kept.calls if call.purpose == "turn"]
    # One read four and a half minutes into the long pause, and two after the end, where a user of whom little is known does not come back.
    last = turns[-1].at
    assert [call.at - turns[61].at for call in reads if call.at < last] == [4.5 * MINUTE]
    assert [call.at - last for call in reads if call.at > last] == [4.5 * MINUTE, 9 * MINUTE]
    assert all(call.usage.cache_read > 0.99 * call.tokens for call in reads)
    # What the model is shown is the same, and the request after the pause reads what it would have written.
    assert [call.tokens for call in turns] == [call.tokens for call in plain.calls]
    assert (plain.calls[62].usage.cache_read, turns[62].usage.cache_read > 0.9 * turns[62].tokens) == (0, True)


@pytest.mark.parametrize(
    ("settings", "cache", "jobs"),
    [
        ({}, CacheChoice("auto", 0.01), ()),
        ({"PAL_CACHE_TTL": "1H"}, CacheChoice("1h", 0.01), ()),
        ({"PAL_KEEP_ALIVE": "on", "PAL_CACHE_TTL": "5m"}, CacheChoice("5m", 0.05), (KeepAlive(),)),
    ],
)
@pytest.mark.parametrize("name", ["lossless", "palimpsest"])
def test_lifetime_and_keep_alive_are_settings(name: str, settings: dict[str, str], cache: CacheChoice, jobs: tuple[KeepAlive, ...]) -> None:
    found = profile(name, settings)
    assert (found.cache, found.jobs) == (cache, jobs)


def test_another_lifetime_is_refused_in_one_line() -> None:
    with pytest.raises(BadInput, match="PAL_CACHE_TTL is '2h'; it can be auto, 5m, 1h"):
        profile("lossless", {"PAL_CACHE_TTL": "2h"})


def test_a_fixed_lifetime_holds_whatever_the_replay_is_told() -> None:
    outcome = replay(_with_pauses(20, 20), profile("lossless", {"PAL_CACHE_TTL": "1h"}), SONNET, ttl="5m")
    assert sum(call.usage.cache_write for call in outcome.calls) == 0
    assert outcome.calls[-1].usage.cache_read > 0


def _ratios(recording: RecordedSession, model: ModelCard) -> Iterator[tuple[str, float]]:
    """What a session costs in relation to the same session under `none`."""
    index = RecordingIndex(recording.steps)
    for ttl in ("5m", "1h") if model.cache == "breakpoints" else ("5m",):
        plain = replay(recording, profile("none"), model, ttl=ttl, index=index).cost.total
        for switch in ("off", "on"):
            cost = replay(recording, profile("lossless", {"PAL_KEEP_ALIVE": switch}), model, ttl=ttl, index=index).cost.total
            yield f"{ttl} {switch}", cost / plain if plain else 1.0


def _assert_bounded(loaded: LoadedSession) -> None:
    ratios = dict(_ratios(loaded.recording, own_card(loaded).card))
    assert {name: ratio for name, ratio in ratios.items() if ratio > (1.01 if name.endswith("off") else 1.05)} == {}, loaded.source


def test_no_synthetic_session_costs_more_than_its_share() -> None:
    with synthetic_session(3, 40_000, MemorySessions()) as log:
        _assert_bounded(load_log(log, MemoryBlobs(), "made up", "made up"))


def test_no_session_of_the_golden_ones_costs_more_than_its_share() -> None:
    for loaded in load_all([GOLDEN / "claude"]):
        _assert_bounded(loaded)


@pytest.mark.long
def test_no_recorded_session_costs_more_than_its_share() -> None:
    for loaded in load_all([CORPUS]):
        _assert_bounded(loaded)
