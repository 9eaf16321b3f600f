"""`pal memory`: a table of its commands, each imported on use."""

from typing import Final

import click

from palimpsest.apps.cli.command_line import TableGroup

# Name: (module and attribute below apps/cli, one line of help). `pal memory --help` needs only this table.
_COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "list": ("memory.notes:list_", "List notes: name, kind, time, trust, uses, and what each is about."),
    "show": ("memory.notes:show", "Show a note, what it replaced, and whether its files changed since."),
    "add": ("memory.writing:add", "Add a note in your own words, or correct one."),
    "edit": ("memory.writing:edit", "Edit a note in $EDITOR; it is checked before it replaces the old one."),
    "forget": ("memory.removing:forget", "Delete a note for good, with all its past versions."),
    "undo": ("memory.removing:undo", "Bring back the last past version of a note."),
    "promote": ("memory.removing:promote", "Accept notes that are in quarantine."),
    "search": ("memory.search:search", "Find notes, and what was said in past sessions."),
    "why": ("memory.why:why", "Show what a note rests on: who said it, when and in which session."),
    "import": ("memory.exchange:import_", "Import the notes of Claude Code or Codex."),
    "export": ("memory.exchange:export", "Export notes as topic files of Claude Code, as JSON or as one document."),
    "run": ("memory.run:run", "Read finished sessions and consolidate notes now; shows the cost before and after."),
    "status": ("memory.status:status", "Show what the pipeline over finished sessions did, what waits and why."),
    "eval": ("try_out.memory_eval:evaluate", "Measure recall: quality on data with known evidence, and latency."),
}


@click.group(
    cls=TableGroup,
    table=_COMMANDS,
    epilog='\b\nExamples:\n  pal memory add "Tests run with make check." --kind project\n  pal memory list',
)
def memory() -> None:
    """Notes that outlive a session: about you, this project, and where things are.

    Each note is a Markdown file that you can read and edit. Notes about you hold in every project, all others in the project of the
    working directory.
    """
