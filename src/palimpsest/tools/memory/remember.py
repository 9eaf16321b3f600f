"""The tool `remember`: saves one fact as a note that later sessions see."""

from typing import Annotated, Final, Literal, Protocol

from msgspec import Meta, Struct

from palimpsest.tools.tool import AgentTool, ToolOutput, define
from palimpsest.tools.workspace import Workspace

REMEMBER: Final = "remember"


class RememberArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The fact, whose it is and how it was learned, and the words that support it."""

    text: Annotated[str, Meta(min_length=1, max_length=6_000, description="The fact first; then why it holds, and how to apply it.")]
    kind: Annotated[
        Literal["user", "feedback", "project", "reference"],
        Meta(description="user: who they are; feedback: how to work; project: facts that code does not tell; reference: where things are."),
    ] = "project"
    about: Annotated[str, Meta(max_length=150, description="One line by which it is found again; by default the first line.")] = ""
    quote: Annotated[str, Meta(max_length=600, description="At most 25 words of the user, or of a result, verbatim, that say so.")] = ""
    replaces: Annotated[str, Meta(max_length=80, description="Name of the note that this one corrects.")] = ""
    person: Annotated[str, Meta(max_length=80, description="Whom it is about, by name.")] = "user"
    relationship: Annotated[str, Meta(max_length=80, description="That person's relation to the user.")] = "self"
    backstory: Annotated[str, Meta(max_length=400, description="The story behind it: when, from whom and why it was learned.")] = ""
    intensity: Annotated[float, Meta(ge=0, le=1, description="How much the user cared: 0 said in passing, 1 insisted or was upset.")] = 0.0
    attribute: Annotated[str, Meta(max_length=80, description="Stable key with one value at a time, such as test.command.")] = ""


class NoteKeeper(Protocol):
    """What saves a note."""

    async def remember(self, given: RememberArguments) -> ToolOutput:
        """Save a note and return what was done with it. Raises `PalimpsestError` if it is refused or cannot be saved."""
        ...


def remember_tool(keeper: NoteKeeper) -> AgentTool:
    """The tool. What becomes of a call is decided by whose words it quotes, not by what it says about itself."""

    async def remember(given: RememberArguments, _: Workspace) -> ToolOutput:
        return await keeper.remember(given)

    return define(
        RememberArguments,
        remember,
        name=REMEMBER,
        description=(
            "Save one fact for later sessions, when the user asks for it or says something that will still matter then: a preference, a "
            "correction, a decision with its reason, where something is found. Give the user's own words in `quote`, and keep to them in "
            "`text` and `about`; without them only project and reference notes can be saved. Do not save what code, history or instruction "
            "files say, the state of the present task, or secrets. To correct a note, name it in `replaces`. Write dates in full."
        ),
        kind="remembers",
    )
