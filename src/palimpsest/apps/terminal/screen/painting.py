"""Paints blocks as lines with colours, in a given width."""

from io import StringIO
from typing import Final, assert_never

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.styled import Styled
from rich.text import Text
from rich.theme import Theme as RichTheme

from palimpsest.apps.shown_text import plain, short
from palimpsest.apps.terminal.screen.blocks import (
    Block,
    DiffLine,
    FoldBlock,
    NoticeBlock,
    PatchBlock,
    ReplyBlock,
    ThinkingBlock,
    ToolBlock,
    UserBlock,
)
from palimpsest.apps.terminal.screen.diffs import counts, diff_of
from palimpsest.apps.terminal.screen.look import STYLES, ScreenLook
from palimpsest.apps.terminal.screen.tool_titles import one_line, title_of
from palimpsest.core.format.texts import price_facts

# Lines of an output, of a diff and of the user's own text, while it is folded.
_FOLDED_OUTPUT, _FOLDED_DIFF, _FOLDED_USER = 4, 24, 40
# Opens the list of edits at the newest one.
AUDIT_KEY: Final = "Ctrl-T"
_LONGEST_LINE: Final = 2_000
# Rich's own colours of code inside of a line are those of a dark terminal, on black.
_THEMES: Final = {theme: RichTheme({"markdown.code": styles["accent"]}) for theme, styles in STYLES.items()}
_STATES: Final = {"done": "good", "running": "accent", "writing": "dim", "failed": "bad", "refused": "warning"}


def paint(block: Block, look: ScreenLook, *, opened: bool = False) -> str:
    """Return a block as lines with escape sequences, each ended by a newline. An `opened` block is painted in full."""
    match block:
        case UserBlock():
            return _user(block, look, opened=opened)
        case ReplyBlock():
            return _reply(block, look)
        case ThinkingBlock():
            return _thinking(block, look, opened=opened)
        case ToolBlock():
            return _tool(block, look, opened=opened)
        case FoldBlock():
            return _fold(block, look)
        case PatchBlock(path=path, facts=facts, lines=lines):
            head = Text.assemble((f"{look.symbols.tool} ", look.style("accent")), (plain(path), "bold"), (f" ({facts})", look.style("dim")))
            return painted(_cut(head, look), look) + _diff(lines, look, opened=opened)
        case NoticeBlock(text=text, level=level):
            style = look.style({"info": "dim", "warning": "warning", "error": "bad"}[level])
            return indented(Text(one_line(plain(text)), style), f"{look.symbols.notice} ", look, style)
        case _:
            assert_never(block)


def painted(text: object, look: ScreenLook, width: int | None = None) -> str:
    """Return anything that rich can print as lines with escape sequences."""
    out = StringIO()
    console = Console(
        file=out,
        width=width or look.text_width,
        color_system=None if look.colours == "none" else look.colours,
        force_terminal=look.colours != "none",
        no_color=look.colours == "none",
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        theme=_THEMES[look.theme],
    )
    console.print(text)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def _user(block: UserBlock, look: ScreenLook, *, opened: bool) -> str:
    mark, style = look.symbols.user, look.style("dim" if block.command else "user")
    lines = plain(block.text).splitlines() or [""]
    hidden = 0 if opened else max(0, len(lines) - _FOLDED_USER)
    shown = lines[: len(lines) - hidden]
    text = Text("\n".join(shown), style)
    if hidden:
        text.append(f"\n{look.symbols.more} {hidden:,} more lines", look.style("dim"))
    for name in block.attachments:
        text.append(f"\n[{name}]", look.style("dim"))
    if block.steering:
        text.append("  (while it worked)", look.style("dim"))
    return "\n" + indented(text, f"{mark} ", look, style)


def _reply(block: ReplyBlock, look: ScreenLook) -> str:
    # Rich's Markdown and the parser behind it take 60 ms to load, and the first prompt must not wait for them.
    from palimpsest.apps.terminal.screen.markdown import markdown

    text = Styled(markdown(plain(block.text), look), look.style("dim") if block.is_cut_off else "")
    # Rich puts empty lines around tables.
    return ("" if block.continues else "\n") + painted(text, look).strip("\n") + "\n"


def _thinking(block: ThinkingBlock, look: ScreenLook, *, opened: bool) -> str:
    style = f"italic {look.style('dim')}"
    if opened:
        return indented(Text(plain(block.text).strip(), style), f"{look.symbols.thinking} ", look, style)
    return painted(_cut(Text(f"{look.symbols.thinking} {one_line(plain(block.text))}", style), look), look)


def _tool(block: ToolBlock, look: ScreenLook, *, opened: bool) -> str:
    symbols = look.symbols
    marks = {"failed": symbols.failed, "refused": symbols.failed, "done": symbols.tool, "writing": symbols.writing}
    mark = marks.get(block.state, symbols.running)
    style = look.style(_STATES[block.state])
    # A call that has not run is dim as a whole.
    head = Text(style=style if block.state == "writing" else "").append(f"{mark} ", style).append(plain(block.tool), "bold")
    head.append(f" {plain(title_of(block))}")
    changed = diff_of(block) if block.state != "refused" else None
    facts = [counts(changed[1])] if changed is not None else []
    if block.exit:
        facts.append(f"exit {block.exit}")
    if block.took_ms >= 1_000:
        facts.append(f"{block.took_ms / 1000:.1f} s")
    tail = f" ({', '.join(facts)})" if facts else ""
    lines = painted(_cut(head, look, reserve=cell_len(tail), tail=Text(tail, look.style("dim"))), look)
    if changed is not None and block.state != "failed":
        return lines + _diff(changed[1], look, opened=opened)
    return lines + _output(block, look, opened=opened)


def _output(block: ToolBlock, look: ScreenLook, *, opened: bool) -> str:
    """Return the output of a call: all of it, or its last lines if it failed, or nothing."""
    text = plain(block.output).strip("\n")
    if not text or (block.state in ("writing", "running", "done") and not opened):
        return ""
    lines = text.splitlines()
    most = len(lines) if opened else _FOLDED_OUTPUT
    hidden = len(lines) - most
    shown = [f"{look.symbols.more} {hidden:,} lines before"] if hidden > 0 else []
    shown += [line[:_LONGEST_LINE] for line in lines[-most:]]
    return indented(Text("\n".join(shown), look.style("dim")), "  ", look, "")


def _diff(lines: tuple[DiffLine, ...], look: ScreenLook, *, opened: bool) -> str:
    shown = lines if opened else lines[:_FOLDED_DIFF]
    digits = len(str(max((line.number for line in shown), default=0)))
    text = Text()
    for line in shown:
        if line.kind == "gap":
            text.append(f"  {' ' * digits} {look.symbols.more}\n", look.style("dim"))
            continue
        sign = {"added": "+", "removed": "-", "same": " "}[line.kind]
        style = look.style(line.kind) if line.kind != "same" else look.style("dim")
        text.append(f"  {line.number:>{digits}} ", look.style("dim"))
        # Tabs are shown as wide as the terminal of most people shows them, so that lines can be cut by columns.
        text.append(f"{sign} {_fitted(plain(line.text).expandtabs(4), look.width - digits - 5)}\n", style)
    if len(shown) < len(lines):
        text.append(f"  {look.symbols.more} {len(lines) - len(shown):,} more lines\n", look.style("dim"))
    text.rstrip()
    return painted(text, look, look.width) if text.plain else ""


def _fold(block: FoldBlock, look: ScreenLook) -> str:
    """Return the one line of an edit. In a narrow terminal its price goes first, then its saving; the key stays."""
    sizes = f": {short(block.before)} {look.symbols.becomes} {short(block.after)} tokens" if block.before and block.after else ""
    head = f"{look.symbols.fold} {plain(block.by)} {block.seq}{sizes}"
    facts = [f", {fact}" for fact in price_facts(block.price_usd, block.saved_usd_per_call)]
    tail = Text(f" ({AUDIT_KEY})", look.style("dim"))
    while facts and cell_len(head) + cell_len("".join(facts)) + tail.cell_len > look.width:
        facts.pop()
    line = Text(head + "".join(facts), look.style("dim"))
    return painted(_cut(line, look, reserve=tail.cell_len, tail=tail), look)


def gap(before: Block | None, block: Block) -> str:
    """Return an empty line where tools, edits or notices follow a reply; replies and messages begin with one themselves."""
    return "\n" if isinstance(before, ReplyBlock) and not isinstance(block, ReplyBlock | UserBlock) else ""


def indented(text: Text, first: str, look: ScreenLook, style: str) -> str:
    """Return wrapped text whose first line begins with a mark, and whose other lines are indented as far."""
    indent = cell_len(first)
    width = max(10, look.text_width - indent)
    body = painted(text, look, width).splitlines()
    mark = painted(Text(first.rstrip(), style), look).rstrip("\n")
    return "".join(f"{mark + ' ' if mark and place == 0 else ' ' * indent}{line}".rstrip() + "\n" for place, line in enumerate(body))


def _cut(line: Text, look: ScreenLook, *, reserve: int = 0, tail: Text | None = None) -> Text:
    """Return a line that fits the width, with its tail behind it."""
    width = max(10, look.width - reserve)
    if line.cell_len > width:
        line.truncate(width, overflow="ellipsis")
    return line if tail is None else line.append_text(tail)


def _fitted(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, max(1, width - 1)).rstrip() + "…"
