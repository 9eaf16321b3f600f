"""Output of a headless run: the text as it streams, one JSON value, or one JSON event a line."""

import sys
from typing import Final, Literal, Protocol, TypeAlias

import click
import msgspec

from palimpsest.apps.cli.output.values import emit
from palimpsest.apps.shown_text import escaped_json, plain, saved_note_line
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
    ViewEdited,
)
from palimpsest.core.events.deltas import TextDelta
from palimpsest.core.format.codec import encode_body, encode_line
from palimpsest.core.format.texts import cost_text
from palimpsest.core.items import text_of
from palimpsest.engine.loop.context import MISSING_PAGE
from palimpsest.engine.loop.feed import Piece

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
    text = " ".join(plain(line[: 4 * longest]).split())
    click.echo(f"pal: {text if len(text) <= longest else text[: longest - 1] + '…'}", err=True)


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
