"""A model that forgets a tool is reminded of it."""

from workplace import offline, say, use, work

from palimpsest.core.items import text_of
from palimpsest.core.tokens.budget import Budget
from palimpsest.engine.policies import run_policies
from palimpsest.engine.session import Session
from palimpsest.policies.notices import Remind
from palimpsest.profiles.profile import Profile
from palimpsest.wire.encode import encode
from palimpsest.wire.models.cards import card
from palimpsest.wire.rules.check import check_request

PROFILE = Profile("test", (Remind(),), lambda card: Budget(card.window))
TEXT = "<reminder>Update your todos.</reminder>"


def rounds(session: Session, *tools: str) -> list[int]:
    """How many reminders show after each round."""
    counts: list[int] = []
    for number, tool in enumerate(tools):
        use(session, f"{tool}{number}", tool, "{}", "done")
        offline(session, run_policies(session, "before_call"))
        counts.append(sum(item.kind == "reminder" for item in session.log.view.items))
    return counts


def started() -> Session:
    session = work(PROFILE)
    say(session, "build it")
    return session


def test_after_three_rounds_without_the_tool_a_reminder_stands_before_the_results_and_again_after_the_fourth() -> None:
    session = started()
    assert rounds(session, "bash", "bash", "bash", "bash") == [0, 0, 1, 2]
    items = session.log.view.items
    assert [item.kind for item in items[-3:]] == ["call", "reminder", "result"]
    assert text_of(items[-2].content) == TEXT


def test_a_round_with_the_tool_resets_the_count() -> None:
    assert rounds(started(), "bash", "bash", "todo", "bash", "bash", "bash") == [0, 0, 0, 0, 0, 1]


def test_a_second_run_in_the_same_round_adds_no_reminder() -> None:
    session = started()
    rounds(session, "bash", "bash", "bash")
    assert offline(session, run_policies(session, "before_call")).events == ()


def test_a_reminder_between_call_and_result_is_sent_as_every_provider_wants_it() -> None:
    session = started()
    rounds(session, "bash", "bash", "bash")
    for model in ("claude-sonnet-4-5", "gpt-5.5", "openai-compatible/x"):
        request = encode(session.log.view, card(model))
        assert check_request(request.wire, request.body) == ()
        assert TEXT.encode() in request.body
