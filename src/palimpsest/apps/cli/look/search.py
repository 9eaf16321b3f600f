"""`pal search`: full-text search over all sessions."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import cast, get_args

import click
import msgspec
from msgspec import structs
from rich.text import Text

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.look.finding.search_summary import FoundFile, FoundSession, found_files, found_sessions
from palimpsest.apps.cli.look.hiding import REWIND, HidingEvent, ItemState, item_states
from palimpsest.apps.cli.opening.home import AnyHome, find_home, find_session
from palimpsest.apps.cli.opening.logs import open_log, refresh_index
from palimpsest.apps.cli.output.tables import Columns, console, one_line
from palimpsest.apps.cli.output.values import emit, json_option, local_time, short_time, with_iso_times
from palimpsest.apps.shown_text import plain
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.items import Kind
from palimpsest.core.ports import Hit, UnitKind
from palimpsest.stores.index.search_text import read_query

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


def _with_states(home: AnyHome, hits: Sequence[Hit]) -> list[FoundHit]:
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
        _print(hits)
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


def _print(hits: Sequence[FoundHit]) -> None:
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
