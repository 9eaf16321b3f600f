"""Compaction without a model: the running notes of the session take the place of what they cover, and the newest messages stay."""

from dataclasses import dataclass, field

from palimpsest.audit.pins import pinned
from palimpsest.core.edits import Fold, Keep, Put
from palimpsest.core.items import Item, Text, seq_of
from palimpsest.core.pairs import pairs_of, pending_calls
from palimpsest.core.policy import Plan, Proposal
from palimpsest.core.situation import Moment, Situation
from palimpsest.core.view import RunningNotes, View
from palimpsest.policies.notices import is_due
from palimpsest.policies.summarize.summarize import Continued

MIN_TOKENS = 10_000
MAX_TOKENS = 40_000
MIN_TEXTS = 5


@dataclass(frozen=True, slots=True)
class SwapNotes:
    """Keeps `least` to `most` tokens with at least `texts` messages of text, from the last message that the notes cover backwards.

    Rests, so that full compaction runs instead: without notes, with notes that equal their `template`, without a safe place to cut,
    when too much would be left, and when the user has wishes that notes cannot follow.
    """

    least: int = MIN_TOKENS
    most: int = MAX_TOKENS
    texts: int = MIN_TEXTS
    auto: bool = True
    asked: bool = True
    template: str = ""
    form: Continued = field(default_factory=Continued)
    report: str = "Conversation compacted"
    name: str = "swap_notes"
    shrinks: bool = True

    @property
    def moments(self) -> frozenset[Moment]:
        """Before a call when due, and when asked."""
        wanted: tuple[tuple[bool, Moment], ...] = ((self.auto, "before_call"), (self.asked, "asked"))
        return frozenset(moment for on, moment in wanted if on)

    def plan(self, situation: Situation) -> Plan:
        """One fold, or nothing."""
        if situation.asked.strip() or (situation.moment == "before_call" and not is_due(situation)):
            return ()
        notes, view = situation.view.notes, situation.view
        if notes is None or is_empty(notes.text, self.template):
            return ()
        start = self.window(situation, notes)
        if start is None or start <= _after_summary(view.items):
            return ()
        automatic = situation.moment != "asked"
        text = self.form.message(f"Summary:\n{notes.text.strip()}", situation.session, automatic=automatic, kept=start < len(view.items))
        folded = view.items[:start]
        stays = pinned(view).union(item.id for item in pending_calls(view.items))
        keeps = tuple(Keep(item.id) for item in folded if item.id in stays)
        put = Put("summary", Text(text))
        if self._still_full(situation, put, [item for item in folded if item.id in stays] + list(view.items[start:])):
            return ()
        why = f"{'auto' if automatic else 'manual'}: the running notes stand for {start} items, the newest {len(view.items) - start} stay"
        return Proposal((Fold(folded[0].id, folded[-1].id, (put, *keeps)),), why, notices=(self.report,))

    def window(self, situation: Situation, notes: RunningNotes) -> int | None:
        """Where the messages begin that stay; `None` if nothing shows where the notes end."""
        items, counter = situation.view.items, situation.tokens
        covered = _covered(situation.view, notes)
        if covered is None:
            return None
        floor = _after_summary(items)
        start = max(covered, floor)
        tokens = sum(counter.item(item) for item in items[start:])
        while start > floor and not self._enough(tokens, _texts(items[start:])):
            earlier = _message_start(items, start - 1, floor)
            tokens += sum(counter.item(item) for item in items[earlier:start])
            start = earlier
        return _with_calls(items, start, floor)

    def _enough(self, tokens: int, texts: int) -> bool:
        return tokens >= self.most or (tokens >= self.least and texts >= self.texts)

    def _still_full(self, situation: Situation, put: Put, left: list[Item]) -> bool:
        level = situation.budget.compact_at
        counter = situation.tokens
        rest = sum(counter.item(item) for item in (*situation.view.head, *left)) + situation.tools_tokens
        return level is not None and rest + counter.content(put.content) >= level


def is_empty(notes: str, template: str = "") -> bool:
    """Whether notes say nothing: they equal the template, or hold only titles and the slanted lines that describe them."""
    if notes.strip() == template.strip():
        return True
    lines = [line.strip() for line in notes.splitlines() if line.strip()]
    return all(line.startswith("#") or (len(line) > 1 and line[0] == line[-1] == "_") for line in lines)


def _covered(view: View, notes: RunningNotes) -> int | None:
    """The place after the last message that the notes cover; what an edit made has a number of its own and tells nothing."""
    if not 0 <= notes.covers <= view.seq:
        return None
    places = [place for place, item in enumerate(view.items) if item.id.count(".") == 1 and seq_of(item.id) <= notes.covers]
    return places[-1] + 1 if places else None


def _after_summary(items: tuple[Item, ...]) -> int:
    """The place after the last earlier boundary, which no window moves past."""
    return max((place + 1 for place, item in enumerate(items) if item.kind == "summary"), default=0)


def _message_start(items: tuple[Item, ...], place: int, floor: int) -> int:
    """Where the message of an item begins: the run of items that one side says."""
    side = _of_model(items[place])
    while place > floor and _of_model(items[place - 1]) == side:
        place -= 1
    return place


def _texts(items: tuple[Item, ...]) -> int:
    """How many messages contain text."""
    count, side, counted = 0, None, False
    for item in items:
        if _of_model(item) != side:
            side, counted = _of_model(item), False
        if not counted and isinstance(item.content, Text) and item.content.text.strip():
            count, counted = count + 1, True
    return count


def _with_calls(items: tuple[Item, ...], start: int, floor: int) -> int:
    """The start, moved back so far that every result from there on has its call."""
    places = {item.id: place for place, item in enumerate(items)}
    wanted = [places[call.id] for call, result in pairs_of(items) if places[call.id] < start <= places[result.id]]
    if not wanted:
        return start
    return _with_calls(items, _message_start(items, min(wanted), floor), floor)


def _of_model(item: Item) -> bool:
    return item.kind in {"assistant", "thinking", "call"}
