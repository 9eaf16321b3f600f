"""A model is reminded of a tool that it forgets, and of plan mode beside the newest user message."""

import pytest
from workplace import offline, reply, say, use, work

from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Session
from palimpsest.core.budget import Budget
from palimpsest.core.events import ModeChanged, UserSaid
from palimpsest.core.items import Text, text_of
from palimpsest.core.view import shown
from palimpsest.peers.opencode import steering_text
from palimpsest.policies.limits import prompt
from palimpsest.policies.named import profile
from palimpsest.policies.notices import Remind
from palimpsest.policies.profile import Profile
from palimpsest.wire.encode import encode
from palimpsest.wire.models import card
from palimpsest.wire.wires import check_request

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


PLAN, BUILD = prompt("opencode/plan"), prompt("opencode/build")
NAMES = {PLAN: "PLAN", BUILD: "BUILD"}


def before_call(session: Session) -> list[str]:
    """What the next request shows of the conversation."""
    offline(session, run_policies(session, "before_call"))
    contents = [content for item in session.log.view.items if (content := shown(item)) is not None]
    return [NAMES.get(text_of(content), text_of(content)) for content in contents]


def in_mode(mode: str, name: str = "opencode") -> Session:
    session = work(profile(name))
    session.log.append(ModeChanged(mode))
    return session


@pytest.mark.states("OC-37")
def test_the_plan_reminder_stands_with_the_last_user_item_of_every_call_and_never_inside_it() -> None:
    session = in_mode("plan")
    said = say(session, "think")

    assert before_call(session) == ["think", "PLAN"]
    assert before_call(session) == ["think", "PLAN"]
    use(session, "c", "Read", "{}", "text")
    assert before_call(session) == ["think", "PLAN", "Read {}", "text"]
    reply(session, Text("a plan", "assistant"))
    say(session, "more")
    assert before_call(session) == ["think", "Read {}", "text", "a plan", "more", "PLAN"]
    assert said.body == UserSaid((Text("think"),))


@pytest.mark.states("OC-37")
def test_the_build_reminder_comes_only_if_a_reply_of_plan_is_in_view_and_the_agent_is_build() -> None:
    session = in_mode("plan")
    say(session, "think")
    before_call(session)
    reply(session, Text("a plan", "assistant"))
    session.log.append(ModeChanged("build"))
    say(session, "do it")

    assert before_call(session) == ["think", "a plan", "do it", "BUILD"]
    assert before_call(session) == ["think", "a plan", "do it", "BUILD"]
    session.log.append(ModeChanged("review"))
    assert before_call(session) == ["think", "a plan", "do it"]


@pytest.mark.states("OC-37")
def test_without_a_reply_of_plan_build_mode_is_not_reminded() -> None:
    for name in ("opencode", "opencode-1.18"):
        session = in_mode("build", name)
        say(session, "do it")
        assert before_call(session) == ["do it"]
    unanswered = in_mode("plan")
    say(unanswered, "think")
    before_call(unanswered)
    unanswered.log.append(ModeChanged("build"))
    assert before_call(unanswered) == ["think"]


@pytest.mark.states("OC-38")
def test_the_frame_of_a_message_sent_during_a_turn_holds_it_unchanged() -> None:
    text = "stop\n\nuse {{braces}} 停"

    framed = steering_text(text)
    assert framed.startswith("<system-reminder>\n")
    assert framed.endswith("\n</system-reminder>")
    assert f"\n{text}\n" in framed
