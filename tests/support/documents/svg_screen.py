"""A terminal screen as an SVG picture: text stays text, in the terminal's own colours, on a light or a dark page."""

from html import escape
from itertools import groupby
from typing import Final, NamedTuple

import pyte
from pyte.screens import Char
from wcwidth import wcwidth

# A cell of 8.4 by 18 at this size of the font, in pixels; most monospaced fonts are 0.6 of their size wide.
_FONT, _WIDE, _HIGH, _MARGIN = 14, 8.4, 18, 14
# Symbols from here on are missing in some monospaced fonts.
_RARE: Final = 0x25A0
_INK: Final = "default"
# The colours of the emulator, for a light page and for a dark one. Each has a contrast of at least 4.5 to its paper.
_PALETTE: Final = {
    "paper": ("#fbfbf9", "#1b1f27"),
    "edge": ("#c9ccd1", "#3a4150"),
    _INK: ("#24292f", "#dfe3ea"),
    "black": ("#24292f", "#8a93a3"),
    "red": ("#b3261e", "#f2777a"),
    "green": ("#1a6b2f", "#8fd18f"),
    "brown": ("#7d5300", "#f0c674"),
    "blue": ("#1257b0", "#7fb2f5"),
    "magenta": ("#8a3a9e", "#d9a0e6"),
    "cyan": ("#0b6673", "#6fd3dc"),
    "white": ("#57606a", "#dfe3ea"),
    "brightblack": ("#646c76", "#939cab"),
}
# Names of the emulator that are painted as another one.
_SAME: Final = {"bfightmagenta": "magenta", "brightwhite": _INK, "brightbrown": "brown"}


class Style(NamedTuple):
    """How letters look: colours of the palette by name, or as six hexadecimal digits."""

    ink: str = _INK
    paper: str = ""
    bold: bool = False
    italic: bool = False
    underlined: bool = False


class Run(NamedTuple):
    """Letters of one look beside each other, from a column on."""

    column: int
    columns: int
    text: str
    style: Style


class Frozen(NamedTuple):
    """A screen at one moment: its lines from the first to the last that shows something, and where the cursor is."""

    columns: int
    lines: tuple[tuple[Run, ...], ...]
    cursor: tuple[int, int] | None = None


def freeze(screen: pyte.HistoryScreen, first: str = "", *, cursor: bool = True) -> Frozen:
    """Return what the screen shows now, from the last line on that begins with a text; with lines that left the screen."""
    above = [[line[column] for column in range(screen.columns)] for line in screen.history.top]
    shown = [[screen.buffer[row][column] for column in range(screen.columns)] for row in range(screen.lines)]
    rows = [*above, *shown]
    texts = ["".join(cell.data for cell in row).rstrip() for row in rows]
    end = max(place for place, text in enumerate(texts) if text) + 1
    start = max((place for place, text in enumerate(texts) if first and text.startswith(first)), default=len(above))
    at = (screen.cursor.x, len(above) + screen.cursor.y - start) if cursor else None
    return Frozen(screen.columns, tuple(_runs(row) for row in rows[start:end]), at)


def svg(frozen: Frozen, title: str, description: str) -> str:
    """Return the picture as an SVG document without fonts, scripts or addresses."""
    width = round(frozen.columns * _WIDE + 2 * _MARGIN)
    height = len(frozen.lines) * _HIGH + 2 * _MARGIN
    used = {name for runs in frozen.lines for run in runs for name in (run.style.ink, run.style.paper)}
    names = sorted((used & _PALETTE.keys()) | {_INK})
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" aria-labelledby="t d">',
            f'<title id="t">{escape(title)}</title>',
            f'<desc id="d">{escape(description)}</desc>',
            f"<style>{_css(names)}</style>",
            f'<rect class="box" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8"/>',
            *_cursor(frozen.cursor),
            *(line for row, runs in enumerate(frozen.lines) for line in _line(runs, row)),
            "</svg>\n",
        )
    )


def _css(names: list[str]) -> str:
    """Return the style sheet: colours for light pages, then those for dark ones. Many programs that draw SVG know no CSS variables."""

    def colours(which: int) -> str:
        inks = "".join(f".{name}{{fill:{_PALETTE[name][which]}}}" for name in names if name != _INK)
        box, ink = (f"fill:{_PALETTE['paper'][which]};stroke:{_PALETTE['edge'][which]}", _PALETTE[_INK][which])
        return f".box{{{box}}}text,.cursor,.{_INK}{{fill:{ink}}}{inks}"

    return (
        f"\ntext{{font:{_FONT}px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}}"
        ".b{font-weight:700}.i{font-style:italic}.u{text-decoration:underline}.cursor{opacity:.5}\n"
        f"{colours(0)}\n@media (prefers-color-scheme:dark){{{colours(1)}}}\n"
    )


def _cursor(cursor: tuple[int, int] | None) -> list[str]:
    if cursor is None:
        return []
    column, row = cursor
    return [f'<rect class="cursor" x="{_x(column)}" y="{_MARGIN + row * _HIGH}" width="{_WIDE}" height="{_HIGH}"/>']


def _line(runs: tuple[Run, ...], row: int) -> list[str]:
    top = _MARGIN + row * _HIGH
    papers = [
        f'<rect{_filled(run.style.paper)} x="{_x(run.column)}" y="{top}" width="{_number(run.columns * _WIDE)}" height="{_HIGH}"/>'
        for run in runs
        if run.style.paper
    ]
    letters = [run for run in runs if run.text.strip()]
    spans = "".join(f'<tspan x="{_places(run)}"{_looks(run.style)}>{escape(run.text.rstrip(), quote=False)}</tspan>' for run in letters)
    return [*papers, f'<text xml:space="preserve" y="{top + 13}">{spans}</text>'] if spans else papers


def _places(run: Run) -> str:
    """Return where a run begins; for letters that another font may paint in another width, where each of them begins."""
    text = run.text.rstrip()
    exact = any(ord(letter) >= _RARE for letter in text)
    return " ".join(_x(run.column + place) for place in range(len(text))) if exact else _x(run.column)


def _looks(style: Style) -> str:
    marks = {"b": style.bold, "i": style.italic, "u": style.underlined}
    named = [style.ink] if style.ink in _PALETTE and style.ink != _INK else []
    classes = [*named, *(mark for mark, is_on in marks.items() if is_on)]
    own = "" if style.ink in _PALETTE else f' fill="#{style.ink}"'
    return (f' class="{" ".join(classes)}"' if classes else "") + own


def _filled(paper: str) -> str:
    return f' class="{paper}"' if paper in _PALETTE else f' fill="#{paper}"'


def _runs(row: list[Char]) -> tuple[Run, ...]:
    """Return the runs of a line. A wide letter has an empty cell behind it, and ends its run, because fonts differ in its width."""
    found: list[Run] = []
    column = 0
    for (style, is_wide), cells in groupby(row, lambda cell: (_style(cell), _is_wide(cell))):
        group = list(cells)
        if not is_wide:
            found.append(Run(column, len(group), "".join(cell.data for cell in group), style))
        else:
            found += [Run(column + place, 2, cell.data, style) for place, cell in enumerate(group) if cell.data]
        column += len(group)
    return tuple(run for run in found if run.text.strip() or run.style.paper)


def _is_wide(cell: Char) -> bool:
    return not cell.data or wcwidth(cell.data[0]) == 2


def _style(cell: Char) -> Style:
    ink, paper = _SAME.get(cell.fg, cell.fg), "" if cell.bg == "default" else _SAME.get(cell.bg, cell.bg)
    ink = ink.removeprefix("bright") if ink not in _PALETTE and ink.startswith("bright") else ink
    if cell.reverse:
        ink, paper = paper or "paper", ink
    return Style(ink, paper, cell.bold, cell.italics, cell.underscore)


def _x(column: int) -> str:
    return _number(_MARGIN + column * _WIDE)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
