"""The classroom in the real loop: reminders of the todo list, lists and tasks that survive compactions, and the business state."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from loops import calls

from palimpsest.agent.agent import Agent
from palimpsest.agent.business import BusinessState, state_event
from palimpsest.coding.build import equip
from palimpsest.coding.settings import CodingSettings
from palimpsest.coding.tools.tasks import TodoItem, todo_list
from palimpsest.core.errors import BadInput
from palimpsest.core.events import ContextStated, Event, Rewound, TaskChanged, ToolReturned, ViewEdited
from palimpsest.core.items import Fold, Item, Put, Text, text_of
from palimpsest.providers.scripted import Scripted, ScriptedReply
from palimpsest.sources.progress import StateMachine
from palimpsest.stores.home import FolderHome

REMINDER = "<reminder>Update your todos.</reminder>"
TODO = json.dumps({"items": [{"id": "1", "text": "read", "status": "in_progress"}, {"id": "2", "text": "write"}]})
SUMMARY = "The parser works."
MACHINE = StateMachine(
    {"clarify": "the request is not clear yet", "work": "handling the request", "done": "request completed"},
    "clarify",
    {"clarify": frozenset({"work"}), "work": frozenset({"done"})},
)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "user").mkdir()
    (tmp_path / "project").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "user"))


class Classroom:
    """Sessions of a coding agent in one project; each run opens the same session again."""

    def __init__(self, folder: Path, settings: CodingSettings | None = None, profile: str = "classroom") -> None:
        self.folder = folder
        self.settings = settings or CodingSettings(sandbox="off", tools=())
        self.profile = profile
        self.session = ""
        self.items: tuple[Item, ...] = ()
        self.events: list[Event] = []

    def run(self, *replies: ScriptedReply, work: Callable[[Agent], Awaitable[None]]) -> Scripted:
        """Open the session, let it work with scripted replies, and keep its view and events."""
        provider = Scripted(*replies)

        async def opened() -> None:
            home, cwd = FolderHome(self.folder / "home"), self.folder / "project"
            async with Agent(
                "claude-sonnet-4-5", provider=provider, profile=self.profile, cwd=cwd, home=home, resume=self.session
            ) as agent:
                equip(agent, home, self.settings)
                self.session = agent.id
                await work(agent)
                self.items, self.events = agent.session.log.view.items, list(agent.session.log.events())

        asyncio.run(opened())
        return provider

    def ask(self, prompt: str, *replies: ScriptedReply) -> Scripted:
        """One turn."""

        async def work(agent: Agent) -> None:
            await agent.ask(prompt)

        return self.run(*replies, work=work)

    def results(self) -> list[tuple[str, str]]:
        """Tool and text of each result so far, errors with a mark."""
        returned = [event.body for event in self.events if isinstance(event.body, ToolReturned)]
        return [(body.tool, ("! " if body.result.error else "") + text_of(body.result)) for body in returned]


def glob(call_id: str) -> ScriptedReply:
    return calls((call_id, "glob", json.dumps({"pattern": f"{call_id}*"})))


def kinds(items: tuple[Item, ...]) -> list[str]:
    return [item.kind for item in items if item.kind in ("call", "result", "reminder")]


@pytest.mark.states("CL-23")
def test_after_three_rounds_without_todo_the_reminder_stands_before_the_results_and_again_on_the_fourth(tmp_path: Path) -> None:
    room = Classroom(tmp_path)
    provider = room.ask("go", glob("a"), glob("b"), glob("c"), glob("d"), "done")
    assert kinds(room.items) == [*["call", "result"] * 2, *["call", "reminder", "result"] * 2]
    assert [request.body.decode().count(REMINDER) for request in provider.requests] == [0, 0, 0, 1, 2]


@pytest.mark.states("CL-24")
def test_a_round_that_calls_todo_resets_the_counter_also_if_the_call_fails(tmp_path: Path) -> None:
    bad = json.dumps({"items": [{"id": name, "text": name, "status": "in_progress"} for name in "ab"]})
    for given in (TODO, bad):
        room = Classroom(tmp_path)
        provider = room.ask("go", glob("a"), glob("b"), calls(("t", "todo", given)), glob("c"), glob("d"), glob("e"), "done")
        assert [request.body.decode().count(REMINDER) for request in provider.requests] == [0, 0, 0, 0, 0, 0, 1]
    assert room.results()[2] == ("todo", "! Only one task can be in_progress")


@pytest.mark.states("CL-25")
def test_the_counter_survives_a_resume(tmp_path: Path) -> None:
    room = Classroom(tmp_path)
    room.ask("go", glob("a"), "one")
    provider = room.ask("on", glob("b"), "two")
    assert [request.body.decode().count(REMINDER) for request in provider.requests] == [0, 1]


def compacted(agent: Agent) -> Awaitable[None]:
    return agent.compact()


@pytest.mark.states("CL-26")
def test_the_todo_list_is_the_same_before_and_after_a_fold_and_after_a_resume(tmp_path: Path) -> None:
    room = Classroom(tmp_path)
    room.ask("go", calls(("t", "todo", TODO)), "done")
    expected = (TodoItem("1", "read", "in_progress"), TodoItem("2", "write", "pending"))
    assert todo_list(room.events) == expected
    room.run(SUMMARY, work=compacted)
    assert [body.by for event in room.events if isinstance(body := event.body, ViewEdited)] == ["compress"]
    assert todo_list(room.events) == expected
    room.ask("on", "done")
    assert todo_list(room.events) == expected


@pytest.mark.states("CL-40")
def test_the_task_graph_answers_its_three_questions_after_two_compactions_as_before(tmp_path: Path) -> None:
    room = Classroom(tmp_path)
    create = [calls((f"c{number}", "task_create", json.dumps({"subject": f"part {number}"}))) for number in (1, 2, 3)]
    edges = calls(("e", "task_update", '{"id":3,"add_blocked_by":[1,2]}'))
    start = calls(("s", "task_update", '{"id":1,"status":"in_progress"}'))
    questions = calls(*((f"q{group}", "task_list", json.dumps({"filter": group})) for group in ("ready", "running", "blocked")))
    room.ask("plan", *create, edges, start, questions, "planned")
    before = room.results()[-3:]
    assert [text.splitlines()[0].partition(" ")[0] for _, text in before] == ["[", "[>]", "[-]"]
    for _ in range(2):
        room.run(SUMMARY, work=compacted)
        again = calls(
            *((f"{len(room.events)}{group}", "task_list", json.dumps({"filter": group})) for group in ("ready", "running", "blocked"))
        )
        provider = room.ask("what now?", again, "that")
        assert room.results()[-3:] == before
        # Ready and running tasks are stated in the first request after the fold, without a question.
        assert "part 1" in provider.requests[0].body.decode()
        assert "part 2" in provider.requests[0].body.decode()


def states(events: list[Event]) -> list[str]:
    """The business states that were stated, in order."""
    stated = [each for event in events if isinstance(body := event.body, ContextStated) for each in (*(body.head or ()), *body.items)]
    return [each.text for each in stated if each.source.startswith("business_state")]


CLARIFY = "<business_state>clarify — the request is not clear yet</business_state>"
WORK = "<business_state>work — handling the request</business_state>"


@pytest.mark.parametrize("profile", ["classroom", "palimpsest"])
@pytest.mark.states("CL-41")
def test_the_state_is_stated_at_the_start_and_when_it_changes_and_not_otherwise_and_stands_after_a_fold(
    tmp_path: Path, profile: str
) -> None:
    room = Classroom(tmp_path, CodingSettings(sandbox="off", tools=(), states=MACHINE, model_sets_state=True), profile)
    room.ask("hello", "hi")
    room.ask("again", glob("a"), "hi")
    assert states(room.events) == [CLARIFY]
    provider = room.ask("order", calls(("s", "set_state", '{"state":"work"}')), glob("b"), "done")
    assert states(room.events) == [CLARIFY, WORK]
    # It is stated during the turn, behind the result of the call that changed it.
    assert [WORK[:22] in request.body.decode() for request in provider.requests] == [False, True, True]
    assert room.results()[-2] == ("set_state", "The state is now work — handling the request.")
    room.run(SUMMARY, work=compacted)
    after = room.ask("more", "ok").requests[0].body.decode()
    assert after.count(WORK) == 1
    assert CLARIFY not in after[after.index(WORK) :]


@pytest.mark.states("CL-42")
def test_an_unknown_state_or_a_forbidden_transition_is_an_error_and_the_stated_value_stays(tmp_path: Path) -> None:
    room = Classroom(tmp_path, CodingSettings(sandbox="off", tools=(), states=MACHINE, model_sets_state=True))
    bad = [calls((f"s{state}", "set_state", json.dumps({"state": state}))) for state in ("done", "paid")]
    room.ask("go", *bad, "done")
    assert room.results() == [
        ("set_state", "! 'clarify' cannot become 'done'; it can become work"),
        ("set_state", "! there is no state 'paid'; declared are clarify, work, done"),
    ]
    assert states(room.events) == [CLARIFY]
    assert [event for event in room.events if isinstance(event.body, TaskChanged)] == []


@pytest.mark.states("CL-43")
def test_without_the_tool_only_the_developers_code_changes_the_state(tmp_path: Path) -> None:
    room = Classroom(tmp_path, CodingSettings(sandbox="off", tools=(), states=MACHINE))
    provider = room.ask("go", calls(("s", "set_state", '{"state":"work"}')), "<business_state>work</business_state>")
    assert "set_state" not in provider.requests[0].body.decode()
    assert room.results()[0][1].startswith("! There is no tool 'set_state'.")

    async def moved(agent: Agent) -> None:
        assert agent.business is not None
        assert agent.business.current == "clarify"
        agent.business.transition("work")
        with pytest.raises(BadInput, match="'work' cannot become 'clarify'"):
            agent.business.transition("clarify")

    room.run(work=moved)
    room.ask("on", "ok")
    assert states(room.events) == [CLARIFY, WORK]


def test_the_state_is_known_after_a_fold_that_removed_its_statement_and_goes_back_with_a_rewind(tmp_path: Path) -> None:
    room = Classroom(tmp_path, CodingSettings(sandbox="off", tools=(), states=MACHINE))
    seen: list[str] = []

    async def work(agent: Agent) -> None:
        assert agent.business is not None
        await agent.ask("go")
        before = agent.session.log.tip
        agent.business.transition("work")
        await agent.ask("on")
        stated = next(item.id for item in reversed(agent.session.log.view.items) if item.source.startswith("business_state"))
        items = [item.id for item in agent.session.log.view.items]
        agent.session.log.append(ViewEdited((Fold(items[0], items[-1], (Put("summary", Text("short")),)),), by="test"))
        assert stated not in [item.id for item in agent.session.log.view.items]
        seen.append(agent.business.current)
        await agent.ask("more")
        agent.session.log.append(Rewound(before))
        seen.append(agent.business.current)

    room.run("1", "2", "3", work=work)
    assert seen == ["work", "clarify"]


def test_a_state_that_was_recorded_and_not_stated_before_a_crash_is_stated_later(tmp_path: Path) -> None:
    room = Classroom(tmp_path, CodingSettings(sandbox="off", tools=(), states=MACHINE))
    room.ask("go", "ok")

    async def crashed(agent: Agent) -> None:
        agent.session.log.append(state_event("work"))

    room.run(work=crashed)
    room.ask("on", "ok")
    assert states(room.events) == [CLARIFY, WORK]


def test_a_machine_under_a_profile_that_does_not_state_it_is_refused(tmp_path: Path) -> None:
    async def refused() -> None:
        async with Agent("claude-sonnet-4-5", provider=Scripted(), profile="codex", cwd=tmp_path) as agent:
            with pytest.raises(BadInput, match="the profile 'codex' does not state the business state"):
                BusinessState(agent.session, MACHINE)

    asyncio.run(refused())
