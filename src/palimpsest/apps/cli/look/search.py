"""`pal search`: words in all sessions, found through the index."""

import sys
from collections.abc import Sequence
from typing import cast, get_args

import click
import msgspec
from rich.text import Text

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.home import find_home, find_session
from palimpsest.apps.cli.indexed import catch_up
from palimpsest.apps.cli.output import console, emit, json_option, local_time, plain
from palimpsest.core.items import Kind
from palimpsest.core.ports import Hit, UnitKind

_KINDS = (*get_args(Kind), "note", "title")
# Letters of the private use area cannot stand in a log's text by chance, so they tell our marks from brackets of the text.
_MARKS = ("\ue000", "\ue001")
_PLAIN = "palimpsest.search.plain"
_EXAMPLES = """\b
Examples:
  pal search connection reset
  pal search '"exit code 137"' -flaky --kind result
  pal search 超时 --ranked"""


class _Words(click.Command):
    """A command that knows which of its words stood after `--` and so are no mistyped options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Count them, for the parser takes the `--` away."""
        ctx.meta[_PLAIN] = len(args) - args.index("--") - 1 if "--" in args else 0
        return super().parse_args(ctx, args)


@click.command(cls=_Words, epilog=_EXAMPLES, context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, required=True, metavar="WORDS…")
@click.option("--ranked", is_flag=True, help="Best match first instead of newest first.")
@click.option("--session", "within", metavar="ID", help="Only in this session.")
@click.option("--kind", type=click.Choice(_KINDS), help="Only in items of this kind.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, metavar="N", help="At most N places.")
@json_option
def search(*, words: tuple[str, ...], ranked: bool, within: str | None, kind: str | None, limit: int, as_json: bool) -> None:
    """Find words in all sessions: all of them, in one item.

    "Quoted phrases" stand side by side, prefix* finds what begins so, -word must not be there.
    Chinese, Japanese and Korean need no spaces. After -- everything is a word.
    """
    named = words[: len(words) - click.get_current_context().meta[_PLAIN]]
    stray = next((word for word in named if word.startswith("--")), None)
    if stray is not None:
        raise click.UsageError(f"No such option: {stray}")
    home = find_home()
    one = find_session(home, within) if within is not None else None
    marks = ("[", "]") if as_json else _MARKS
    with home.index() as index:
        whole = catch_up(index, one.name if one is not None else "")
        session = one.session if one is not None else None
        hits = index.search(
            " ".join(words), ranked=ranked, limit=limit, session=session, kind=cast("UnitKind | None", kind), marks=marks, width=200
        )
    if as_json:
        emit(msgspec.to_builtins(hits))
    elif hits:
        _print(hits)
    else:
        click.echo("nothing found", err=True)
    if not whole:
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
    screen.print(Text(f"\npal show {first.session} --at {first.seq} shows the session as it was there", style="dim"))


def _highlighted(snippet: str, *, colour: bool) -> Text:
    """The snippet with its places in bold, or in brackets where nothing can be bold."""
    text = Text()
    for number, part in enumerate(plain(snippet).replace(_MARKS[1], _MARKS[0]).split(_MARKS[0])):
        inside = number % 2 == 1
        text.append(f"[{part}]" if inside and not colour else part, style="bold yellow" if inside else "")
    return text
