"""Compares observed values with what the view states, and returns the statements that make the view current."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from palimpsest.core.events.context import ContextStated, Statement
from palimpsest.core.items import Text, seq_of
from palimpsest.core.view import CHANGED, Fact, View
from palimpsest.sources.source import Fields, Source, SourceSet, covers, recorded, recorded_fields

GONE: Final = "{}"
"""Recorded value of the statement that a source no longer has a value; no observed value is empty."""

_REPLIES: Final = frozenset({"assistant", "thinking", "call"})


def reconcile(view: View, sources: SourceSet, observations: Mapping[str, Fields | None], *, renew: bool = False) -> ContextStated | None:
    """Return the statements that make the view current, or `None` if it already is.

    Without a head of these sources, a head is stated, which starts an epoch. In an epoch the head stays as it is: a changed value is stated
    at the end. A value whose statement is no longer visible, because it was folded or masked, is stated in full again. Directly after
    a fold, a head that is no longer current is replaced, if the source set renews it. Sources without an observation are left as they are.
    With `renew` a head that is no longer current is replaced in any case, because it shows what must not be shown again.
    """
    folded = is_just_folded(view)
    order = [source for source in sources.ordered(folded=folded) if source.key in observations]
    renews = renew or (folded and sources.renews_head)
    head = _new_head(view, sources, order, observations, renews=renews)
    stated = {statement.source: statement for statement in head or ()}
    valid: dict[str, Fields] = {}
    items: list[Statement] = []
    for source in order:
        fields = observations[source.key]
        if head is not None and source.place == "head":
            valid[source.key] = fields if source.key in stated and fields is not None else {}
            continue
        known = _known(view, source.key)
        if source.covered_by and fields is not None and covers(valid.get(source.covered_by, {}), fields):
            continue
        statement = _statement(source, known, fields)
        if statement is not None:
            items.append(statement)
            valid[source.key] = fields or {}
        else:
            valid[source.key] = known.fields or {}
    return ContextStated(tuple(items), head) if items or head is not None else None


def folded_at(view: View) -> int:
    """Return the event of the newest fold that left a summary in the view, -1 if there is none."""
    return max((seq_of(item.id) for item in view.items if item.kind == "summary" and item.id.count(".") == 2), default=-1)


def is_just_folded(view: View) -> bool:
    """Return whether the view was folded after its head was stated and no model has replied since, so that no cached prefix is lost."""
    newest = folded_at(view)
    if newest < 0 or (view.head and seq_of(view.head[0].id) > newest):
        return False
    return not any(item.kind in _REPLIES and seq_of(item.id) > newest for item in view.items)


def outdated_by_fold(view: View, observations: Mapping[str, Fields | None]) -> tuple[str, ...]:
    """Return the ids of statements that the newest fold kept and that differ from what is observed now.

    After a fold the present state is stated in full; an older statement of it beside that would contradict it.
    """
    fold = folded_at(view)
    found: list[str] = []
    for key, fields in observations.items():
        facts = [fact for fact in (view.facts.get(key), view.facts.get(key + CHANGED)) if fact is not None]
        newest = max(facts, key=lambda fact: seq_of(fact.id), default=None)
        if newest is None or seq_of(newest.id) > fold or newest.value == (GONE if fields is None else recorded(fields)):
            continue
        found += [fact.id for fact in facts]
    return tuple(found)


def stated_value(view: View, key: str) -> Fields | None:
    """Return the newest visible value of a source, long fields by their digest; `None` if none is visible or it is gone."""
    return _known(view, key).fields or None


class _Known(NamedTuple):
    """What the view states of a source: the baseline, and the newest statement, which is the baseline or a change of it."""

    base: Fact | None
    newest: Fact | None

    @property
    def fields(self) -> Fields | None:
        return None if self.newest is None else recorded_fields(self.newest.value)


def _known(view: View, key: str) -> _Known:
    base, change = view.facts.get(key), view.facts.get(key + CHANGED)
    if base is None:
        # A change without its baseline is incomplete.
        return _Known(None, None)
    return _Known(base, change if change is not None and seq_of(change.id) > seq_of(base.id) else base)


def _statement(source: Source, known: _Known, fields: Fields | None) -> Statement | None:
    base, newest = known
    if base is None or newest is None:
        if fields is None:
            return None
        text = source.update(None, fields) if source.place == "head" else source.baseline(fields)
        return Statement(source.key, text, source.role, recorded(fields)) if text else None
    value = GONE if fields is None else recorded(fields)
    if newest.value == value:
        return None
    # Back at the value of the baseline there is no difference left to state.
    previous = None if value == base.value else recorded_fields(base.value)
    text = source.removal if fields is None else source.update(previous, fields)
    return Statement(source.key + CHANGED, text, source.role, value) if text else None


def _new_head(
    view: View, sources: SourceSet, order: list[Source], observations: Mapping[str, Fields | None], *, renews: bool
) -> tuple[Statement, ...] | None:
    """Return the statements of a new head, or `None` if the head stays."""
    keys = {source.key for source in sources.sources if source.place == "head"}
    missing = not any(item.source in keys for item in view.head)
    if not missing and not (renews and keys <= observations.keys()):
        return None
    head = tuple(
        Statement(source.key, text, source.role, recorded(fields))
        for source in order
        if source.place == "head" and (fields := observations[source.key]) is not None and (text := source.baseline(fields))
    )
    if missing:
        return head or None
    current = [(item.source, item.content) for item in view.head]
    return None if [(each.source, Text(each.text, each.role, ref=each.ref)) for each in head] == current else head
