"""When a hand-over is due, to the token."""

from collections.abc import Mapping

import pytest
from codex_work import BOTH, GPT, NO_SETTINGS, OTHER, SMALL, SONNET, codex_session, state, turn
from workplace import offline, online, reply, say

from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Session
from palimpsest.core.events import Failed, ToolReturned, Usage, ViewEdited
from palimpsest.core.items import Text, ToolCall, ToolResult
from palimpsest.core.plans import Moment
from palimpsest.providers.scripted import Scripted
from palimpsest.wire.models import ModelCard


def filled(name: str, tokens: int, model: ModelCard = OTHER, settings: Mapping[str, str] = NO_SETTINGS) -> Session:
    """A session whose last reply reported that many tokens."""
    session = codex_session(name, model, settings)
    turn(session, "ask", 1, usage=Usage(input=tokens - 100, output=100))
    return session


def folds(session: Session, moment: Moment = "turn_starts", incoming: int = 0) -> bool:
    return online(session, run_policies(session, moment, incoming=incoming), Scripted("the summary")).folded


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("CX-21")
def test_the_profile_compacts_at_nine_tenths_of_the_window_reached_with_its_own_number(name: str) -> None:
    for model, level in ((OTHER, 180_000), (SONNET, 180_000), (SMALL, 90_000)):
        assert codex_session(name, model).budget.compact_at == level
        assert not folds(filled(name, level - 1, model))
        assert folds(filled(name, level, model))
    assert codex_session(name, GPT).budget.compact_at == 244_800


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("CX-21")
def test_a_limit_lowers_the_level_and_is_clamped(name: str) -> None:
    for limit, level in (("50_000", 50_000), ("195000", 180_000)):
        assert not folds(filled(name, level - 1, settings={"model_auto_compact_token_limit": limit}))
        assert folds(filled(name, level, settings={"model_auto_compact_token_limit": limit}))


@pytest.mark.states("CX-21")
def test_another_window_moves_the_level_and_the_newer_version_clamps_it_to_the_card() -> None:
    assert codex_session("codex", settings={"model_context_window": "400000"}).budget.compact_at == 360_000
    assert codex_session("codex-0.166", settings={"model_context_window": "400000"}).budget.compact_at == 180_000
    assert codex_session("codex-0.166", settings={"model_context_window": "100000"}).budget.compact_at == 90_000


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("CX-21")
def test_within_a_turn_what_was_added_since_the_report_counts(name: str) -> None:
    for reported, due in ((179_970, False), (179_971, True)):
        session = codex_session(name)
        turn(session, "ask", 1)
        say(session, "go on")
        reply(session, ToolCall("call_0123456", "shell", "{}"), usage=Usage(input=reported - 50, output=50))
        # The result costs 29 tokens as it stands on the wire.
        session.log.append(ToolReturned(ToolResult("call_0123456", (Text("0123456789" * 4 + "01234567"),)), tool="shell"))
        assert session.used == reported + 29
        assert folds(session, "before_call") is due


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.states("CX-23")
def test_the_incoming_message_and_pending_context_count_before_the_turn(name: str) -> None:
    assert not folds(filled(name, 179_000), incoming=999)
    assert folds(filled(name, 179_000), incoming=1_000)


def test_a_reply_that_ends_the_turn_does_not_fold_and_a_full_window_folds_before_the_first_call() -> None:
    session = filled("codex", 185_000)
    assert not folds(session, "after_call")
    say(session, "next")
    assert not folds(session, "before_call")
    session = filled("codex", 190_000)
    say(session, "next")
    assert folds(session, "before_call")


@pytest.mark.parametrize("name", BOTH)
def test_a_request_that_was_too_long_makes_the_next_turn_fold_first_also_after_a_restart(name: str) -> None:
    session = filled(name, 1_000)
    session.log.append(Failed("call", "too_long", "too long"))
    session.close()
    again = Session.resume("s", session.profile, session.card, session.environment)
    assert folds(again)
    assert not folds(again)


def test_only_what_came_after_the_prefix_counts_where_the_settings_say_so() -> None:
    scope = {"model_auto_compact_token_limit": "50000", "model_auto_compact_token_limit_scope": "body_after_prefix"}
    for prefix, level in ((20_000, 70_000), (150_000, 190_000)):
        for tokens, due in ((level - 1, False), (level, True)):
            session = codex_session("codex-0.166", settings=scope)
            say(session, "ask")
            reply(session, Text("x" * 4_000, "assistant"), usage=Usage(input=prefix, output=10))
            reply(session, Text("done", "assistant"), usage=Usage(input=tokens - 10, output=10))
            assert folds(session) is due


def test_without_a_model_the_fallback_folds_at_the_same_level() -> None:
    for name in BOTH:
        session = filled(name, 180_000)
        state(session)
        for number in range(2, 20):
            turn(session, f"ask {number}", number, size=40_000)
        say(session, "go on")
        reply(session, Text("done", "assistant"), usage=Usage(input=180_000))
        ran = offline(session, run_policies(session, "turn_starts"))
        assert [body.by for event in ran.edited if isinstance(body := event.body, ViewEdited)] == ["fold without a model"]
