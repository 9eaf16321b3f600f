"""The command `pal search` for full-text search over all sessions, and a summary of the sessions and files it found."""

import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import cast, get_args

import click
import msgspec
from msgspec import Struct, structs
from rich.text import Text

from pal.cli.command_line import FINDINGS
from pal.cli.hiding import REWIND, HidingEvent, ItemState, item_states
from pal.cli.logs import open_log, refresh_index
from pal.cli.opening import find_home, find_session
from pal.cli.output import emit, json_option, local_time, short_time, with_iso_times
from pal.cli.tables import Columns, console, one_line
from pal.text import plain
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import Event, ToolReturned, all_items_of
from palimpsest.core.items import Kind, ToolCall
from palimpsest.core.log import Log
from palimpsest.core.ports import Hit, SessionRow, UnitKind
from palimpsest.stores.home import Home
from palimpsest.stores.index_units import read_query


class FoundSession(Struct, frozen=True):
    """A session with hits: how many, and the time of the newest in milliseconds since 1970."""

    session: str
    title: str
    hits: int
    at: int


class FoundFile(Struct, frozen=True):
    """A file that matching calls read or changed: how many did, and session and time of the newest, in milliseconds since 1970."""

    path: str
    hits: int
    session: str
    at: int


def found_sessions(hits: Sequence[Hit], rows: Sequence[SessionRow]) -> list[FoundSession]:
    """Return the sessions of hits in the order of their first hit."""
    titles = {row.id: row.title for row in rows}
    counts = Counter(hit.session for hit in hits)
    first = {hit.session: hit for hit in reversed(hits)}
    return [FoundSession(session, titles.get(session, ""), counts[session], first[session].at) for session in counts]


def found_files(home: Home, hits: Sequence[Hit]) -> list[FoundFile]:
    """Return the files of the calls and results among the hits, in the order of their first hit; unreadable logs are left out."""
    paths: dict[tuple[str, str], tuple[str, ...]] = {}
    for session in dict.fromkeys(hit.session for hit in hits):
        wanted = {hit.item for hit in hits if hit.session == session and hit.kind in ("call", "result")}
        try:
            with open_log(find_session(home, session)) as log:
                paths |= {(session, item): files for item, files in _accessed(log, wanted).items()}
        except PalimpsestError:
            continue
    files: dict[str, list[Hit]] = {}
    for hit in hits:
        for path in paths.get((hit.session, hit.item), ()):
            files.setdefault(path, []).append(hit)
    return [FoundFile(path, len(found), found[0].session, found[0].at) for path, found in files.items()]


def _accessed(log: Log, wanted: set[str]) -> dict[str, tuple[str, ...]]:
    """Return the files that calls access, by the ids of call and result items."""
    calls: dict[str, ToolCall] = {}
    found: dict[str, tuple[str, ...]] = {}
    for event in log.reader.run(0, log.tip) if wanted else ():
        calls |= {item.content.call_id: item.content for item in all_items_of(event) if isinstance(item.content, ToolCall)}
        for item in all_items_of(event):
            if item.id in wanted:
                found[item.id] = _paths(event, item.content, calls)
    return found


def _paths(event: Event, content: object, calls: dict[str, ToolCall]) -> tuple[str, ...]:
    from palimpsest.audit.tool_calls import (
        Action,  # most searches list no files
        action_of,
        action_with,
    )

    action = Action("other")
    if isinstance(content, ToolCall):
        action = action_of(content)
    elif isinstance(event.body, ToolReturned) and (call := calls.get(event.body.result.call_id)) is not None:
        action = action_with(call, event.body)
    returned = event.body.paths if isinstance(event.body, ToolReturned) else ()
    return tuple(dict.fromkeys((*(access.path for access in action.paths), *returned)))


_KINDS = (*get_args(Kind), "note", "title")
# Private-use characters, because brackets may occur in the text of a log.
_MARKS = ("\ue000", "\ue001")
# Matches that are read for a list of sessions or files.
_MOST_SUMMED = 10_000
_LITERAL_WORDS = "palimpsest.search.plain"
_EXAMPLES = """\b
Examples:
  pal search connection reset
  pal search '"exit code 137"' -flaky --kind result
  pal search 超时 --ranked
  pal search retry --files --limit 100"""


class FoundHit(Hit, frozen=True):
    """A hit with the state of its item: whether the model sees it and what hides it; `None` for notes and titles, which are no items."""

    shown: bool | None
    hidden_by: HidingEvent | None


class _SearchCommand(click.Command):
    """A command that counts its arguments after `--`, which are never mistyped options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Count the arguments after `--`, which the parser removes."""
        ctx.meta[_LITERAL_WORDS] = len(args) - args.index("--") - 1 if "--" in args else 0
        return super().parse_args(ctx, args)


@click.command(cls=_SearchCommand, epilog=_EXAMPLES, context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, required=True, metavar="WORDS…")
@click.option("--ranked", is_flag=True, help="Best match first instead of newest first.")
@click.option("--session", "within", metavar="ID", help="Search only this session.")
@click.option("--kind", type=click.Choice(_KINDS), help="Search only items of this kind.")
@click.option("--sessions", "by_session", is_flag=True, help="List the sessions with matches, each once.")
@click.option("--files", "by_file", is_flag=True, help="List the files that matching calls read or changed, each once.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, metavar="N", help="Print at most N lines.")
@json_option
def search(
    *,
    words: tuple[str, ...],
    ranked: bool,
    within: str | None,
    kind: str | None,
    by_session: bool,
    by_file: bool,
    limit: int,
    as_json: bool,
) -> None:
    """Find items that contain all of the words, in all sessions, newest first.

    "A quoted phrase" matches exactly, prefix* matches words with that prefix, -word excludes a word.
    Chinese, Japanese and Korean need no spaces. Arguments after -- are always words. Each match says whether the model still sees
    it, or which edit hides it; `pal why` says more. Exit code 1 if nothing is found.
    """
    if by_session and by_file:
        raise click.UsageError("--sessions and --files exclude each other")
    named = words[: len(words) - click.get_current_context().meta[_LITERAL_WORDS]]
    stray = next((word for word in named if word.startswith("--")), None)
    if stray is not None:
        raise click.UsageError(f"No such option: {stray}")
    if not read_query(" ".join(words)).match:
        raise click.UsageError("there is no word to look for")
    home = find_home()
    only = find_session(home, within) if within is not None else None
    marks = ("[", "]") if as_json else _MARKS
    with home.index() as index:
        complete_index = refresh_index(index, only.name if only is not None else "")
        session = only.session if only is not None else None
        summed = by_session or by_file
        hits = index.search(
            " ".join(words),
            ranked=ranked,
            limit=_MOST_SUMMED if summed else limit,
            session=session,
            kind=cast("UnitKind | None", kind),
            marks=marks,
            width=0 if summed else 200,
        )
        rows = index.list(refresh=False) if by_session else ()
    found: Sequence[FoundSession | FoundFile | FoundHit]
    found = found_sessions(hits, rows) if by_session else found_files(home, hits) if by_file else _with_states(home, hits)
    if as_json:
        emit([with_iso_times(msgspec.to_builtins(each), "at") for each in found[:limit]])
    else:
        _print_all(found, limit)
    if not (found and complete_index):
        click.get_current_context().exit(FINDINGS)


def _with_states(home: Home, hits: Sequence[Hit]) -> list[FoundHit]:
    """Return the hits with the states of their items; those of a log that cannot be read have none."""
    states: dict[tuple[str, str], ItemState] = {}
    for session in dict.fromkeys(hit.session for hit in hits):
        items = [hit.item for hit in hits if hit.session == session and hit.item]
        with suppress(PalimpsestError), open_log(find_session(home, session)) as log:
            states |= {(session, item): state for item, state in item_states(log, items).items()}
    found: list[FoundHit] = []
    for hit in hits:
        state = states.get((hit.session, hit.item))
        hidden_by = state.hidden_by[-1] if state is not None and state.hidden_by else None
        found.append(FoundHit(**structs.asdict(hit), shown=None if state is None else state.shown, hidden_by=hidden_by))
    return found


def _print_all(found: Sequence[FoundSession | FoundFile | FoundHit], limit: int) -> None:
    if not found:
        click.echo("nothing found", err=True)
    hits = [each for each in found if isinstance(each, FoundHit)]
    if hits:
        _print_hits(hits)
        return
    rows = Columns("newest", "matches", "where", "", right=("matches",), keep=("newest", "where"))
    summed = [each for each in found if not isinstance(each, FoundHit)]
    for each in summed[:limit]:
        name, about = (each.session, each.title) if isinstance(each, FoundSession) else (plain(each.path), each.session)
        rows.add_row(short_time(each.at), f"{each.hits:,}", name, one_line(about, 60))
    if found:
        console().print(rows)
    if len(found) > limit:
        click.echo(f"… and {len(found) - limit:,} more: --limit N", err=True)


def _state_of(hit: FoundHit) -> str:
    if hit.shown is None:
        return ""
    if hit.shown:
        return "  shown"
    if hit.hidden_by is None:
        return "  not shown"
    what = REWIND if hit.hidden_by.policy == REWIND else "edit"
    return f"  hidden by {what} {hit.hidden_by.event}"


def _print_hits(hits: Sequence[FoundHit]) -> None:
    screen = console()
    for hit in hits:
        place = Text(f"{hit.session}:{hit.seq}", style="bold")
        screen.print(Text.assemble(place, f"  {hit.kind}  {local_time(hit.at)}{_state_of(hit)}"), soft_wrap=True)
        screen.print(
            Text.assemble("  ", _highlighted(hit.snippet, colour=screen.is_terminal and not screen.no_color)),
            soft_wrap=not screen.is_terminal,
        )
    if not sys.stdout.isatty():
        return
    first = hits[0]
    screen.print(Text(f"\npal show {first.session} --at {first.seq} shows the session at the first match", style="dim"))


def _highlighted(snippet: str, *, colour: bool) -> Text:
    """Return the snippet with matches in bold, or in brackets without colours."""
    text = Text()
    for number, part in enumerate(plain(snippet).replace(_MARKS[1], _MARKS[0]).split(_MARKS[0])):
        inside = number % 2 == 1
        text.append(f"[{part}]" if inside and not colour else part, style="bold yellow" if inside else "")
    return text
