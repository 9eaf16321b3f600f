"""The todo list: what it accepts, how it reads, and that it lives in the log."""

import asyncio
import json

import pytest
from msgspec import Raw
from workplace import offline, online, reply, say, use, work

from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Session
from palimpsest.agent.tool import ToolOutput
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.tools.tasks import TodoItem, todo_list, todo_tool
from palimpsest.core.budget import Budget
from palimpsest.core.events import TaskChanged, ToolReturned
from palimpsest.core.items import ToolCall, ToolResult, text_of
from palimpsest.peers.classroom import classroom
from palimpsest.policies.notices import Remind
from palimpsest.policies.profile import Profile
from palimpsest.providers.scripted import Scripted

PROFILE = Profile("test", (Remind(),), lambda card: Budget(card.window))
LIST = (TodoItem("1", "read", "completed"), TodoItem("2", "write", "in_progress"), TodoItem("3", "test"))


@pytest.fixture
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("project"))


def todo(workspace: Workspace, *items: object) -> ToolOutput:
    return asyncio.run(todo_tool().run(json.dumps({"items": items}), workspace))


def recorded(session: Session, workspace: Workspace, call_id: str, *items: object) -> None:
    """A round in which the model calls the tool, recorded as the loop does it."""
    arguments = json.dumps({"items": items})
    reply(session, ToolCall(call_id, "todo", arguments))
    output = asyncio.run(todo_tool().run(arguments, workspace))
    for event in output.events:
        session.log.append(event)
    session.log.append(ToolReturned(ToolResult(call_id, output.contents(), output.error), tool="todo"))


def reminders(session: Session) -> int:
    offline(session, run_policies(session, "before_call"))
    return sum(item.kind == "reminder" for item in session.log.view.items)


@pytest.mark.states("CL-20")
def test_two_items_in_progress_are_an_error_and_change_nothing(workspace: Workspace) -> None:
    two = [{"id": name, "text": name, "status": "in_progress"} for name in "ab"]
    assert todo(workspace, *two) == ToolOutput("Only one task can be in_progress", error=True)
    session = work(PROFILE)
    recorded(session, workspace, "c1", {"id": "1", "text": "read"})
    recorded(session, workspace, "c2", *two)
    assert todo_list(session.log.events()) == (TodoItem("1", "read"),)


@pytest.mark.states("CL-21")
def test_an_item_without_status_is_pending_and_an_unknown_status_is_an_error(workspace: Workspace) -> None:
    state = Raw(b'[{"id":"1","text":"read","status":"pending"}]')
    assert todo(workspace, {"id": "1", "text": "read"}) == ToolOutput(
        "[ ] read\n0/1 done", events=(TaskChanged("todos", "replaced", state),)
    )
    output = todo(workspace, {"id": "1", "text": "read", "status": "doing"})
    assert (output.error, output.events) == (True, ())
    assert output.text.startswith("The arguments of todo are not valid: Invalid enum value 'doing'")


@pytest.mark.states("CL-22")
def test_the_list_is_rendered_with_marks_in_the_given_order(workspace: Workspace) -> None:
    items = [{"id": "1", "text": "read", "status": "completed"}, {"id": "2", "text": "write", "status": "in_progress"}]
    assert todo(workspace, *items, {"id": "3", "text": "test\nall"}).text == "[x] read\n[>] write\n[ ] test all\n1/3 done"


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([{"id": "1", "text": "a"}, {"id": "1", "text": "b"}], "two items have the same id; give each its own"),
        ([{"id": "1", "text": "x" * 501}], "item 1 has 501 characters; at most 500 are kept"),
        ([{"id": str(number), "text": "x"} for number in range(101)], "the list has 101 items; at most 100 are kept"),
    ],
)
def test_a_list_out_of_bounds_is_an_error(workspace: Workspace, items: list[object], said: str) -> None:
    assert todo(workspace, *items) == ToolOutput(said, error=True)


@pytest.mark.states("CL-23")
def test_the_reminder_stands_before_the_results_of_the_third_round_and_again_on_the_fourth() -> None:
    session = work(PROFILE)
    say(session, "build it")
    counts = []
    for number in range(4):
        use(session, f"c{number}", "bash", "{}", "done")
        counts.append(reminders(session))
    assert counts == [0, 0, 1, 2]
    reminder, result = session.log.view.items[-2:]
    assert (text_of(reminder.content), text_of(result.content)) == ("<reminder>Update your todos.</reminder>", "done")


@pytest.mark.parametrize("status", ["pending", "no such status"])
@pytest.mark.states("CL-24")
def test_a_round_with_todo_resets_the_counter_and_so_does_one_that_fails(workspace: Workspace, status: str) -> None:
    session = work(PROFILE)
    say(session, "build it")
    use(session, "c1", "bash", "{}", "done")
    use(session, "c2", "bash", "{}", "done")
    recorded(session, workspace, "c3", {"id": "1", "text": "read", "status": status})
    assert (reminders(session), len(todo_list(session.log.events()))) == (0, int(status == "pending"))
    use(session, "c4", "bash", "{}", "done")
    use(session, "c5", "bash", "{}", "done")
    assert reminders(session) == 0
    use(session, "c6", "bash", "{}", "done")
    assert reminders(session) == 1


@pytest.mark.states("CL-25")
def test_the_counter_survives_a_resume(workspace: Workspace) -> None:
    session = work(PROFILE)
    say(session, "build it")
    use(session, "c1", "bash", "{}", "done")
    use(session, "c2", "bash", "{}", "done")
    session.close()
    resumed = Session.resume("s", PROFILE, session.card, session.environment)
    assert reminders(resumed) == 0
    use(resumed, "c3", "bash", "{}", "done")
    assert reminders(resumed) == 1


@pytest.mark.states("CL-26")
def test_the_list_is_the_same_after_a_fold_and_after_a_resume(workspace: Workspace) -> None:
    session = work(classroom({}))
    say(session, "build it")
    items = [{"id": item.id, "text": item.text, "status": item.status} for item in LIST]
    recorded(session, workspace, "c1", *items)
    assert todo_list(session.log.events()) == LIST
    folded = online(session, run_policies(session, "asked"), Scripted("the list was made"))
    assert (folded.folded, len(session.log.view.items)) == (True, 2)
    assert todo_list(session.log.events()) == LIST
    session.close()
    resumed = Session.resume("s", classroom({}), session.card, session.environment)
    assert todo_list(resumed.log.events()) == LIST
    assert resumed.derived.evidence.value().tasks == ("write", "test")


def test_a_list_of_another_program_under_the_same_name_is_not_ours(workspace: Workspace) -> None:
    session = work(PROFILE)
    recorded(session, workspace, "c1", {"id": "1", "text": "read"})
    session.log.append(TaskChanged("todos", "replaced", Raw(b'[{"content":"theirs"}]')))
    assert todo_list(session.log.events()) == (TodoItem("1", "read"),)
