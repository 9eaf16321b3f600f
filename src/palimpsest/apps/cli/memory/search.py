"""`pal memory search`: notes and passages of past sessions for a query, best first."""

from pathlib import Path

import click
from msgspec.structs import replace

from palimpsest.apps.cli.command_line import FINDINGS
from palimpsest.apps.cli.memory.places import cwd_option, open_memories, scope_option, word_of
from palimpsest.apps.cli.output.tables import console, one_line
from palimpsest.apps.cli.output.values import emit, json_option
from palimpsest.apps.shown_text import plain
from palimpsest.core.format.texts import counted
from palimpsest.core.tokens.estimate import estimate
from palimpsest.engine.memory.access.searching import FoundMemory, search_notes
from palimpsest.engine.memory.project_memory import project_memory
from palimpsest.engine.memory.recall.summaries import found_summaries, summaries
from palimpsest.memory.showing.newer import shown_time
from palimpsest.stores.config.memory_config import MemoryConfig
from palimpsest.stores.home import AnyHome

_DATE = len("2026-05-04")
_WIDTH = 78
_MOST_SUMMARIES = 5


@click.command(epilog="\b\nExamples:\n  pal memory search how do the tests run\n  pal memory search staging server --history")
@click.argument("words", nargs=-1, required=True, metavar="WORDS…")
@click.option("--history", is_flag=True, help="Show below each note what it replaced, and find notes by that too.")
@click.option("--sessions", "passages", flag_value="project", help="Find turns of past sessions of this project, too.")
@click.option("--all-sessions", "passages", flag_value="all", help="Find turns of the sessions of all projects, too.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True, metavar="N", help="Print at most N.")
@scope_option
@cwd_option
@json_option
def search(*, words: tuple[str, ...], history: bool, passages: str | None, limit: int, scope: str, cwd: Path, as_json: bool) -> None:
    """Find notes that match WORDS, best first, and turns of past sessions behind them; no model is asked.

    What was corrected is never found before its correction. Exit code 1 if nothing was found, or sessions are not in the index yet.
    """
    opened = open_memories(cwd)
    query = " ".join(words)
    now = opened.home.clock.now()
    found = search_notes(opened.notebooks(scope), query, now, root=opened.root, history=history, most=limit)
    waiting, summarised = 0, _summaries(opened.home, opened.root, query, limit) if scope in ("", "project") else ()
    # Many notes leave room for summaries of sessions.
    found = (*found[: limit - min(len(summarised), limit // 4)], *summarised)[:limit]
    if passages is not None and opened.home.folder is not None:
        from palimpsest.engine.memory.access.passages import search_sessions  # few searches ask for it

        home = opened.home
        said = search_sessions(opened.home.folder, home.store, opened.memories, query, every=passages == "all", most=limit)
        # Many notes leave room for what was said.
        notes = limit - min(len(said.found), limit // 2)
        found, waiting = (*found[:notes], *said.found)[:limit], said.waiting
    if as_json:
        words_of = {notebook.scope: word_of(opened.memories, notebook) for notebook in opened.memories.notebooks}
        emit([replace(each, scope=words_of.get(each.scope, "")) for each in found])
    elif found:
        for each in found:
            _print(each)
    else:
        click.echo("nothing found", err=True)
    if waiting:
        click.echo(f"pal: not in the index yet: {counted(waiting, 'session')}; search again to read more of them", err=True)
    if waiting or not found:
        click.get_current_context().exit(FINDINGS)


def _summaries(home: AnyHome, root: Path, query: str, most: int) -> tuple[FoundMemory, ...]:
    """The summaries of sessions that match a query, as files that can be opened."""
    memory = project_memory(home, root, MemoryConfig())
    if memory is None:
        return ()
    found = found_summaries(summaries(memory), query, min(most, _MOST_SUMMARIES))
    return tuple(FoundMemory(str(each.file), 0.0, each.title, (), "summary", estimate(each.text), each.title, each.date) for each in found)


def _print(found: FoundMemory) -> None:
    if found.status == "summary":
        click.echo(plain(f"{found.note}  {found.when}"))
    elif found.status == "active":
        stale = "  (file changed since)" if found.stale else ""
        click.echo(plain(f"{found.note}  {shown_time(found.when, is_finer=True)}{stale}"))
    elif found.status == "said":
        click.echo(plain(f"{found.evidence[0]}  {found.about}  {found.when[:_DATE]}"))
    else:
        until = f" until {found.until[:_DATE]}" if found.until else ""
        click.echo(plain(f"  was {found.note}  {found.status}{until}"))
    indent = "  " if found.status in ("active", "said", "summary") else "    "
    console().print(indent + one_line(found.text or found.about, _WIDTH - len(indent)), soft_wrap=True)
