"""The tools that the server declares: names, arguments, descriptions, and which of them change notes."""

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from palimpsest.tools.memory.remember import RememberArguments
from palimpsest.tools.tool import schema_of

Session = Annotated[str, Meta(max_length=200, description="Id of a session, as results name it, or the id it has in its own program.")]


class RecallQuestion(Struct, frozen=True, forbid_unknown_fields=True):
    """A question to notes and past sessions."""

    query: Annotated[str, Meta(min_length=1, max_length=2_000, description="What you want to know, in plain words.")]
    all_projects: Annotated[bool, Meta(description="Look in the sessions of all projects.")] = False
    history: Annotated[bool, Meta(description="Add what notes said before they were corrected.")] = False


class SearchWords(Struct, frozen=True, forbid_unknown_fields=True):
    """Words to find in sessions."""

    words: Annotated[str, Meta(min_length=1, max_length=500, description='Words that all occur; "a phrase", prefix* and -word work.')]
    session: Session = ""


class ItemName(Struct, frozen=True, forbid_unknown_fields=True):
    """An item of a session, or a note."""

    id: Annotated[
        str, Meta(min_length=1, max_length=200, description="Id of an item such as 17.2, or without a session the name of a note.")
    ]
    session: Session = ""
    offset: Annotated[int, Meta(ge=0, description="Byte at which a long item goes on.")] = 0


class OutsideNote(RememberArguments, frozen=True, forbid_unknown_fields=True):
    """A note, and the session whose words it quotes."""

    session: Session = ""


class ForgetName(Struct, frozen=True, forbid_unknown_fields=True):
    """A note that is to be deleted."""

    name: Annotated[str, Meta(min_length=1, max_length=80, description="Name of the note, as list_notes has it.")]


class NoteFilter(Struct, frozen=True, forbid_unknown_fields=True):
    """Which notes are listed."""

    kind: Annotated[Literal["", "user", "feedback", "project", "reference"], Meta(description="Only notes of this kind.")] = ""


class DeclaredTool(Struct, frozen=True):
    """A tool as clients see it. `changes` says whether it reads only, adds, or deletes."""

    name: str
    arguments: type[Struct]
    description: str
    changes: Literal["nothing", "adds", "deletes"] = "nothing"

    def declaration(self) -> dict[str, Any]:
        """Return the tool as a client sees it in `tools/list`."""
        hints = {"readOnlyHint": self.changes == "nothing", "destructiveHint": self.changes == "deletes", "openWorldHint": False}
        return {"name": self.name, "description": self.description, "inputSchema": schema_of(self.arguments), "annotations": hints}


TOOLS: Final = (
    DeclaredTool(
        "recall",
        RecallQuestion,
        "Answer a question from the user's notes and the past sessions of this project: earlier decisions, how an error was fixed, which "
        "command works. Results name the session and item that each line comes from; show_item shows one in full. No model is asked.",
    ),
    DeclaredTool(
        "search_sessions",
        SearchWords,
        "Find exact words in all recorded sessions, or in one: messages, commands, results, paths. Returns at most 20 lines, each with the "
        "item and session that show_item takes.",
    ),
    DeclaredTool(
        "show_item",
        ItemName,
        "Show an item of a session in full, in pieces of 20 kB: a message, a call or a result that search_sessions or recall names; or the "
        "note of that name.",
    ),
    DeclaredTool("list_notes", NoteFilter, "List the notes that are remembered for this user and this project, one line each."),
    DeclaredTool(
        "remember",
        OutsideNote,
        "Save one fact for later sessions, when the user asks for it: a preference, a correction, a decision with its reason. With a quote "
        "of the user's words in a recorded session it counts as theirs; else it is held until the user accepts it with `pal memory "
        "promote`. Do not save what code or history says, the state of the present task, or secrets.",
        "adds",
    ),
    DeclaredTool(
        "forget",
        ForgetName,
        "Delete a note for good, with all past versions, when the user asks for it. It cannot be undone.",
        "deletes",
    ),
)


def offered_tools(*, write: bool) -> tuple[DeclaredTool, ...]:
    """Return the tools of a server; one without `write` offers none that change notes."""
    return tuple(tool for tool in TOOLS if write or tool.changes == "nothing")
