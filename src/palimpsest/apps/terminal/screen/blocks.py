"""What a conversation consists of on the screen: frozen blocks, which are painted once and then belong to the scrollback."""

from typing import Literal, TypeAlias

from msgspec import Struct

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
