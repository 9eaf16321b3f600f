"""The names of the tools of memory, and the arguments of `remember`, which saves one fact."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

MEMORY: Final = "memory"
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
