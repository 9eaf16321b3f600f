"""Claude Code's compaction without a model: running notes replace the items that they cover, and the newest messages stay."""

from dataclasses import dataclass, field

from palimpsest.audit.pins import pinned
from palimpsest.core.edits import Fold, Keep, Put
from palimpsest.core.format.texts import counted
from palimpsest.core.items import MODEL_KINDS, Item, Text, seq_of
from palimpsest.core.pairs import pairs_of, pending_calls
from palimpsest.core.policy import Plan, Proposal
from palimpsest.core.situation import Moment, Situation
from palimpsest.core.view import RunningNotes, View
from palimpsest.policies.fold_threshold import is_fold_due
from palimpsest.policies.summarize.summarize import ContinuationMessage

MIN_TOKENS = 10_000
MAX_TOKENS = 40_000
MIN_TEXTS = 5


@dataclass(frozen=True, slots=True)
class SwapNotes:
    """Folds what the running notes cover; keeps at least `least` tokens and `texts` messages with text, and at most `most` tokens.

    Does nothing, so that a summary is made instead: without notes, with notes that equal their `template`, without a place to cut, when
    the view would still be over the budget, and when the user gave instructions for the compaction.
    """

    least: int = MIN_TOKENS
    most: int = MAX_TOKENS
    texts: int = MIN_TEXTS
    auto: bool = True
    asked: bool = True
    template: str = ""
    form: ContinuationMessage = field(default_factory=ContinuationMessage)
    report: str = "Conversation compacted"
    name: str = "swap_notes"
    shrinks: bool = True

    @property
    def moments(self) -> frozenset[Moment]:
        """Return the moments that the switches `auto` and `asked` turn on."""
        wanted: tuple[tuple[bool, Moment], ...] = ((self.auto, "before_call"), (self.asked, "asked"))
        return frozenset(moment for on, moment in wanted if on)

    def plan(self, situation: Situation) -> Plan:
        """Propose one fold into the notes, if it is due and possible."""
        if situation.asked.strip() or (situation.moment == "before_call" and not is_fold_due(situation)):
            return ()
        notes, view = situation.view.notes, situation.view
        if notes is None or is_empty_notes(notes.text, self.template):
            return ()
        start = self.kept_start(situation, notes)
        if start is None or start <= _after_summary(view.items):
            return ()
        automatic = situation.moment != "asked"
        text = self.form.message(f"Summary:\n{notes.text.strip()}", situation.transcript, automatic=automatic, kept=start < len(view.items))
        folded = view.items[:start]
        kept_ids = pinned(view).union(item.id for item in pending_calls(view.items))
        keeps = tuple(Keep(item.id) for item in folded if item.id in kept_ids)
        put = Put("summary", Text(text))
        if self._still_full(situation, put, [item for item in folded if item.id in kept_ids] + list(view.items[start:])):
            return ()
        covered = counted(start, "item")
        why = f"{'auto' if automatic else 'manual'}: the running notes stand for {covered}, the newest {len(view.items) - start} stay"
        return Proposal((Fold(folded[0].id, folded[-1].id, (put, *keeps)),), why, notices=(self.report,))

    def kept_start(self, situation: Situation, notes: RunningNotes) -> int | None:
        """Return the index of the first message that stays; `None` if the view has no item that the notes cover."""
        items, counter = situation.view.items, situation.tokens
        covered = _covered_end(situation.view, notes)
        if covered is None:
            return None
        floor = _after_summary(items)
        start = max(covered, floor)
        tokens = sum(counter.item(item) for item in items[start:])
        while start > floor and tokens < self.most and (tokens < self.least or _count_texts(items[start:]) < self.texts):
            earlier = _message_start(items, start - 1, floor)
            tokens += sum(counter.item(item) for item in items[earlier:start])
            start = earlier
        return _with_calls(items, start, floor)

    def _still_full(self, situation: Situation, put: Put, kept: list[Item]) -> bool:
        level = situation.budget.compact_at
        counter = situation.tokens
        rest = sum(counter.item(item) for item in (*situation.view.head, *kept)) + situation.tools_tokens
        return level is not None and rest + counter.content(put.content) >= level


def is_empty_notes(notes: str, template: str = "") -> bool:
    """Return whether notes have no content: they equal the template, or have only headings and lines in italics."""
    if notes.strip() == template.strip():
        return True
    lines = [line.strip() for line in notes.splitlines() if line.strip()]
    return all(line.startswith("#") or (len(line) > 1 and line[0] == line[-1] == "_") for line in lines)


def _covered_end(view: View, notes: RunningNotes) -> int | None:
    """Return the index after the last item that the notes cover; items made by an edit do not count, as their number is the edit's."""
    if not 0 <= notes.covers <= view.seq:
        return None
    places = [place for place, item in enumerate(view.items) if item.id.count(".") == 1 and seq_of(item.id) <= notes.covers]
    return places[-1] + 1 if places else None


def _after_summary(items: tuple[Item, ...]) -> int:
    """Return the index after the last summary; kept messages begin there at the earliest."""
    return max((place + 1 for place, item in enumerate(items) if item.kind == "summary"), default=0)


def _message_start(items: tuple[Item, ...], place: int, floor: int) -> int:
    """Return the start of the message of an item: the run of items of the same side, model or user."""
    by_model = items[place].kind in MODEL_KINDS
    while place > floor and (items[place - 1].kind in MODEL_KINDS) == by_model:
        place -= 1
    return place


def _count_texts(items: tuple[Item, ...]) -> int:
    """Return how many messages contain text."""
    count, side, counted = 0, None, False
    for item in items:
        if (item.kind in MODEL_KINDS) != side:
            side, counted = item.kind in MODEL_KINDS, False
        if not counted and isinstance(item.content, Text) and item.content.text.strip():
            count, counted = count + 1, True
    return count


def _with_calls(items: tuple[Item, ...], start: int, floor: int) -> int:
    """Move a start back until every result after it has its call after it too."""
    places = {item.id: place for place, item in enumerate(items)}
    calls_before = [places[call.id] for call, result in pairs_of(items) if places[call.id] < start <= places[result.id]]
    if not calls_before:
        return start
    return _with_calls(items, _message_start(items, min(calls_before), floor), floor)
