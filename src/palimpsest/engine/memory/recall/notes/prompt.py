"""Finds the notes that bear on a prompt, within the bounds of a prompt and of an epoch."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import Recalled
from palimpsest.core.items import Text, ToolCall, seq_of
from palimpsest.core.view import View
from palimpsest.engine.calls.plans import carry_out
from palimpsest.engine.memory.recall.notes.index import NoteIndex
from palimpsest.engine.memory.recall.notes.search import fitting_hits, scored_notes
from palimpsest.engine.memory.recall.stale_files import StaleFiles
from palimpsest.engine.memory.session_memory import SessionMemory
from palimpsest.memory.recall.ranking import rank
from palimpsest.memory.showing.note_block import NotesShown, ScoredNote, show_notes
from palimpsest.memory.showing.note_units import not_to_show, pinned_names
from palimpsest.memory.showing.pick import MOST_OFFERED, offer_line, pick_notes

# Calls whose tools count as in use.
RECENT_CALLS: Final = 5
# Earlier prompts that tell what is being worked on, and characters of each.
RECENT_PROMPTS: Final = 3
_PLAN_CHARACTERS: Final = 1_000
_RECORDED_QUERY: Final = 500


class NotePrompt:
    """Recalls notes for the prompts of one session."""

    def __init__(self, memory: SessionMemory, index: NoteIndex) -> None:
        self._memory = memory
        self._session = memory.agent.session
        self._index = index
        self._files = StaleFiles(memory.agent.toolbox.workspace.root)

    def prepare(self) -> None:
        """Load the index and the counts of use, so that the first prompt does not wait for them. Raises `PalimpsestError` as `recall`."""
        index = self._index.refresh()
        self._index.uses("")
        # A first ranking compiles patterns and fills caches of the process.
        rank(index, "notes", most=1)
        for scope in self._index.scopes:
            # The first note that is read of a scope reads its log, for edits by hand.
            next(map(scope.notebook.note, scope.entries), None)

    async def recall(self, text: str) -> Recalled | None:
        """Return what a prompt recalls; `None` if that is nothing. Raises `PalimpsestError` if files cannot be read."""
        offload, rules = self._session.environment.offload, self._session.profile.notes
        found = await offload(lambda: self._find(text))
        if found and (rules.recall == "model" or self._memory.config.recall_pick):
            found = await self._picked(text, found)
        if not found:
            return None
        shown = await offload(lambda: self._shown(text, found))
        if not shown.names:
            return None
        parts = tuple(Text(each) for each in shown.texts)
        return Recalled(text[:_RECORDED_QUERY], shown.names, shown.scores, parts, shown.tokens)

    def _find(self, text: str) -> list[ScoredNote]:
        """Return the notes that may be shown for a prompt, best first."""
        self._index.refresh()
        view = self._session.log.view
        entries = self._index.entries
        now = datetime.fromtimestamp(self._session.environment.clock.now() / 1000, UTC)
        excluded = not_to_show(entries, now, recent_tools(view)) | self._shown_before(view)
        if self._session.profile.notes.head == "index and summary":
            excluded |= pinned_names(entries)
        hits = fitting_hits(self._index, text, now, excluded, self._plan(view))
        return scored_notes(self._index, self._files, hits, now, text=text, excluded=excluded)

    def _plan(self, view: View) -> str:
        """Return what is being worked on: the last prompts that the view shows, and the open tasks."""
        prompts = [item.content.text for item in view.items if item.kind in ("user", "steering") and isinstance(item.content, Text)]
        return "\n".join((*(text[:_PLAN_CHARACTERS] for text in prompts[-RECENT_PROMPTS:]), *self._memory.agent.open_tasks()))

    def _shown_before(self, view: View) -> frozenset[str]:
        """Return the notes that prompts recalled since the last fold: those whose items are in the view, masked or not."""
        return frozenset(name for body in self._recalled(view) for name in body.notes)

    def _recalled(self, view: View) -> Iterator[Recalled]:
        events = dict.fromkeys(seq_of(item.id) for item in view.items if item.kind == "recalled")
        for seq in events:
            body = self._session.log.event(seq).body
            if isinstance(body, Recalled):
                yield body

    def _shown(self, text: str, found: Sequence[ScoredNote]) -> NotesShown:
        config = self._memory.config
        used = sum(body.tokens for body in self._recalled(self._session.log.view))
        tokens = min(config.recall_tokens, max(0, config.recall_epoch_tokens - used))
        return show_notes(found, text, tokens=tokens, most=config.recall_notes)

    async def _picked(self, text: str, found: list[ScoredNote]) -> list[ScoredNote]:
        """Return the notes that a model chose. If it fails, the order by words stands."""
        offered = found[:MOST_OFFERED]
        names = [each.note.name for each in offered]
        lines = [offer_line(each.note) for each in offered]
        model = self._memory.config.recall_model or self._memory.config.model
        steps = pick_notes(text, lines, names, recent_tools(self._session.log.view), model)
        try:
            chosen = await carry_out(steps, self._session)
        except PalimpsestError:
            # The failed call is in the log.
            return found
        by_name = {each.note.name: each for each in offered}
        with_newer = [each for name in chosen for each in (*by_name[name].newer[:1], name) if each in by_name]
        return [by_name[name] for name in dict.fromkeys(with_newer)]


def recent_tools(view: View) -> tuple[str, ...]:
    """Return the tools of the last five calls that the view shows."""
    calls = [item.content.tool for item in view.items if isinstance(item.content, ToolCall)]
    return tuple(dict.fromkeys(calls[-RECENT_CALLS:]))
