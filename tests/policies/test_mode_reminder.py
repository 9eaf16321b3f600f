"""The reminders of plan mode stand beside the newest user message, and never inside it."""

from workplace import offline, reply, say, use, work

from palimpsest.core.events import ModeChanged, UserSaid
from palimpsest.core.items import Text, text_of
from palimpsest.core.view import shown
from palimpsest.engine.policies import run_policies
from palimpsest.engine.session import Session
from palimpsest.policies.prompt import prompt
from palimpsest.profiles.named import profile

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


def test_oc_37_the_plan_reminder_stands_with_the_last_user_item_of_every_call_and_never_inside_it() -> None:
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


def test_oc_37_the_build_reminder_comes_only_if_a_reply_of_plan_is_in_view_and_the_agent_is_build() -> None:
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


def test_oc_37_without_a_reply_of_plan_build_mode_is_not_reminded() -> None:
    for name in ("opencode", "opencode-1.18"):
        session = in_mode("build", name)
        say(session, "do it")
        assert before_call(session) == ["do it"]
    unanswered = in_mode("plan")
    say(unanswered, "think")
    before_call(unanswered)
    unanswered.log.append(ModeChanged("build"))
    assert before_call(unanswered) == ["think"]


def test_oc_38_the_frame_of_a_message_sent_during_a_turn_holds_it_unchanged() -> None:
    text = "stop\n\nuse {{braces}} 停"

    framed = prompt("opencode/steering", text=text)
    assert framed.startswith("<system-reminder>\n")
    assert framed.endswith("\n</system-reminder>")
    assert f"\n{text}\n" in framed
