"""Commands about work beside the conversation: tasks, sub-agents and processes, each with its details."""

import json
from typing import Final

from palimpsest.apps.shown_text import dollars, plain
from palimpsest.apps.terminal.choosing import Row
from palimpsest.apps.terminal.commands.command import CommandRoom, SlashCommand, agent_of, table
from palimpsest.core.errors import BadInput
from palimpsest.core.events import ProcessEnded, ProcessStarted
from palimpsest.core.log.log import Log
from palimpsest.engine.agent import Agent

_TASK_LIST, _TASK = "task_list", "task_get"
_MOST_PROCESSES: Final = 200
_SECOND_MS: Final = 1_000


async def _tasks(room: CommandRoom, argument: str) -> None:
    """Walk all tasks; Enter shows one in full."""
    agent = agent_of(room)
    if argument:
        room.write(await _asked(agent, _TASK, {"id": _number(argument)}))
        return
    lines = (await _asked(agent, _TASK_LIST, {})).splitlines()
    # A line is a mark, the number and the subject.
    rows = [Row(words[1], line) for line in lines if len(words := line.replace("[ ]", "[]").split()) > 1 and words[1].isdecimal()]
    if not rows:
        room.notice("there are no tasks")
        return
    at = ""
    while (chosen := await room.walk("Tasks", rows, {}, at)) is not None:
        at = chosen.row.value
        room.write(await _asked(agent, _TASK, {"id": int(at)}))


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
    """Walk the sub-agents; Enter shows the session of one."""
    log = agent_of(room).session.log
    if argument:
        await room.pal("show", argument)
        return
    rows = [
        Row(child.session, f"{child.nickname}  {child.role}  {child.status}  {dollars(child.cost_usd)}", f"{child.session}\n{child.text}")
        for child in log.children
    ]
    if not rows:
        room.notice("this session has no sub-agents")
        return
    await room.pal("agents", log.session)
    at = ""
    while (chosen := await room.walk("Sub-agents", rows, {}, at)) is not None:
        at = chosen.row.value
        await room.pal("show", at)


async def _processes(room: CommandRoom, _: str) -> None:
    """List the processes of the session: those that run, and how the others ended."""
    agent = agent_of(room)
    lines = process_lines(agent.session.log, agent.session.environment.clock.now())
    for line in lines or ("no processes run in the background",):
        room.notice(line)


def process_lines(log: Log, now: int) -> tuple[str, ...]:
    """Return a line for each process of a session, oldest first: its state, its command and its time; at most 200. `now` is in ms."""
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
    lines: list[str] = []
    for process, (body, at) in started.items():
        end, until = ended.get(process, (None, now))
        how = "runs" if end is None else f"ended{'' if end.exit is None else f' with {end.exit}'}{': ' + end.why if end.why else ''}"
        pid = "" if body.pid is None else f", pid {body.pid}"
        lines.append(f"{process}  {how}  {max(0, until - at) // _SECOND_MS} s{pid}  {body.command}")
    return tuple(lines[-_MOST_PROCESSES:])


WORKING_COMMANDS: Final = table(
    SlashCommand("tasks", "tasks of the agent, each in full on demand", _tasks, "[number]"),
    SlashCommand("agents", "sub-agents of this session, what they cost and said", _agents, "[session]"),
    SlashCommand("processes", "processes in the background: what runs, and how others ended", _processes),
)
