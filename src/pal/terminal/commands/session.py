"""Commands that change or switch the session, `/diff`, `/memory`, and commands for tasks, sub-agents, processes and reviews."""

import asyncio
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pal.terminal.choosing import Row
from pal.terminal.commands.command import SlashCommand, agent_of, table
from pal.terminal.conversation import message_text
from pal.terminal.painting import PatchBlock, patch_files
from pal.terminal.terminal import NotOpen, Terminal
from pal.text import one_line, plain
from palimpsest.agent.agent import Agent
from palimpsest.agent.child_tools import UNCOMMITTED, review
from palimpsest.agent.children import ChildAgents
from palimpsest.agent.limits import Spent
from palimpsest.agent.session import Session
from palimpsest.agent.tool import ToolError
from palimpsest.coding.file_undo import FileRewinding, TurnChange, turn_changes
from palimpsest.core.errors import BadInput
from palimpsest.core.events import ProcessEnded, ProcessStarted
from palimpsest.core.items import text_of
from palimpsest.core.log import Log, turns_of
from palimpsest.core.spending import ChildRecord
from palimpsest.core.text import cost_text
from palimpsest.core.undo import rewind as go_back
from palimpsest.memory.note import redacted, time_of
from palimpsest.memory.notebook import Memories, memories_of
from palimpsest.stores.home import FolderHome

_MOST_MESSAGES: Final = 200
_FILES, _TALK = "files", "conversation"


async def _compact(terminal: Terminal, focus: str) -> None:
    agent = agent_of(terminal)
    before = agent.session.log.tip
    await agent.compact(focus)
    if agent.session.log.tip == before:
        terminal.notice("there is nothing to fold yet")


async def _pin(terminal: Terminal, what: str) -> None:
    """Pin an item or a file, unpin it if it is pinned, or walk what is pinned."""
    session = agent_of(terminal).session
    if what:
        _turn_pin(session, what)
        return
    if not session.log.view.pins:
        raise BadInput("nothing is pinned; /pin takes the id of an item, as /context shows it, or the path of a file")
    async for chosen in terminal.walk("Pinned; /pin takes an item or a path", lambda: _pin_rows(session), {"u": "unpins"}):
        at = chosen.row.value
        if chosen.key == "u":
            _turn_pin(session, at)
        else:
            terminal.write(f"{plain(_item_text(session, at) or at)}\n")


def _pin_rows(session: Session) -> list[Row]:
    return [Row(name, name, one_line(plain(_item_text(session, name)), 400)) for name in sorted(session.log.view.pins)]


def _turn_pin(session: Session, what: str) -> None:
    is_item = session.log.find(what) is not None
    session.pin(ids=(what,) if is_item else (), paths=() if is_item else (what,), on=what not in session.log.view.pins)


def _item_text(session: Session, name: str) -> str:
    found = session.log.find(name)
    return "" if found is None else text_of(found.content)


def _pinnable(agent: Agent | None) -> Iterable[str]:
    if agent is None:
        return ()
    view = agent.session.log.view
    return (*sorted(view.pins), *(item.id for item in view.items[-_MOST_MESSAGES:]))


async def _rewind(terminal: Terminal, argument: str) -> None:
    """Let the user choose one of the earlier messages, go back to before it, and put it into the input."""
    agent = agent_of(terminal)
    log = agent.session.log
    turns = turns_of(log)
    if not turns:
        raise BadInput("there is no message to go back to")
    texts = {seq: message_text(log.event(seq).body) for seq in list(turns)[-_MOST_MESSAGES:]}
    rows = [Row(str(seq), one_line(plain(text), 200), plain(text)[:2_000]) for seq, text in reversed(texts.items())]
    chosen = await terminal.choose("Go back to before which message?", rows)
    if chosen is None:
        return
    ways = [Row(_FILES, "conversation and files"), Row(_TALK, "conversation only")]
    how = await terminal.choose("Take back what?", ways)
    if how is None:
        return
    seq = int(chosen.value)
    if how.value == _FILES:
        _rewind_files(terminal, agent, turns[seq])
    else:
        go_back(log, turns[seq], why="asked in the terminal")
    terminal.line.insert(texts[seq])


def _rewind_files(terminal: Terminal, agent: Agent, to: int) -> None:
    if terminal.folder is None:
        raise BadInput("a home in memory keeps no snapshots of files; go back in the conversation only")
    rewinding = FileRewinding(agent.session.log, terminal.folder)
    rewinding.carry_out(rewinding.plan(to), why="asked in the terminal")


async def _resume(terminal: Terminal, session: str) -> None:
    await terminal.switch_session(session or "?")


async def _fork(terminal: Terminal, _: str) -> None:
    before = terminal.session_id
    if not before:
        raise NotOpen
    await terminal.switch_session(before, fork=True)
    terminal.notice(f"this is {terminal.session_id}, a copy of {before}, which stays as it is")


async def _takeover(terminal: Terminal, _: str) -> None:
    await terminal.session.take_over()


async def _new(terminal: Terminal, _: str) -> None:
    await terminal.switch_session("")


SESSION_COMMANDS: Final = table(
    SlashCommand("compact", "fold the context now; /summarize is the same", _compact, "[focus]", while_running=False),
    SlashCommand("pin", "keep an item or a file in the context, or no longer", _pin, "[item or path]", _pinnable, while_running=False),
    SlashCommand("rewind", "go back to before an earlier message, with or without the files", _rewind, while_running=False),
    SlashCommand("resume", "open another session", _resume, "[id]", while_running=False),
    SlashCommand("takeover", "go on here with a session that another terminal has", _takeover),
    SlashCommand("fork", "go on in a copy of this session", _fork, while_running=False),
    SlashCommand("new", "start a new session", _new, while_running=False),
)


_LAST, _ALL = "last", "all"
_MOST_FILES: Final = 2_000


async def _diff(terminal: Terminal, argument: str) -> None:
    """Walk the changed files, newest turn first; or show the diffs of the last turn, of one by its number, or of all."""
    if not terminal.session_id:
        raise NotOpen
    if terminal.folder is None:
        raise BadInput("a home in memory keeps no snapshots of files")
    home, session = FolderHome(terminal.folder), terminal.session_id
    found = await asyncio.to_thread(_changes, home, session, _turn(argument))
    blocks = dict(_blocks(found))
    for change in found:
        if change.problem:
            terminal.notice(f"turn {change.turn}: {change.problem}", "warning")
    if not blocks:
        terminal.notice("no files were changed")
    elif argument:
        for block in blocks.values():
            terminal.show(block, opened=True)
    else:
        await _walk(terminal, blocks)


def _turn(argument: str) -> int | None:
    if argument in ("", _ALL):
        return None
    if argument == _LAST:
        return -1
    if not argument.isdecimal():
        raise BadInput(f"/diff takes {_LAST}, {_ALL} or the number of a turn, or nothing for the list of files")
    return int(argument)


def _changes(home: FolderHome, session: str, turn: int | None) -> tuple[TurnChange, ...]:
    # A log of its own: that of the agent belongs to the event loop.
    with home.open(session, write=False) as log:
        return turn_changes(log, home.folder, turn)


def _blocks(changes: Iterable[TurnChange]) -> Iterator[tuple[str, PatchBlock]]:
    """Yield the diff of each file by its name in the list, newest turn first; files without a text that can be shown have no lines."""
    count = 0
    for change in sorted(changes, key=lambda change: -change.first):
        patches = patch_files(change.patch.data.decode("utf-8", "replace"))
        for file in change.files:
            count += 1
            if count <= _MOST_FILES:
                facts = "binary or large" if file.added is None else f"+{file.added} -{file.removed}"
                yield f"turn {change.turn}  {file.path}  {file.action} {facts}", PatchBlock(file.path, facts, patches.get(file.path, ()))


async def _walk(terminal: Terminal, blocks: Mapping[str, PatchBlock]) -> None:
    rows = [Row(name, plain(name), _preview(block)) for name, block in blocks.items()]
    async for chosen in terminal.walk("Changed files, newest turn first", lambda: rows):
        terminal.show(blocks[chosen.row.value], opened=True)


def _preview(block: PatchBlock) -> str:
    signs = {"added": "+", "removed": "-", "same": " ", "gap": "…"}
    return "\n".join(f"{signs[line.kind]} {line.text}" for line in block.lines[:6])


def _complete(_: Agent | None) -> Iterable[str]:
    return _LAST, _ALL


FILE_COMMANDS: Final = table(
    SlashCommand("diff", "files that the turns changed, each with its diff", _diff, "[last, all or turn]", _complete),
)


_WORDS: Final = ("list", "show", "add", "edit", "forget", "undo", "search", "why", "status", "promote")
# Commands whose argument is one text, which a user types without quotes.
_TEXTS: Final = ("add", "search")


async def _memory(terminal: Terminal, argument: str) -> None:
    """Walk the notes, or run a command of `pal memory`; `forget` asks in a list of the terminal."""
    word, _, rest = argument.partition(" ")
    rest = rest.strip()
    if not word:
        await _walk_note(terminal)
    elif word == "forget" and rest and not rest.startswith("-"):
        await _forget(terminal, rest)
    elif word in _TEXTS and rest and not rest.startswith("-"):
        await terminal.pal("memory", word, *(_words(rest) if " --" in rest else (rest,)))
    elif word in _WORDS:
        await terminal.pal("memory", word, *_words(rest))
    else:
        raise BadInput(f"/memory takes {', '.join(_WORDS)}, or nothing for the list")


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise BadInput(f"the argument cannot be read: {error}", where="/memory") from error


def _memories(terminal: Terminal) -> Memories:
    root = agent_of(terminal).toolbox.workspace.root
    found = None if terminal.folder is None else memories_of(FolderHome(terminal.folder), root)
    if found is None:
        raise BadInput("a home in memory keeps no notes")
    return found


async def _walk_note(terminal: Terminal) -> None:
    """Let the user walk the notes: Enter shows one, `f` forgets it."""
    title, without = "Notes that hold here", "there are no notes; /memory add TEXT adds one"
    async for chosen in terminal.walk(title, lambda: asyncio.to_thread(_note_rows, _memories(terminal)), {"f": "forgets"}, without=without):
        if chosen.key == "f":
            await _forget(terminal, chosen.row.value)
        else:
            await terminal.pal("memory", "show", chosen.row.value)


def _note_rows(memories: Memories) -> list[Row]:
    notes = sorted((redacted(note) for _, note in memories.active()), key=lambda note: time_of(note.when), reverse=True)
    return [Row(note.name, f"{note.name}  {note.kind}  {plain(note.about)}", note.body.strip()) for note in notes]


async def _forget(terminal: Terminal, name: str) -> None:
    notebook, note = _memories(terminal).find(name)
    sure = await terminal.choose(f"Delete {note.name} for good?", (Row("", "no"), Row("yes", f"yes: {plain(redacted(note).about)}")))
    if sure is None or not sure.value:
        return
    await asyncio.to_thread(notebook.forget, note.name, "user", "asked for by the user")
    terminal.notice(f"note {note.name} is forgotten")


def _complete_note(agent: Agent | None) -> Iterable[str]:
    return _WORDS


MEMORY_COMMANDS: Final = table(
    SlashCommand("memory", "walk the notes; or add, search, show, forget, why", _memory, "[command]", _complete_note),
)


_TASK_LIST, _TASK = "task_list", "task_get"
_MOST_PROCESSES: Final = 200
_SECOND_MS: Final = 1_000
# Lines of an output that are shown, and characters of its end below the list.
_MOST_LINES: Final = 1_000
_PREVIEW: Final = 400


async def _tasks(terminal: Terminal, argument: str) -> None:
    """Walk all tasks; Enter shows one in full."""
    agent = agent_of(terminal)
    if argument:
        terminal.write(await _asked(agent, _TASK, {"id": _number(argument)}))
        return
    lines = (await _asked(agent, _TASK_LIST, {})).splitlines()
    rows = [Row(number, line) for line in lines if (number := _task_number(line))]
    async for chosen in terminal.walk("Tasks", lambda: rows, without="there are no tasks"):
        terminal.write(await _asked(agent, _TASK, {"id": int(chosen.row.value)}))


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


async def _agents(terminal: Terminal, argument: str) -> None:
    """Walk the sub-agents; Enter shows the session of one. With a nickname or an id, show that one."""
    agent, log = agent_of(terminal), agent_of(terminal).session.log
    children = {child.nickname: child for child in log.children}
    if argument:
        found = children.get(argument) or next((child for child in log.children if child.session == argument), None)
        if found is None:
            raise BadInput(f"there is no sub-agent {argument[:40]!r}; there are {', '.join(children) or 'none'}")
        await terminal.pal("show", found.session)
        return
    async for chosen in terminal.walk("Sub-agents", lambda: _child_rows(agent), without="this session has no sub-agents"):
        await terminal.pal("show", chosen.row.value)


def _child_rows(agent: Agent) -> list[Row]:
    spent = agent.spent_by_child()
    return [_child_row(child, spent[child.session]) for child in agent.session.log.children]


def _child_row(child: ChildRecord, spent: Spent) -> Row:
    return Row(child.session, f"{child.nickname}  {child.role}  {child.status}  {cost_text(spent.usd)}", f"{child.session}\n{child.text}")


async def _processes(terminal: Terminal, argument: str) -> None:
    """Walk the processes of the session; Enter shows the output of one, `s` stops it. With an id, show that one."""
    agent = agent_of(terminal)
    if argument:
        _show_output(terminal, agent, argument)
        return

    def rows() -> list[Row]:
        lines = process_lines(agent.session.log, agent.session.environment.clock.now())
        return [Row(name, line, _output_of(agent, name)[-_PREVIEW:]) for name, line in lines.items()]

    without = "no process has run in the background"
    async for chosen in terminal.walk("Processes in the background", rows, {"s": "stops"}, without=without):
        if chosen.key == "s":
            await _stop(terminal, agent, chosen.row.value)
        else:
            _show_output(terminal, agent, chosen.row.value)


def _output_of(agent: Agent, name: str) -> str:
    """What a process of this run has printed, at most its last lines; the model reads it independently of this."""
    running = None if agent.shell is None else agent.shell.background.get(name)
    return "" if running is None else "\n".join(plain(running.output.text()).splitlines()[-_MOST_LINES:])


def _show_output(terminal: Terminal, agent: Agent, name: str) -> None:
    if agent.shell is None or name not in agent.shell.background:
        raise BadInput(f"there is no process {name[:40]!r} of this run, so its output is not known; the log may have what was read of it")
    terminal.write(f"{_output_of(agent, name) or '[nothing printed]'}\n")


async def _stop(terminal: Terminal, agent: Agent, name: str) -> None:
    try:
        events = () if agent.shell is None else await agent.shell.stop(name, "stopped by the user")
    except ToolError as error:
        # The list stays open: a process of an earlier run cannot be stopped.
        terminal.notice(str(error), "error")
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
    return () if agent is None else (number for line in agent.parts.open_tasks() if (number := _task_number(line)))


async def _review(terminal: Terminal, what: str) -> None:
    """Have the work reviewed by a sub-agent, show what it found, and tell the agent."""
    children = agent_of(terminal).children
    if not isinstance(children, ChildAgents):
        raise BadInput("this agent has no sub-agents, and one makes the review")
    terminal.notice(f"a sub-agent reviews {what or UNCOMMITTED}; it asks the model of this session, which costs money")
    terminal.write(f"{plain(await review(children, what))}\n")


WORKING_COMMANDS: Final = table(
    SlashCommand("review", "have the work reviewed by a sub-agent; the agent learns the findings", _review, "[what]", while_running=False),
    SlashCommand("tasks", "tasks of the agent, each in full on demand", _tasks, "[number]", _task_numbers),
    SlashCommand("agents", "sub-agents of this session, what they cost and said", _agents, "[nickname]", _child_names),
    SlashCommand("processes", "processes in the background: their output, and stop", _processes, "[id]", _process_names),
)
