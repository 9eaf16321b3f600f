"""The levels of the profiles of Claude Code, to the token, every setting that moves them, and a recorded session."""

import json
from collections.abc import Mapping

import pytest
from claude_work import MEASURED, SONNET, SUMMARY, claude, edits, fill
from corpus import golden
from msgspec.structs import replace
from readings import Home
from workplace import START, online, say

from palimpsest.agent.calls import call
from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Environment, Session, inline
from palimpsest.core.budget import Budget
from palimpsest.core.errors import PromptTooLong
from palimpsest.core.events import UserSaid, ViewEdited
from palimpsest.core.log import Log
from palimpsest.core.view import View
from palimpsest.exchange.claude.reader import ClaudeFormat
from palimpsest.peers.claude_code import claude_code_2_1_325
from palimpsest.policies.named import profile
from palimpsest.providers.retrying import NO_RETRIES
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.in_memory import FixedClock
from palimpsest.wire.models import card


def budget(name: str = "claude-code", **settings: str) -> Budget:
    return profile(name, settings).budget(SONNET)


def folds(used: int, name: str = "claude-code", settings: Mapping[str, str] | None = None) -> bool:
    session = fill(claude(name, settings), used)
    assert session.used == used
    return online(session, run_policies(session, "before_call"), Scripted(SUMMARY)).folded


@pytest.mark.states("CC-01")
def test_compaction_is_due_at_155000_used_of_200000_and_not_at_154999() -> None:
    assert budget().compact_at == 155_000
    assert folds(155_000)
    assert not folds(154_999)


def warned(session: Session) -> tuple[str, ...]:
    return online(session, run_policies(session, "after_call"), Scripted()).notices


@pytest.mark.states("CC-02")
def test_warn_and_error_levels_are_135000_with_auto_compact_on_and_148000_with_it_off() -> None:
    assert (budget().warn_at, budget().error_at, budget().clear_at) == (135_000, 135_000, 135_000)
    off = budget(DISABLE_AUTO_COMPACT="1")
    assert (off.warn_at, off.error_at, off.compact_at) == (148_000, 148_000, None)
    assert warned(fill(claude(), 134_999)) == ()
    assert warned(fill(claude(), 135_000)) == ("Context left until auto-compact: 12%",)
    assert warned(fill(claude(), 156_000)) == ("Context left until auto-compact: 0%",)
    assert warned(fill(claude(settings={"DISABLE_AUTO_COMPACT": "1"}), 147_999)) == ()
    assert warned(fill(claude(settings={"DISABLE_AUTO_COMPACT": "1"}), 148_000)) == ("Context left: 24%; compact to continue",)


@pytest.mark.parametrize(("name", "level"), [("claude-code", 197_000), (MEASURED, 177_000)])
@pytest.mark.states("CC-03")
def test_with_auto_compact_off_no_call_is_sent_from_the_block_level_on_and_the_turn_ends_with_a_too_long_error(
    name: str, level: int
) -> None:
    off = {"DISABLE_AUTO_COMPACT": "1"}
    provider = Scripted("never said")
    session = fill(claude(name, off), level)
    with pytest.raises(PromptTooLong, match="prompt is too long"):
        online(session, call(session), provider)
    assert provider.requests == []
    session = fill(claude(name, off), level - 1)
    online(session, call(session), provider)
    assert len(provider.requests) == 1


@pytest.mark.parametrize("name", ["claude-code", MEASURED])
@pytest.mark.states("CC-03")
def test_the_blocking_override_moves_only_this(name: str) -> None:
    assert budget(name, CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE="150000") == replace(budget(name), block_at=150_000)
    assert budget(name, CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE="soon") == budget(name)
    assert budget(name, CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE="-5") == budget(name)


@pytest.mark.states("CC-03")
def test_with_auto_compact_on_compaction_comes_first() -> None:
    session = fill(claude(), 198_000)
    provider = Scripted(SUMMARY, "on it")
    online(session, call(session), provider)
    assert len(provider.requests) == 2


@pytest.mark.states("CC-04")
def test_a_max_output_of_8000_moves_the_trigger_to_179000_and_one_of_64000_to_123000() -> None:
    assert budget(CLAUDE_CODE_MAX_OUTPUT_TOKENS="8000").compact_at == 179_000
    assert budget(CLAUDE_CODE_MAX_OUTPUT_TOKENS="64000").compact_at == 123_000
    assert folds(123_000, settings={"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "64000"})
    assert not folds(178_999, settings={"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "8000"})
    assert profile("claude-code", {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "8000"}).params.max_tokens == 8_000


@pytest.mark.states("CC-05")
def test_a_percent_override_of_50_moves_the_trigger_to_84000_and_0_and_101_are_ignored() -> None:
    assert budget(CLAUDE_AUTOCOMPACT_PCT_OVERRIDE="50").compact_at == 84_000
    assert budget(CLAUDE_AUTOCOMPACT_PCT_OVERRIDE="0").compact_at == 155_000
    assert budget(CLAUDE_AUTOCOMPACT_PCT_OVERRIDE="101").compact_at == 155_000
    assert budget(CLAUDE_AUTOCOMPACT_PCT_OVERRIDE="half").compact_at == 155_000
    assert budget(CLAUDE_AUTOCOMPACT_PCT_OVERRIDE="100").compact_at == 155_000
    assert folds(84_000, settings={"CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "50"})


@pytest.mark.parametrize("name", ["claude-code", MEASURED])
@pytest.mark.states("CC-06")
def test_disabling_auto_compact_leaves_the_asked_compaction_and_disabling_compact_removes_both(name: str) -> None:
    auto_off, off = {"DISABLE_AUTO_COMPACT": "true"}, {"DISABLE_COMPACT": "1"}
    assert not folds(170_000, name, auto_off)
    assert not folds(170_000, name, off)
    session = fill(claude(name, auto_off), 50_000)
    assert online(session, run_policies(session, "asked"), Scripted(SUMMARY)).folded
    session = fill(claude(name, off), 50_000)
    provider = Scripted(SUMMARY)
    assert not online(session, run_policies(session, "asked"), provider).folded
    assert provider.requests == []
    assert folds(170_000, name, {"DISABLE_COMPACT": "0"})


def test_disabling_compact_leaves_the_masks_and_disabling_microcompact_takes_those_by_size() -> None:
    names = [policy.name for policy in profile("claude-code", {"DISABLE_COMPACT": "1"}).policies]
    assert names[:3] == ["clear_idle", "clear_results", "swap_notes"]
    names = [policy.name for policy in profile("claude-code", {"DISABLE_MICROCOMPACT": "1"}).policies]
    assert names[:2] == ["clear_idle", "swap_notes"]
    names = [policy.name for policy in profile("claude-code", {"cached_microcompact": "on"}).policies]
    assert names[:3] == ["clear_idle", "clear_cached", "clear_results"]


@pytest.mark.parametrize(
    ("settings", "level"),
    [
        ({}, 167_000),
        ({"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "8000"}, 179_000),
        ({"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "64000"}, 167_000),
        ({"CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "50"}, 90_000),
        ({"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "100000"}, 67_000),
    ],
)
@pytest.mark.states("CC-10")
def test_the_trigger_and_what_moves_it(settings: Mapping[str, str], level: int) -> None:
    assert budget(MEASURED, **settings).compact_at == level
    assert folds(level, MEASURED, settings)
    assert not folds(level - 1, MEASURED, settings)


@pytest.mark.states("CC-10")
def test_block_is_177000() -> None:
    for settings in ({}, {"DISABLE_COMPACT": "1"}, {"DISABLE_AUTO_COMPACT": "1"}):
        assert budget(MEASURED, **settings).block_at == 177_000


def test_the_measured_program_compacts_by_itself_only_for_some_models_and_ours_does_for_all() -> None:
    strict = claude_code_2_1_325({"proactive": "measured"})
    assert strict.budget(card("claude-sonnet-4-6")).compact_at == 167_000
    assert strict.budget(card("claude-sonnet-4-5")).compact_at is None
    windowed = claude_code_2_1_325({"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "100000", "proactive": "measured"})
    assert windowed.budget(card("claude-sonnet-4-5")).compact_at == 67_000
    assert claude_code_2_1_325({}).budget(card("claude-sonnet-4-5")).compact_at == 167_000


def test_without_a_report_a_third_more_than_the_estimate_counts() -> None:
    session = claude()
    say(session, "x" * 4_000)
    assert session.used == 1_334


@pytest.mark.parametrize(("name", "level"), [("claude-code", 178_808), (MEASURED, 178_808)])
def test_a_model_that_writes_less_at_once_reserves_less_and_is_asked_for_no_more(name: str, level: int) -> None:
    small = card("claude-3-5-sonnet")
    session = fill(claude(name, model=small), 150_000)
    assert session.budget.compact_at == level
    provider = Scripted(SUMMARY, "on it")
    online(session, run_policies(session, "asked"), provider)
    online(session, call(session), provider)
    assert [json.loads(request.body)["max_tokens"] for request in provider.requests] == [8_192, 8_192]


CONVERSATION_KINDS = frozenset({"user", "assistant", "thinking", "call", "result"})
CASES = [
    ("claude/2.1.19/projects/*/c5073ae2*.jsonl", "claude-code", [160_010, 160_010]),
    ("claude/2.1.325/projects/*/69901b92*.jsonl", MEASURED, [172_051, 172_051]),
]


def conversation_ids(view: View) -> list[str]:
    """Return the ids of visible conversation items; stated context is left out, because other events state it again."""
    return [item.id for item in view.items if item.kind in CONVERSATION_KINDS]


@pytest.mark.parametrize(("pattern", "name", "counted"), CASES)
def test_a_recorded_session_is_compacted_where_the_real_program_did_it_and_the_same_stays(
    pattern: str, name: str, counted: list[int]
) -> None:
    (path,) = golden(pattern)
    home = Home()
    log = Log.open(home.store, home.take(ClaudeFormat(), path)[0].session, FixedClock(START))
    events = list(log.events())
    real = [(event.seq, event.body) for event in events if isinstance(event.body, ViewEdited)]
    assert [body.tokens_before for _, body in real] == counted
    for number, (seq, body) in enumerate(real):
        prompt = max(event.seq for event in events[:seq] if isinstance(event.body, UserSaid))
        environment = Environment(home.store, home.blobs, FixedClock(START), offload=inline, retries=NO_RETRIES)
        session = Session(log.fork(home.store, f"{name}-{number}", prompt), profile(name), card("claude-sonnet-4-6"), environment)
        assert abs(session.used - body.tokens_before) <= 25
        before = conversation_ids(session.log.view)
        assert online(session, run_policies(session, "before_call"), Scripted(SUMMARY)).folded
        assert [edit.by for edit in edits(session)][-2:] == ["summarize", "restore"]
        assert conversation_ids(session.log.view) == conversation_ids(log.state_at(seq).view)
        assert len(conversation_ids(session.log.view)) < len(before)


def test_a_recorded_session_that_was_compacted_on_demand_keeps_its_last_reply() -> None:
    (path,) = golden("claude/2.1.325-interactive/projects/*/*.jsonl")
    home = Home()
    log = Log.open(home.store, home.take(ClaudeFormat(), path)[0].session, FixedClock(START))
    (seq,) = [event.seq for event in log.events() if isinstance(event.body, ViewEdited)]
    environment = Environment(home.store, home.blobs, FixedClock(START), offload=inline, retries=NO_RETRIES)
    session = Session(log.fork(home.store, "asked", seq - 1), profile(MEASURED), card("claude-sonnet-4-6"), environment)
    assert online(session, run_policies(session, "asked"), Scripted(SUMMARY)).folded
    assert conversation_ids(session.log.view) == conversation_ids(log.state_at(seq).view)
