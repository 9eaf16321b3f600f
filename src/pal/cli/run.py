"""The command `pal ask`: runs the agent on one prompt, and prints what it says as text, JSON or a stream."""

import os
import select
import stat
import sys
from fcntl import F_GETFL, fcntl
from pathlib import Path
from time import monotonic
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

import click
import msgspec

from pal.cli.agents import MODES, chosen_session, permission_options, session_options
from pal.cli.logs import cards_of
from pal.cli.opening import find_home
from pal.cli.output import emit, json_option
from pal.cli.settings import FiniteRange, settings_of
from pal.text import escaped_json, one_line, plain, saved_note_line
from palimpsest.agent.agent import Agent, proposed_plan, run
from palimpsest.agent.calls import RECOVERY
from palimpsest.agent.context import MISSING_PAGE
from palimpsest.agent.feed import Piece
from palimpsest.agent.jobs import standard_jobs
from palimpsest.agent.limits import Spent, price_book
from palimpsest.coding.build import coding_agent, coding_settings, mode_notice, recorded_choice
from palimpsest.coding.settings import refuse_all
from palimpsest.core.deltas import TextDelta
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.events import (
    ChildEnded,
    ChildOpened,
    Event,
    Failed,
    FilesSnapshotted,
    HookRan,
    InputWithdrawn,
    ModelReplied,
    NoteSaved,
    Noticed,
    PermissionAsked,
    ToolRefused,
    ToolReturned,
    ToolStarted,
    TurnEnded,
    ViewEdited,
)
from palimpsest.core.items import Image, Part, Text, text_of
from palimpsest.core.lines import encode_body, encode_line
from palimpsest.core.spending import Ledger, total_of
from palimpsest.core.text import cost_text
from palimpsest.stores.home import Home
from palimpsest.wire.models import total_usd

OutputForm: TypeAlias = Literal["text", "json", "json-stream"]
# Characters of a line about a tool or an edit, and of a notice.
_LINE, _NOTICE = 100, 400
_SLOW_SNAPSHOT_MS = 5_000


class Printer(Protocol):
    """Shows a run on standard output and standard error."""

    def show(self, piece: Piece) -> None:
        """Show one event or delta."""
        ...

    def end(self, summary: dict[str, object]) -> None:
        """Show the outcome. What jobs record afterwards is shown after it."""
        ...


_EXPLAINED: Final = {
    "loop": " (the model repeated the same calls with the same results)",
    "empty": " (the model replied with nothing)",
    "written_call": " (the model wrote a tool call as text; nothing was run)",
}


class TextPrinter:
    """Streams the replies to standard output; tools, refusals and edits go to standard error, a line each."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._open_line = False
        self._refused: set[str] = set()

    def show(self, piece: Piece) -> None:
        """Show one event or delta."""
        if isinstance(piece, TextDelta):
            text = plain(piece.text)
            sys.stdout.write(text)
            sys.stdout.flush()
            self._open_line = not text.endswith("\n")
        elif isinstance(piece, Event):
            if isinstance(piece.body, ModelReplied):
                self._end_line()
            notice = _notice_of(piece)
            line = "" if self._quiet or self._is_reported(piece) else _line_of(piece)
            if notice or line:
                _print_line(notice or line, _NOTICE if notice else _LINE)

    def _is_reported(self, event: Event) -> bool:
        """Whether an event is the result of a call whose refusal was shown."""
        if isinstance(event.body, ToolRefused):
            self._refused.add(event.body.call_id)
        return isinstance(event.body, ToolReturned) and event.body.result.call_id in self._refused

    def end(self, summary: dict[str, object]) -> None:
        """End the last line, and say why the run ended if it was not done."""
        self._end_line()
        if summary["stop"] != "done":
            stop = str(summary["stop"])
            click.echo(f"pal: the turn ended: {stop}{_EXPLAINED.get(stop, '')}", err=True)

    def _end_line(self) -> None:
        if self._open_line:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._open_line = False


def _print_line(line: str, longest: int) -> None:
    click.echo(f"pal: {one_line(plain(line[: 4 * longest]), longest)}", err=True)


def _notice_of(event: Event) -> str:
    """Return the line that the user gets in every form of output; empty for events that have none."""
    match event.body:
        case HookRan(hook=hook, notice=notice, failure=failure) if notice:
            return notice if failure else f"hook {hook}: {notice}"
        case NoteSaved() as saved:
            return saved_note_line(saved)
        case Noticed(text=text):
            return text
        case InputWithdrawn(by=by, why=why):
            return f"the {by} blocked the prompt: {why}"
        case Failed(what=what, message=message) if what == MISSING_PAGE:
            return f"{what}: {message}"
        case _:
            return ""


def _line_of(event: Event) -> str:
    """Return the line of an event on standard error; empty for events that need none."""
    match event.body:
        case ToolStarted(tool=tool):
            return f"runs {tool}"
        case ToolReturned(tool=tool, result=result) if result.error:
            return f"{tool} failed: {text_of(result)}"
        case ToolRefused(tool=tool, why=why):
            return f"{tool} was refused: {why}"
        case PermissionAsked(tool=tool, question=question):
            return f"{tool} needs permission: {question}"
        case ViewEdited(by=by, tokens_before=before, tokens_after=after):
            sizes = f": {before:,} to {after:,} tokens" if before and after else ""
            return f"{by} edited the context{sizes} (`pal audit last` shows it)"
        case FilesSnapshotted(took_ms=took_ms) if took_ms >= _SLOW_SNAPSHOT_MS:
            return f"keeping the state of the files took {took_ms / 1000:.1f} s (the setting files.snapshots turns it off)"
        case ChildOpened(nickname=nickname, role=role, resumed=resumed):
            return f"the sub-agent {nickname} ({role}) {'goes on' if resumed else 'starts'}"
        case ChildEnded(session=session, status=status, cost_usd=usd):
            return f"the sub-agent in session {session} has ended: {status} ({cost_text(usd)})"
        case Failed(what=what, message=message):
            return f"{what} failed: {message}"
        case _:
            return ""


class JsonPrinter:
    """Prints one JSON value at the end, and nothing else on standard output; notices go to standard error."""

    def show(self, piece: Piece) -> None:
        """Show the notice of an event."""
        if isinstance(piece, Event) and (notice := _notice_of(piece)):
            _print_line(notice, _NOTICE)

    def end(self, summary: dict[str, object]) -> None:
        """Print the outcome."""
        emit(summary)


class JsonStreamPrinter:
    """Prints each event as the line of the log, and each delta as one JSON object."""

    def show(self, piece: Piece) -> None:
        """Print one event or delta."""
        line = _log_line(piece) if isinstance(piece, Event) else msgspec.json.encode(piece)
        sys.stdout.write(escaped_json(line.decode().rstrip("\n")) + "\n")
        sys.stdout.flush()

    def end(self, summary: dict[str, object]) -> None:
        """Print nothing: the event `turn_ended` says how the turn ended."""


def _log_line(event: Event) -> bytes:
    return encode_line(event.seq, event.parent, event.at, event.prev, encode_body(event.body), digest=event.digest)


def printer_of(form: OutputForm, *, quiet: bool = False) -> Printer:
    """Return the printer of an output form."""
    match form:
        case "text":
            return TextPrinter(quiet=quiet)
        case "json":
            return JsonPrinter()
        case "json-stream":
            return JsonStreamPrinter()


REFUSED: Final = 3
LIMIT: Final = 4
ERROR: Final = 5
NO_ANSWER: Final = 6
_CODES: Final = {
    "done": 0,
    "refusal": REFUSED,
    "blocked": REFUSED,
    "max_calls": LIMIT,
    "max_tools": LIMIT,
    "max_seconds": LIMIT,
    "max_usd": LIMIT,
    "loop": LIMIT,
    "empty": NO_ANSWER,
    "written_call": NO_ANSWER,
    "max_total_tokens": LIMIT,
    "price_unknown": LIMIT,
}
# Bytes of standard input or of one attached file.
_LARGEST: Final = 4 * 1024 * 1024
# Seconds after which a line says that standard input is awaited.
_PATIENCE_S: Final = 1.0
_CHUNK: Final = 64 * 1024
_IMAGES: Final = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}
_EXAMPLES = f"""\b
Examples:
  pal -p "why does the build fail?"
  pal -p "fix it" --continue --mode edits --allow 'bash(pytest:*)'
  pal -p "update the docs" --mode auto --max-usd 1
  git diff | pal -p "review this" --mode plan --json

{MODES}

\b
Exit codes: 0 done, 2 wrong use, 3 the model refused or a hook blocked,
  4 a limit was reached or the model repeated itself, 5 the turn failed,
  6 the model gave no answer, 130 interrupted."""


@click.command(epilog=_EXAMPLES)
@click.option(
    "-p",
    "--print",
    "prompt",
    is_flag=False,
    flag_value="",
    default=None,
    metavar="PROMPT",
    help="The prompt; without a value, standard input.",
)
@click.option("--file", "files", multiple=True, type=click.Path(path_type=Path), help="Attach a text file or an image; repeatable.")
@session_options
@permission_options
@click.option("--state", default="", metavar="NAME", help="Move the task to this state, one of states.names (`pal config`).")
@click.option("--max-turns", type=click.IntRange(1), default=None, help="End after this many model calls.")
@click.option("--max-tools", type=click.IntRange(1), default=None, help="End after this many tool calls.")
@click.option("--max-seconds", type=FiniteRange(0, min_open=True), default=None, help="End after this many seconds.")
@click.option("--max-usd", type=FiniteRange(0, min_open=True), default=None, help="End when the turn has cost so many US dollars.")
@click.option("--max-tokens", type=click.IntRange(1), default=None, help="End when the turn has used so many tokens, all calls together.")
@click.option("--json-stream", is_flag=True, help="Print each event and delta as a line of JSON, as they come.")
@click.option("--quiet", "-q", is_flag=True, help="Print no lines about tools and edits on standard error.")
@json_option
def ask(
    *,
    prompt: str | None,
    files: tuple[Path, ...],
    continues: bool,
    resume: str,
    fork: str,
    model: str,
    profile_name: str,
    mode: str | None,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    folders: tuple[Path, ...],
    state: str,
    max_turns: int | None,
    max_tools: int | None,
    max_seconds: float | None,
    max_usd: float | None,
    max_tokens: int | None,
    json_stream: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run the coding agent on one prompt in this folder, print its replies and exit.

    The prompt is given with -p, on standard input, or both. There is no user to ask here: a call that a mode or rule
    would ask about is refused, and the line on standard error names the rule that allows it.
    Everything is recorded in a session: `pal show last` shows it. Options that are not given come from the settings
    (`pal config`). With --continue and without a prompt, an interrupted turn goes on where it stopped.
    """
    if json_stream and as_json:
        raise click.UsageError("--json and --json-stream exclude each other")
    home = find_home()
    limits = {"max_turns": max_turns, "max_tools": max_tools, "max_seconds": max_seconds, "max_usd": max_usd, "max_tokens": max_tokens}
    settings = settings_of(home, {"model": model, "profile": profile_name, "mode": mode, **limits}, strict=True)
    with chosen_session(home, continues=continues, resume=resume, fork=fork) as session:
        recorded = recorded_choice(home, session)
        parts = _input(home, prompt or "", files)
        if not parts and not session:
            raise BadInput("there is nothing to do; give a prompt (`pal -p TEXT`) or standard input, or --continue", where="pal -p")
        # The others would be cancelled at once, for the session ends with the turn.
        jobs = tuple(job for job in standard_jobs(settings.config.jobs, home) if "session_ends" in job.moments)
        coding = coding_settings(settings, recorded, allow=allow, deny=deny, folders=folders, end_with_turn=True, state=state)
        agent = coding_agent(
            home,
            settings,
            coding,
            cards=cards_of(home),
            notify=_notify,
            session=session,
            recorded=recorded,
            jobs=jobs,
            approve=refuse_all,
            asks_at_once=True,
        )
    for notice in (*agent.parts.notices, *mode_notice(settings, coding)):
        _notify(notice)
    form: OutputForm = "json-stream" if json_stream else "json" if as_json else "text"
    sys.exit(run(_answer(agent, parts, printer_of(form, quiet=quiet))))


def _notify(notice: str) -> None:
    click.echo(f"pal: {plain(notice)}", err=True)


async def _answer(agent: Agent, parts: tuple[Part, ...], printer: Printer) -> int:
    """Run one turn, show it, and return the exit code."""
    before = RunStart(agent.session.log.tip + 1, agent.session.log.ledger, agent.children_spent())
    failure: PalimpsestError | None = None
    async with agent:
        expanded = await agent.parts.expand(parts)
        try:
            async for piece in agent.run(*expanded):
                printer.show(piece)
        except PalimpsestError as error:
            failure = error
        stop = ""
        try:
            # Sub-agents that still run end with the turn, so that the summary has all that they cost.
            await agent.interrupt()
            await agent.end("done" if failure is None else "failed")
            if isinstance(printer, JsonPrinter):
                # One value has to hold what jobs note, too.
                await agent.jobs.close()
            _show_unseen(agent, printer)
            summary = summarize_run(agent, before)
            stop = str(summary["stop"])
            # Else before the end of the session, in which jobs may take some seconds.
            printer.end(summary)
            await agent.jobs.close()
            _show_unseen(agent, printer)
        except PalimpsestError as error:
            # A log that can be neither read nor written any more has ended the turn already, and that error says why.
            failure = failure or error
    if failure is not None:
        click.echo(f"pal: {failure}", err=True)
        return ERROR
    return _CODES.get(stop, ERROR)


def _show_unseen(agent: Agent, printer: Printer) -> None:
    for event in agent.unseen():
        printer.show(event)


class RunStart(NamedTuple):
    """Where a run starts: its first event, the ledger before it, and what sub-agents had spent."""

    first: int
    ledger: Ledger
    children: Spent


def summarize_run(agent: Agent, before: RunStart) -> dict[str, object]:
    """Return the outcome of the events since a run started, in the shape of `pal -p --json`; dollars that are not known are null."""
    log = agent.session.log
    events = tuple(log.reader.run(before.first, log.tip))
    replies = [event.body for event in events if isinstance(event.body, ModelReplied) and event.body.purpose == "turn"]
    texts = ("".join(part.text for part in reply.parts if isinstance(part, Text)) for reply in reversed(replies))
    spendings = log.ledger.since(before.ledger)
    usage, own = total_of(spending.usage for spending in spendings), price_book(agent.session).usd(spendings)
    below = agent.children_spent().since(before.children).usd
    return {
        "session": log.session,
        "text": next((text for text in texts if text), ""),
        "plan": next((plan for reply in reversed(replies) if (plan := proposed_plan(reply)) is not None), None),
        "stop": next((event.body.stop for event in reversed(events) if isinstance(event.body, TurnEnded)), ""),
        "turns": len(replies),
        "usage": {name: getattr(usage, name) for name in usage.__struct_fields__},
        "cost_usd": _rounded(total_usd((own, below))),
        "own_usd": _rounded(own),
        "children_usd": _rounded(below),
        "edits": sum(isinstance(event.body, ViewEdited) for event in events),
        "recovered": sum(isinstance(event.body, ViewEdited) and event.body.by == RECOVERY for event in events),
        "notices": [event.body.text for event in events if isinstance(event.body, Noticed)],
        "noted": [{"name": body.name, "about": body.about} for event in events if isinstance(body := event.body, NoteSaved)],
    }


def _rounded(usd: float | None) -> float | None:
    return None if usd is None else round(usd, 6)


def _input(home: Home, prompt: str, files: tuple[Path, ...]) -> tuple[Part, ...]:
    """Return the parts of the input: the prompt, standard input and the attached files.

    Each is a part of its own, because only the prompt is what the user typed.
    """
    piped = _piped().strip()
    typed = (Text(prompt.strip()),) if prompt.strip() else ()
    return (*typed, *((Text(piped, attached=True),) if piped else ()), *(_attached(home, path) for path in files))


def _piped() -> str:
    """Return the text of standard input up to its end if it is a pipe, a socket or a file; a terminal is not read.

    What another program pipes in is never left out: a slow one is awaited, which a line on standard error says after a second.
    """
    try:
        number = sys.stdin.fileno()
        mode = os.fstat(number).st_mode
    except (AttributeError, OSError, ValueError):
        return ""
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        return ""
    if fcntl(number, F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
        return ""
    try:
        data = _read_to_end(number, _LARGEST + 1)
    except OSError as error:
        raise BadInput(f"standard input cannot be read to its end: {error.strerror or error}", where="stdin") from error
    if len(data) > _LARGEST:
        raise BadInput(f"standard input has more than {_LARGEST // 1024 // 1024} MiB; give a file to read instead", where="stdin")
    return data.decode("utf-8", "replace")


def _read_to_end(number: int, most: int) -> bytes:
    """Return what a file has up to its end, at most so many bytes."""
    data, told, patience = bytearray(), monotonic() + _PATIENCE_S, True
    while len(data) < most:
        # Also after that by `select`: the program at the other end may have made the pipe non-blocking for both.
        if not select.select([number], [], [], max(0.0, told - monotonic()) if patience else None)[0]:
            patience = False
            _notify("waiting for the end of standard input; `</dev/null` leaves it out")
            continue
        try:
            chunk = os.read(number, _CHUNK)
        except BlockingIOError:
            # Another reader of the same pipe was faster.
            continue
        if not chunk:
            break
        data += chunk
    return bytes(data[:most])


def _attached(home: Home, path: Path) -> Part:
    try:
        with path.open("rb") as file:
            # The size that a pipe or a device states says nothing about how much it has.
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise BadInput(f"the file cannot be read: {error.strerror or error}", where=str(path)) from error
    if len(data) > _LARGEST:
        raise BadInput(f"the file has more than {_LARGEST // 1024 // 1024} MiB; name it in the prompt instead", where=str(path))
    media = _IMAGES.get(path.suffix.lower())
    if media is not None:
        return Image(media, home.blobs.put(data), name=str(path))
    if b"\0" in data:
        raise BadInput("the file is neither text nor an image that models read", where=str(path))
    return Text(f"Attached file {path}:\n\n{data.decode('utf-8', 'replace')}", attached=True)
