"""Blocks of a conversation on the screen, painted as lines: Markdown, diffs, titles of tool calls, colours and symbols."""

import difflib
import re
from collections.abc import Iterator
from io import StringIO
from typing import Final, Literal, TypeAlias, assert_never

import msgspec
from msgspec import Struct
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.styled import Styled
from rich.text import Text
from rich.theme import Theme as RichTheme

from pal.terminal.look import STYLES, ScreenLook
from pal.text import one_line, plain, short
from palimpsest.core.text import price_facts

NoticeLevel: TypeAlias = Literal["info", "warning", "error"]
LineKind: TypeAlias = Literal["added", "removed", "same", "gap"]
ToolState: TypeAlias = Literal["writing", "running", "done", "failed", "refused"]


class UserBlock(Struct, frozen=True):
    """What the user said; `steering` if it joined a running turn. `attachments` name images and folded texts.

    `command`: a line for the terminal itself, which the model does not get.
    """

    text: str
    steering: bool = False
    attachments: tuple[str, ...] = ()
    command: bool = False


class ReplyBlock(Struct, frozen=True):
    """A piece of the model's answer in Markdown: whole blocks of it, such as paragraphs, lists or fences.

    One that `continues` is the rest of a block that was too long for one piece. One that `is_cut_off` is all that arrived of a reply
    whose terminal was killed.
    """

    text: str
    continues: bool = False
    is_cut_off: bool = False


class ThinkingBlock(Struct, frozen=True):
    """Thinking that the model shows; it is painted as one line unless it is opened."""

    text: str


class ToolBlock(Struct, frozen=True):
    """A tool call: its arguments as the model wrote them, and its outcome. `took_ms` is in milliseconds.

    `first_line` is where the changed text of an edit begins in its file.
    """

    call_id: str
    tool: str
    args: str = ""
    state: ToolState = "running"
    output: str = ""
    exit: int | None = None
    took_ms: int = 0
    first_line: int = 1


class FoldBlock(Struct, frozen=True):
    """An edit of the context: its event, its author, tokens before and after, and its price and saving in US dollars if known."""

    seq: int
    by: str
    before: int
    after: int
    price_usd: float | None = None
    saved_usd_per_call: float | None = None


class DiffLine(Struct, frozen=True):
    """A line of a diff; `number` is its number in the new file, or in the old one if it went. 0: not known."""

    kind: LineKind
    text: str = ""
    number: int = 0


class PatchBlock(Struct, frozen=True):
    """The changes of one file, with a word about them, such as `+3 -1`."""

    path: str
    facts: str
    lines: tuple[DiffLine, ...] = ()


class NoticeBlock(Struct, frozen=True):
    """One line about the session: a failure, a hook, a sub-agent, a changed mode."""

    text: str
    level: NoticeLevel = "info"


Block: TypeAlias = UserBlock | ReplyBlock | ThinkingBlock | ToolBlock | FoldBlock | PatchBlock | NoticeBlock


# Arguments that say what a call is about, the most telling first. A tool that has none of them shows its first text.
_SUBJECTS: Final = (
    "command",
    "path",
    "file_path",
    "pattern",
    "query",
    "words",
    "url",
    "title",
    "name",
    "prompt",
    "id",
)


def title_of(block: ToolBlock) -> str:
    """Return the subject of a call in one line; empty if its arguments have none."""
    arguments = arguments_of(block)
    if isinstance(arguments, str):
        return one_line(arguments)
    found = next((arguments[key] for key in _SUBJECTS if arguments.get(key)), None)
    if found is None:
        found = next((value for value in arguments.values() if isinstance(value, str) and value), "")
    if isinstance(found, list):
        found = " ".join(str(each) for each in found)
    scope = arguments.get("path")
    where = f" in {scope}" if scope and scope != found and isinstance(scope, str) else ""
    return one_line(f"{found}{where}")


def arguments_of(block: ToolBlock) -> dict[str, object] | str:
    """Return the arguments by name, or the text of a call that is no JSON object or not complete yet."""
    try:
        return msgspec.json.decode(block.args or "{}", type=dict[str, object])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return block.args


_AROUND: Final = 2
# Lines of each side that are compared; difflib takes quadratic time in the worst case.
MOST_COMPARED: Final = 2_000
_OLD: Final = ("old", "old_string", "old_str")
_HUNK: Final = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_SECTION: Final = "diff --git "
_NEW: Final = ("new", "new_string", "new_str", "content", "file_text")


def diff(old: str, new: str, first: int = 1) -> tuple[DiffLine, ...]:
    """Return the changes between two texts; `first` is the number of their first line in the file."""
    before, after = old.splitlines(), new.splitlines()
    if len(before) > MOST_COMPARED or len(after) > MOST_COMPARED:
        return (
            *(DiffLine("removed", line, first + place) for place, line in enumerate(before[:MOST_COMPARED])),
            *(DiffLine("added", line, first + place) for place, line in enumerate(after[:MOST_COMPARED])),
        )
    return tuple(_changed_lines(before, after, first))


def diff_of(block: ToolBlock) -> tuple[str, tuple[DiffLine, ...]] | None:
    """Return the path and the changes that a call of an edit or write tool states; `None` for calls of other tools."""
    arguments = arguments_of(block)
    if isinstance(arguments, str):
        return None
    path = next((value for key in ("path", "file_path") if isinstance(value := arguments.get(key), str)), "")
    old = next((value for key in _OLD if isinstance(value := arguments.get(key), str)), None)
    new = next((value for key in _NEW if isinstance(value := arguments.get(key), str)), None)
    if not path or new is None:
        return None
    return path, diff(old or "", new, block.first_line)


def patch_files(patch: str) -> dict[str, tuple[DiffLine, ...]]:
    """Return the lines of each file of a unified diff in the form of git, by its path; those of a binary file are none."""
    sections = f"\n{patch}".split(f"\n{_SECTION}")[1:]
    return {_path_of(section): tuple(_patch_lines(section)) for section in sections}


def _path_of(section: str) -> str:
    """The path of a section: behind its `+++`, that of a deleted file behind its `---`, else from its first line."""
    head, *lines = section.split("\n@@ ", 1)[0].split("\n")
    names = {line[:4]: line[4:].rstrip("\t") for line in lines if line[:4] in ("+++ ", "--- ")}
    found = names.get("+++ ", "/dev/null")
    found = names.get("--- ", found) if found == "/dev/null" else found
    if found == "/dev/null":
        # Both names of the first line are equal, because renames are not looked for.
        found = head[: len(head) // 2]
    return found.strip('"')[2:]


def _patch_lines(section: str) -> Iterator[DiffLine]:
    old = new = 0
    # Other marks that Python takes for the end of a line are part of a line to git.
    for line in section.split("\n"):
        hunk = _HUNK.match(line)
        if hunk is not None:
            if new:
                yield DiffLine("gap")
            old, new = int(hunk[1]) or 1, int(hunk[2]) or 1
        elif new and line[:1] == "+":
            yield DiffLine("added", line[1:], new)
            new += 1
        elif new and line[:1] == "-":
            yield DiffLine("removed", line[1:], old)
            old += 1
        elif new and line[:1] == " ":
            yield DiffLine("same", line[1:], new)
            old, new = old + 1, new + 1


def counts(lines: tuple[DiffLine, ...]) -> str:
    """Return how many lines came and went, such as `+3 -1`."""
    added, removed = (sum(line.kind == kind for line in lines) for kind in ("added", "removed"))
    return " ".join(part for part in (f"+{added}" if added else "", f"-{removed}" if removed else "") if part) or "no change"


def _changed_lines(before: list[str], after: list[str], first: int) -> Iterator[DiffLine]:
    groups = difflib.SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(_AROUND)
    for place, group in enumerate(groups):
        if place:
            yield DiffLine("gap")
        for tag, old_start, old_end, new_start, new_end in group:
            if tag == "equal":
                yield from (DiffLine("same", after[at], first + at) for at in range(new_start, new_end))
                continue
            yield from (DiffLine("removed", before[at], first + at) for at in range(old_start, old_end))
            yield from (DiffLine("added", after[at], first + at) for at in range(new_start, new_end))


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
            return painted(_cut_to_width(head, look), look) + _diff(lines, look, opened=opened)
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
    from pal.terminal.markdown import markdown

    text = Styled(markdown(plain(block.text), look), look.style("dim") if block.is_cut_off else "")
    # Rich puts empty lines around tables.
    return ("" if block.continues else "\n") + painted(text, look).strip("\n") + "\n"


def _thinking(block: ThinkingBlock, look: ScreenLook, *, opened: bool) -> str:
    style = f"italic {look.style('dim')}"
    if opened:
        return indented(Text(plain(block.text).strip(), style), f"{look.symbols.thinking} ", look, style)
    return painted(_cut_to_width(Text(f"{look.symbols.thinking} {one_line(plain(block.text))}", style), look), look)


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
    lines = painted(_cut_to_width(head, look, reserve=cell_len(tail), tail=Text(tail, look.style("dim"))), look)
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
    return painted(_cut_to_width(line, look, reserve=tail.cell_len, tail=tail), look)


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


def _cut_to_width(line: Text, look: ScreenLook, *, reserve: int = 0, tail: Text | None = None) -> Text:
    """Return a line that fits the width, with its tail behind it."""
    width = max(10, look.width - reserve)
    if line.cell_len > width:
        line.truncate(width, overflow="ellipsis")
    return line if tail is None else line.append_text(tail)


def _fitted(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, max(1, width - 1)).rstrip() + "…"
