from collections import Counter
from itertools import islice
from random import Random

import pytest

from pal.replay.outcome import Figures, figures
from pal.replay.probes import ProbedSession
from pal.replay.recording import LoadedSession, RecordingIndex, load_log
from pal.replay.replay import replay
from pal_lab.cost.tuning import SessionStatistics, StatisticsCollector
from palimpsest.audit.tool_calls import action_of
from palimpsest.core.events import CallStarted, ContextStated, ModelReplied, ToolReturned, TurnEnded, UserSaid
from palimpsest.core.items import ToolCall, unanswered_calls
from palimpsest.core.lines import encode_body
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.tokens import palimpsest_size
from palimpsest.policies.named import profile
from palimpsest.stores.in_memory import MemoryBlobs, MemorySessions
from palimpsest.testing.synthetic import (
    CALL_SHARES,
    QUANTILES,
    RESULT_TOKENS,
    START,
    generate_events,
    sample,
    sample_tool_class,
    synthetic_session,
)
from palimpsest.wire.models import card


@pytest.fixture(scope="module")
def shape() -> SessionStatistics:
    tally = StatisticsCollector()
    for seed in range(1, 13):
        tally.take(synthetic_session(seed, 60_000, MemorySessions()).events())
    return tally.statistics()


def test_a_seed_always_tells_the_same_story_and_another_seed_another() -> None:
    once, again, other = ([(at, encode_body(body)) for at, body in islice(generate_events(seed), 300)] for seed in (7, 7, 8))
    assert once == again
    assert once != other


def test_a_session_has_the_length_that_was_asked_for_and_ends_with_a_turn() -> None:
    log = synthetic_session(2, 90_000, MemorySessions())
    assert TokenCounter(palimpsest_size).total(log.view) >= 90_000
    assert isinstance(log.event(log.tip).body, TurnEnded)
    assert unanswered_calls(log.view.items) == ()
    assert log.opened.session == "made-up-2"


def test_a_short_session_is_the_beginning_of_a_longer_one() -> None:
    short, long = (
        [encode_body(event.body) for event in synthetic_session(5, tokens, MemorySessions(), "s").events()] for tokens in (20_000, 80_000)
    )
    assert long[: len(short)] == short


def test_time_goes_on_and_every_reply_answers_its_request_with_usage() -> None:
    events = list(synthetic_session(4, 60_000, MemorySessions()).events())
    times = [event.at for event in events]
    assert times == sorted(times)
    assert times[0] == START
    requests = {event.seq for event in events if isinstance(event.body, CallStarted)}
    replies = [event.body for event in events if isinstance(event.body, ModelReplied)]
    assert [body.call for body in replies] == sorted(requests)
    assert all(body.usage.prompt > 0 and body.usage.output > 0 for body in replies)
    assert 0 < sum(body.usage.cache_read == 0 for body in replies) < len(replies) / 2


def test_tools_are_called_as_often_as_in_recorded_sessions(shape: SessionStatistics) -> None:
    for kind in ("command", "read", "edit"):
        assert abs(shape.figures[f"{kind}, of all calls %"] - CALL_SHARES[kind]) < 6


def test_sizes_turns_and_pauses_are_those_of_recorded_sessions(shape: SessionStatistics) -> None:
    limits = {
        "tokens, results %": (65, 85),
        "tokens, calls %": (8, 20),
        "read, tokens, median": (400, 1_000),
        "command, tokens, median": (80, 200),
        "replies a turn, median": (4, 14),
        "user away, minutes, median": (0.5, 5),
        "commands that fail %": (4, 14),
        "reads of a file read before %": (25, 55),
        "edits of a file read or edited before %": (50, 85),
        "results named later %": (55, 85),
    }
    assert {name: low <= shape.figures[name] <= high for name, (low, high) in limits.items()} == dict.fromkeys(limits, True)


def test_an_edit_changes_what_the_next_read_of_the_file_shows() -> None:
    content: dict[str, str] = {}
    calls: dict[str, ToolCall] = {}
    seen = 0
    for event in synthetic_session(6, 400_000, MemorySessions()).events():
        body = event.body
        if isinstance(body, ModelReplied):
            calls |= {part.call_id: part for part in body.parts if isinstance(part, ToolCall)}
        elif isinstance(body, ToolReturned) and not body.result.error:
            call = calls[body.result.call_id]
            action = action_of(call)
            if action.kind == "edit":
                new = call.args.partition('"new_string":"')[2].rpartition('"')[0]
                content[action.paths[0].path] = new.split("\\n")[0]
            elif action.kind == "read" and action.paths[0].whole and action.paths[0].path in content:
                text = encode_body(body).decode()
                seen += content.pop(action.paths[0].path) in text
    assert seen >= 2


def test_a_failing_test_is_run_again_until_it_passes() -> None:
    codes: dict[str, list[int]] = {}
    for event in synthetic_session(3, 300_000, MemorySessions()).events():
        if isinstance(event.body, ToolReturned) and event.body.exit is not None:
            codes.setdefault(event.body.tool, []).append(event.body.exit)
    assert Counter(codes["Bash"]).keys() == {0, 1}


def test_synthetic_sessions_have_probes_of_every_kind() -> None:
    found = Counter(
        probe.kind for seed in (1, 2, 3) for probe in ProbedSession(synthetic_session(seed, 120_000, MemorySessions()).events()).probes
    )
    assert set(found) == {"asked", "edited", "commands", "tests", "values", "open", "concluded", "next"}
    assert found["values"] > 5


def test_some_users_write_chinese_and_the_world_is_stated_now_and_then() -> None:
    stories = [list(islice(generate_events(seed), 400)) for seed in range(12)]
    said = [encode_body(body).decode() for facts in stories for _, body in facts if isinstance(body, UserSaid)]
    assert 0 < sum(any("\u4e00" <= sign <= "\u9fff" for sign in text) for text in said) < len(said) / 3
    assert all(isinstance(facts[0].body, ContextStated) for facts in stories)
    assert any(isinstance(body, ContextStated) for facts in stories for _, body in facts[1:])


def test_numbers_are_drawn_as_their_quantiles_say() -> None:
    random = Random(1)
    values = sorted(sample(random, RESULT_TOKENS["command"]) for _ in range(4_000))
    for place, quantile in zip(QUANTILES[1:-1], RESULT_TOKENS["command"][1:-1], strict=True):
        assert values[int(place * len(values))] == pytest.approx(quantile, rel=0.25)
    kinds = Counter(sample_tool_class(random) for _ in range(4_000))
    assert kinds["command"] / 4_000 == pytest.approx(0.672, abs=0.03)


SONNET = card("claude-sonnet-4-5", window=200_000)


@pytest.fixture(scope="module")
def taken() -> LoadedSession:
    with synthetic_session(3, 170_000, MemorySessions()) as log:
        return load_log(log, MemoryBlobs(), "made up", "made up")


@pytest.fixture(scope="module")
def reported(taken: LoadedSession) -> dict[str, Figures]:
    index = RecordingIndex(taken.recording.steps)
    return {
        name: figures([replay(taken.recording, profile(name), SONNET, index=index)])
        for name in ("palimpsest", "claude-code-2.1.325", "none")
    }


def test_a_synthetic_session_is_counted_as_its_own_usage_says(taken: LoadedSession) -> None:
    assert taken.recording.calibration.factor == pytest.approx(1.33, rel=0.02)
    assert taken.recording.calibration.unseen < 2_000


def test_policies_find_in_synthetic_sessions_what_they_find_in_real_ones(reported: dict[str, Figures]) -> None:
    ours, theirs, unedited = reported["palimpsest"], reported["claude-code-2.1.325"], reported["none"]
    assert (ours.folds > 0, ours.masks > 0, theirs.folds > 0, unedited.folds) == (True, True, True, 0)
    assert (ours.rereads > 0, theirs.rereads > 0, unedited.rereads) == (True, True, 0)
    assert ours.usd < theirs.usd < unedited.usd
    assert [each.invalid for each in reported.values()] == [0, 0, 0]


def test_most_of_a_synthetic_session_is_read_from_the_cache_as_in_real_ones(reported: dict[str, Figures]) -> None:
    unedited = reported["none"]
    assert 0.7 < unedited.cache_read / unedited.tokens_in < 0.99
