"""The three answers to the question whether a tool call may run, and how answers about parts of a call combine."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, Protocol, TypeAlias

from msgspec import Struct

Mode: TypeAlias = Literal["ask", "edits", "plan", "auto"]
"""`plan` changes nothing; `ask` asks before every change; `edits` changes files of the workspace; `auto` also runs what a sandbox holds."""

MODE_TEXTS: Final[Mapping[Mode, str]] = {
    "ask": "Reads run; changes and commands are asked about.",
    "edits": "Changes of files in the project run too; commands are asked about.",
    "plan": "Nothing is changed, whatever rules allow.",
    "auto": "Changes run, and so do commands that the sandbox confines.",
}
"""What each mode means, for user interfaces."""

LONGEST_SHOWN: Final = 4_000
READ_ONLY: Final = "read-only"
"""What allows a call that is known to change nothing."""
NOTES: Final = "notes"
"""What allows a change of the agent's own notes, which need no question."""
SANDBOX: Final = "sandbox"
"""What allows a command without a question because a sandbox holds it, and hides from it what rules restrict."""


class Allow(Struct, frozen=True):
    """The call may run; `by` names the mode or the rule that allows it."""

    by: str


class AskUser(Struct, frozen=True):
    """The user decides. `rule` is the text of the rule that the answer "always" creates; empty where no lasting rule is safe."""

    question: str
    rule: str = ""


class Deny(Struct, frozen=True):
    """The call must not run; `why` is for the model and the user."""

    by: str
    why: str


Decision: TypeAlias = Allow | AskUser | Deny


class AgentMode(Protocol):
    """The mode of an agent: what it may do without a question. The class, `LiveMode`, stands in `coding`, above this room."""

    @property
    def current(self) -> str:
        """The mode that decides about the next tool call."""
        ...

    @property
    def collaborations(self) -> tuple[str, ...]:
        """The ways of working together that can be selected beside it, under some profiles."""
        ...

    @property
    def collaboration(self) -> str:
        """The way of working together that holds; empty for none."""
        ...

    def change(self, mode: str) -> None:
        """Decide by another mode from the next tool call on, or work together in another way. Raises `BadInput` if there is neither."""
        ...


def strictest(decisions: Iterable[Decision]) -> Decision | None:
    """The strictest of some decisions, the first among equals; `None` if there are none."""
    return max(decisions, key=_strictness, default=None)


def _strictness(decision: Decision) -> int:
    match decision:
        case Allow():
            return 0
        case AskUser():
            return 1
        case Deny():
            return 2


def displayable(text: str) -> str:
    """A text of the model as it is shown in a question: control and direction characters escaped, the middle of a long text left out.

    A question that a terminal would render differently from what runs could be answered wrongly.
    """
    visible = "".join([letter if letter.isprintable() or letter == "\n" else letter.encode("unicode_escape").decode() for letter in text])
    if len(visible) <= LONGEST_SHOWN:
        return visible
    half = LONGEST_SHOWN // 2
    return f"{visible[:half]}\n[{len(visible) - LONGEST_SHOWN:,} more characters]\n{visible[-half:]}"


class Approval(Struct, frozen=True):
    """The answer of the user: `always` also creates the rule of the question; `why` of a refusal is shown to the model."""

    answer: Literal["once", "always", "no"]
    by: str = "user"
    why: str = ""
