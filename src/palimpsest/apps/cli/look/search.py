"""`pal search`: full-text search over all sessions."""

import sys
from collections.abc import Sequence
from typing import cast, get_args

import click
import msgspec
from rich.text import Text

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.opening.home import find_home, find_session
from palimpsest.apps.cli.opening.logs import refresh_index
from palimpsest.apps.cli.output.tables import console
from palimpsest.apps.cli.output.values import emit, json_option, local_time
from palimpsest.apps.shown_text import plain
from palimpsest.core.items import Kind
from palimpsest.core.ports import Hit, UnitKind

_KINDS = (*get_args(Kind), "note", "title")
# Private-use characters, because brackets may occur in the text of a log.
_MARKS = ("\ue000", "\ue001")
_LITERAL_WORDS = "palimpsest.search.plain"
_EXAMPLES = """\b
Examples:
  pal search connection reset
  pal search '"exit code 137"' -flaky --kind result
  pal search 超时 --ranked"""


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
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, metavar="N", help="Print at most N matches.")
@json_option
def search(*, words: tuple[str, ...], ranked: bool, within: str | None, kind: str | None, limit: int, as_json: bool) -> None:
    """Find items that contain all of the words, in all sessions.

    "A quoted phrase" matches exactly, prefix* matches words with that prefix, -word excludes a word.
    Chinese, Japanese and Korean need no spaces. Arguments after -- are always words.
    """
    named = words[: len(words) - click.get_current_context().meta[_LITERAL_WORDS]]
    stray = next((word for word in named if word.startswith("--")), None)
    if stray is not None:
        raise click.UsageError(f"No such option: {stray}")
    home = find_home()
    only = find_session(home, within) if within is not None else None
    marks = ("[", "]") if as_json else _MARKS
    with home.index() as index:
        complete_index = refresh_index(index, only.name if only is not None else "")
        session = only.session if only is not None else None
        hits = index.search(
            " ".join(words), ranked=ranked, limit=limit, session=session, kind=cast("UnitKind | None", kind), marks=marks, width=200
        )
    if as_json:
        emit(msgspec.to_builtins(hits))
    elif hits:
        _print(hits)
    else:
        click.echo("nothing found", err=True)
    if not complete_index:
        click.get_current_context().exit(FINDINGS)


def _print(hits: Sequence[Hit]) -> None:
    screen = console()
    for hit in hits:
        place = Text(f"{hit.session}:{hit.seq}", style="bold")
        screen.print(Text.assemble(place, f"  {hit.kind}  {local_time(hit.at)}"), soft_wrap=True)
        screen.print(Text.assemble("  ", _highlighted(hit.snippet, colour=screen.is_terminal and not screen.no_color)))
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
