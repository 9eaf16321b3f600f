"""Styles the Markdown of a text for a page: every character stays in the page, and the marks of Markdown are only not displayed."""

import re
from collections.abc import Iterator
from html import escape

from palimpsest.foreign.exporting.formatting import code_blocks

STYLE = """
.md-mark{display:none}
.md-head{font-weight:700;font-size:1.08em}
.md-bold{font-weight:700}
.md-code{font:.88em/1.4 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:var(--code);border-radius:4px;padding:.05em .3em}
.md-item::before{content:"•"}
.md-quote{color:var(--faint);border-left:3px solid var(--line);padding-left:.6em}
.md-table{display:block;overflow-x:auto;margin:.3rem 0;white-space:normal}
.md-row{display:table-row}
.md-cell{display:table-cell;border:1px solid var(--line);padding:.15rem .5rem}
.md-row.md-first{font-weight:700}
"""
_HEADING = re.compile(r"#{1,6}[ \t]+(?=\S)")
_ITEM = re.compile(r"([ \t]*)([-*+])(?=[ \t]+\S)")
_QUOTE = re.compile(r"> ?(?=.)")
_FENCE_CHARS = frozenset("`~")
_DELIMITER_CHARS = frozenset("| \t:-")
_BOLD = "**"


def rendered(text: str) -> str:
    """Return the markup of a text without control characters: headings, lists, quotes, tables, code and bold words are styled.

    Without its tags the markup is the text, character by character. Links and images stay text, so that a page loads nothing.
    """
    blocks = [_code_block(piece) if is_code else _prose(piece) for is_code, piece in code_blocks(text)]
    return "".join(_joined(blocks))


def _joined(blocks: list[tuple[bool, str]]) -> Iterator[str]:
    """Yield blocks, each with whether it is displayed as a block; the newline beside such a block would show as an empty line."""
    for number, (is_block, markup) in enumerate(blocks):
        if number:
            yield _mark("\n") if is_block or blocks[number - 1][0] else "\n"
        yield markup


def _mark(text: str) -> str:
    return f'<span class="md-mark">{escape(text)}</span>' if text else ""


def _styled(name: str, markup: str) -> str:
    return f'<span class="md-{name}">{markup}</span>'


def _code_block(piece: str) -> tuple[bool, str]:
    """Return a fenced block without its fences; one without content stays as it is, because its block would be empty."""
    opening, _, rest = piece.partition("\n")
    body, newline, last = rest.rpartition("\n")
    closing = last.strip()
    is_closed = bool(closing) and set(closing) <= _FENCE_CHARS and closing[0] == opening[0]
    inner, end = (body, newline + last) if is_closed else (rest, "")
    if not inner.strip():
        return False, escape(piece)
    return True, f'<span class="code">{_mark(f"{opening}{chr(10)}")}{escape(inner)}{_mark(end)}</span>'


def _prose(piece: str) -> tuple[bool, str]:
    lines = piece.split("\n")
    blocks: list[tuple[bool, str]] = []
    at = 0
    while at < len(lines):
        rows = _table_length(lines, at)
        if rows:
            blocks.append((True, _table(lines[at : at + rows])))
        else:
            blocks.append((False, _line(lines[at])))
        at += rows or 1
    return False, "".join(_joined(blocks))


def _table_length(lines: list[str], at: int) -> int:
    """Return the number of lines of a table that begins here; 0 if none does."""
    if not lines[at].startswith("|") or at + 1 >= len(lines) or not _is_delimiter(lines[at + 1]):
        return 0
    end = at + 2
    while end < len(lines) and lines[end].startswith("|"):
        end += 1
    return end - at


def _is_delimiter(line: str) -> bool:
    return line.startswith("|") and "-" in line and set(line) <= _DELIMITER_CHARS


def _table(lines: list[str]) -> str:
    rows = [_row(line, is_first=not number) for number, line in enumerate(lines) if number != 1]
    return _styled("table", _mark(f"\n{lines[1]}\n").join([rows[0], _mark("\n").join(rows[1:])]))


def _row(line: str, *, is_first: bool) -> str:
    first, *cells = line.split("|")
    # What follows the last bar is no cell unless it has text.
    last = _mark(f"|{cells.pop()}") if len(cells) > 1 and not cells[-1].strip() else ""
    markup = "".join(f"{_mark('|')}{_styled('cell', _inline(cell))}" for cell in cells)
    return f'<span class="md-row{" md-first" if is_first else ""}">{escape(first)}{markup}{last}</span>'


def _line(line: str) -> str:
    if heading := _HEADING.match(line):
        return _styled("head", f"{_mark(heading[0])}{_inline(line[heading.end() :])}")
    if item := _ITEM.match(line):
        return f"{item[1]}{_styled('item', _mark(item[2]))}{_inline(line[item.end() :])}"
    if quote := _QUOTE.match(line):
        return _styled("quote", f"{_mark(quote[0])}{_inline(line[quote.end() :])}")
    return _inline(line)


def _inline(text: str) -> str:
    """Return a line with its code and bold words styled; a mark without its partner is text."""
    pieces = text.split("`")
    # An even number of pieces has one mark too many, and the last one stays.
    spans = pieces if len(pieces) % 2 else [*pieces[:-2], f"{pieces[-2]}`{pieces[-1]}"]
    markup = "".join(_code_span(span) if place % 2 else escape(span) for place, span in enumerate(spans))
    return _bold(markup)


def _code_span(span: str) -> str:
    if not span.strip():
        return f"`{escape(span)}`"
    # A mark of bold text inside code is no mark.
    return f'{_mark("`")}<span class="md-code">{escape(span).replace("*", "&#42;")}</span>{_mark("`")}'


def _bold(markup: str) -> str:
    """Return the markup with what stands between two marks of bold text styled; both must touch what they enclose."""
    pieces = markup.split(_BOLD)
    found: list[str] = [pieces[0]]
    at = 1
    while at < len(pieces):
        inner = pieces[at]
        if at + 1 < len(pieces) and inner and not inner[0].isspace() and not inner[-1].isspace():
            found.append(f"{_mark(_BOLD)}{_styled('bold', inner)}{_mark(_BOLD)}{pieces[at + 1]}")
            at += 2
        else:
            found.append(f"{_BOLD}{inner}")
            at += 1
    return "".join(found)
