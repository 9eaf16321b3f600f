"""Commands about work beside the conversation: tasks, sub-agents and processes, each with its details."""

import json
from collections.abc import Iterable
from typing import Final

from palimpsest.apps.shown_text import plain
from palimpsest.apps.terminal.choosing import Row
from palimpsest.apps.terminal.commands.command import CommandRoom, SlashCommand, agent_of, table
from palimpsest.core.errors import BadInput
from palimpsest.core.events import ProcessEnded, ProcessStarted
from palimpsest.core.format.texts import cost_text
from palimpsest.core.log.log import Log
from palimpsest.core.projections.children import ChildRecord
from palimpsest.engine.agent import Agent
from palimpsest.engine.loop.limits import Spent
from palimpsest.tools.tool import ToolError

_TASK_LIST, _TASK = "task_list", "task_get"
_MOST_PROCESSES: Final = 200
_SECOND_MS: Final = 1_000
# Lines of an output that are shown, and characters of its end below the list.
_MOST_LINES: Final = 1_000
_PREVIEW: Final = 400


async def _tasks(room: CommandRoom, argument: str) -> None:
    """Walk all tasks; Enter shows one in full."""
    agent = agent_of(room)
    if argument:
        room.write(await _asked(agent, _TASK, {"id": _number(argument)}))
        return
    lines = (await _asked(agent, _TASK_LIST, {})).splitlines()
    rows = [Row(number, line) for line in lines if (number := _task_number(line))]
    if not rows:
        room.notice("there are no tasks")
        return
    at = ""
    while (chosen := await room.walk("Tasks", rows, {}, at)) is not None:
        at = chosen.row.value
        room.write(await _asked(agent, _TASK, {"id": int(at)}))


def _task_number(line: str) -> str:
    """The number in a line about a task: a mark, the number and the subject; empty if it is another line."""
    words = line.replace("[ ]", "[]").split()
    return words[1] if len(words) > 1 and words[1].isdecimal() else ""


def _number(text: str) -> int:
    if not text.isdecimal():
        raise BadInput(f"/tasks takes the number of a task, not {text[:40]!r}")
    return int(text)


async def _asked(agent: Agent, tool: str, arguments: dict[str, object]) -> str:
    """Return what a tool that only reads says, outside of the conversation."""
    found = agent.toolbox.tools.get(tool)
    if found is None:
        raise BadInput("this agent has no tasks")
    output = await found.run(json.dumps(arguments), agent.toolbox.workspace)
    return plain(output.text).rstrip("\n") + "\n"


async def _agents(room: CommandRoom, argument: str) -> None:
    """Walk the sub-agents; Enter shows the session of one. With a nickname or an id, show that one."""
    agent, log = agent_of(room), agent_of(room).session.log
    children = {child.nickname: child for child in log.children}
    if argument:
        found = children.get(argument) or next((child for child in log.children if child.session == argument), None)
        if found is None:
            raise BadInput(f"there is no sub-agent {argument[:40]!r}; there are {', '.join(children) or 'none'}")
        await room.pal("show", found.session)
        return
    if not children:
        room.notice("this session has no sub-agents")
        return
    at, spent = "", agent.spent_by_child()
    while (chosen := await room.walk("Sub-agents", [_child_row(each, spent[each.session]) for each in log.children], {}, at)) is not None:
        at = chosen.row.value
        await room.pal("show", at)


def _child_row(child: ChildRecord, spent: Spent) -> Row:
    return Row(child.session, f"{child.nickname}  {child.role}  {child.status}  {cost_text(spent.usd)}", f"{child.session}\n{child.text}")


async def _processes(room: CommandRoom, argument: str) -> None:
    """Walk the processes of the session; Enter shows the output of one, `s` stops it. With an id, show that one."""
    agent, at = agent_of(room), ""
    if argument:
        _show_output(room, agent, argument)
        return
    while True:
        lines = process_lines(agent.session.log, agent.session.environment.clock.now())
        if not lines:
            room.notice("no process has run in the background")
            return
        rows = [Row(name, line, _output_of(agent, name)[-_PREVIEW:]) for name, line in lines.items()]
        chosen = await room.walk("Processes in the background", rows, {"s": "stops"}, at)
        if chosen is None:
            return
        at = chosen.row.value
        if chosen.key == "s":
            await _stop(room, agent, at)
        else:
            _show_output(room, agent, at)


def _output_of(agent: Agent, name: str) -> str:
    """What a process of this run has printed, at most its last lines; the model reads it independently of this."""
    running = None if agent.shell is None else agent.shell.background.get(name)
    return "" if running is None else "\n".join(plain(running.output.text()).splitlines()[-_MOST_LINES:])


def _show_output(room: CommandRoom, agent: Agent, name: str) -> None:
    if agent.shell is None or name not in agent.shell.background:
        raise BadInput(f"there is no process {name[:40]!r} of this run, so its output is not known; the log may have what was read of it")
    room.write(f"{_output_of(agent, name) or '[nothing printed]'}\n")


async def _stop(room: CommandRoom, agent: Agent, name: str) -> None:
    try:
        events = () if agent.shell is None else await agent.shell.stop(name, "stopped by the user")
    except ToolError as error:
        # The list stays open: a process of an earlier run cannot be stopped.
        room.notice(str(error), "error")
        return
    for event in events:
        agent.session.log.append(event)


def process_lines(log: Log, now: int) -> dict[str, str]:
    """Return a line for each process of a session by its id, oldest first: state, time and command; at most 200. `now` is in ms."""
    started: dict[str, tuple[ProcessStarted, int]] = {}
    ended: dict[str, tuple[ProcessEnded | None, int]] = {}
    for event in log.events():
        match event.body:
            case ProcessStarted(process=process) as begun:
                started[process] = (begun, event.at)
                ended.pop(process, None)
            case ProcessEnded(process=process) as gone:
                ended[process] = (gone, event.at)
            case _:
                continue
    lines: dict[str, str] = {}
    for process, (body, at) in started.items():
        end, until = ended.get(process, (None, now))
        how = "runs" if end is None else f"ended{'' if end.exit is None else f' with {end.exit}'}{': ' + end.why if end.why else ''}"
        pid = "" if body.pid is None else f", pid {body.pid}"
        lines[process] = plain(f"{process}  {how}  {max(0, until - at) // _SECOND_MS} s{pid}  {body.command}")
    return dict(list(lines.items())[-_MOST_PROCESSES:])


def _child_names(agent: Agent | None) -> Iterable[str]:
    return () if agent is None else (child.nickname for child in agent.session.log.children)


def _process_names(agent: Agent | None) -> Iterable[str]:
    return () if agent is None or agent.shell is None else tuple(agent.shell.background)


def _task_numbers(agent: Agent | None) -> Iterable[str]:
    return () if agent is None else (number for line in agent.open_tasks() if (number := _task_number(line)))


async def _review(room: CommandRoom, what: str) -> None:
    """Have the work reviewed by a sub-agent, show what it found, and tell the agent."""
    from palimpsest.engine.children.children import ChildAgents  # few sessions have one
    from palimpsest.engine.children.review import UNCOMMITTED, review

    children = agent_of(room).children
    if not isinstance(children, ChildAgents):
        raise BadInput("this agent has no sub-agents, and one makes the review")
    room.notice(f"a sub-agent reviews {what or UNCOMMITTED}; it asks the model of this session, which costs money")
    room.write(f"{plain(await review(children, what))}\n")


WORKING_COMMANDS: Final = table(
    SlashCommand("review", "have the work reviewed by a sub-agent; the agent learns the findings", _review, "[what]", while_running=False),
    SlashCommand("tasks", "tasks of the agent, each in full on demand", _tasks, "[number]", _task_numbers),
    SlashCommand("agents", "sub-agents of this session, what they cost and said", _agents, "[nickname]", _child_names),
    SlashCommand("processes", "processes in the background: their output, and stop", _processes, "[id]", _process_names),
)
