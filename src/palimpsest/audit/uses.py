"""Uses: when each tool result arrived, was last named and superseded, and after which model call it is dead."""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import ClassVar, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from palimpsest.audit.entities import names_used
from palimpsest.audit.tools.calls import Action, ToolClass, action_of, action_with, exit_of
from palimpsest.audit.visibility.result_index import (
    ResultIndex,
    calls_by_id,
    index_results,
    names_in_reply,
    names_in_result,
    results_in,
)
from palimpsest.core.events import ContextStated, EditUndone, Event, ModelReplied, ToolReturned, ViewEdited
from palimpsest.core.items import Content, FrozenDict, Item, Text, ToolResult, Value, frozen
from palimpsest.core.projections.projection import Scope, StateProjection, Views
from palimpsest.core.situation import Use
from palimpsest.core.tokens.sizes import palimpsest_size
from palimpsest.core.view import View, is_readable

SMALL_TOKENS = 100
# Texts of this many characters have more tokens than that, whatever they contain.
_LARGE_CHARACTERS = 4_000

Kind: TypeAlias = Literal["acknowledgement", "read", "report", "recalled", "other"]


class Lifespans(NamedTuple):
    """Model calls that a result lives: if never named, since it was last named, and once superseded; `None` is for ever."""

    unnamed: int | None
    named: int | None
    superseded: int | None = None


LIFESPANS: Final[Mapping[Kind, Lifespans]] = {
    "acknowledgement": Lifespans(1, 1, 1),
    "read": Lifespans(20, 40, 3),
    "report": Lifespans(40, None),
    "recalled": Lifespans(None, None),
    "other": Lifespans(8, 20),
}
_KINDS: Final[Mapping[ToolClass, Kind]] = {
    "edit": "acknowledgement",
    "write": "acknowledgement",
    "read": "read",
    "agent": "report",
    "recall": "recalled",
}


@lru_cache(maxsize=16)
def lifespans_for(patience: float) -> Mapping[Kind, Lifespans]:
    """The lifespans scaled by `patience`; those of a superseded result and of an acknowledgement are not scaled."""

    def scaled(age: int | None) -> int | None:
        return None if age is None else max(1, round(age * patience))

    return {
        kind: lifespans
        if kind == "acknowledgement"
        else Lifespans(scaled(lifespans.unnamed), scaled(lifespans.named), lifespans.superseded)
        for kind, lifespans in LIFESPANS.items()
    }


def dies_at(use: Use, lifespans: Mapping[Kind, Lifespans] = LIFESPANS) -> int | None:
    """The number of the call after which a result is dead if nothing names it before; `None` if it never is."""
    if use.failed:
        return None
    unnamed, named, superseded = lifespans[use.kind]
    start, age = (use.arrived, unnamed) if use.last_named is None else (use.last_named, named)
    dies = None if age is None else start + age
    if use.superseded is not None and superseded is not None:
        superseded_end = max(start, use.superseded) + superseded
        dies = superseded_end if dies is None else min(dies, superseded_end)
    return dies


class _UsesSnapshot(Value, frozen=True, omit_defaults=False):
    uses: dict[str, Use] = {}
    calls: int = 0


class UsesProjection(StateProjection):
    """Projection of the uses of the visible results; `calls` counts the replies of the model."""

    name: ClassVar = "uses"
    watches: ClassVar = frozenset({ToolReturned, ModelReplied, ViewEdited, EditUndone, ContextStated})
    version: ClassVar = 1
    scope: ClassVar[Scope] = "path"
    state_type: ClassVar = _UsesSnapshot

    def __init__(self, views: Views) -> None:
        self._views = views
        self.reset()
        self.names_in_result: Callable[[ToolResult, Action | None], tuple[str, ...]] = names_in_result
        self.names_used: Callable[[Content], Iterable[str]] = names_used

    def snapshot(self) -> bytes:
        """The uses and the number of replies as JSON."""
        return msgspec.json.encode(_UsesSnapshot(self._uses, self._calls))

    def start_from(self, restored: _UsesSnapshot) -> None:
        """Replace the uses; texts of the view are searched when they are needed."""
        self._uses = dict(restored.uses)
        self._value: FrozenDict[str, Use] | None = None
        self._calls = restored.calls
        self._due: dict[int, list[str]] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self._index: ResultIndex | None = None
        for name, use in self._uses.items():
            if use.died is None:
                self._schedule(name, use)

    def take(self, event: Event) -> None:
        """Apply one event."""
        self._value = None
        match event.body:
            case ToolReturned() as returned:
                self._add_result(f"{event.seq}.0", returned)
            case ModelReplied(purpose="turn") as reply:
                self._add_reply(reply)
            case ViewEdited() | EditUndone():
                self._apply_edit(self._views.items_before, self._views.view)
            case ContextStated(head=head) if head is not None:
                for name, use in self._uses.items():
                    if use.kind == "recalled":
                        self._set(name, replace(use, kind="other"))
            case _:
                pass

    def value(self) -> FrozenDict[str, Use]:
        """The uses of all visible results; copied once between two events, because several policies read them."""
        if self._value is None:
            self._value = frozen(self._uses)
        return self._value

    def _result_index(self) -> ResultIndex:
        if self._index is None:
            self._index = index_results(self._views.items_before, self._uses, self._names, self.names_in_result)
        return self._index

    def _add_result(self, item_id: str, returned: ToolReturned) -> None:
        index = self._result_index()
        call = index.take_call(returned.result.call_id)
        action = action_of(call) if call is not None else None
        failed = _failed(returned, action)
        if call is not None and action is not None and not failed:
            for name in index.superseded(action_with(call, returned)):
                if self._uses[name].superseded is None:
                    self._set(name, replace(self._uses[name], superseded=self._calls))
            for name in index.resolved_errors(call, action):
                self._set(name, replace(self._uses[name], failed=False))
        if is_large(returned.result):
            use = Use(self._calls, kind=kind_of_result(action), failed=failed)
            self._set(item_id, use)
            names = self._names[item_id] = self.names_in_result(returned.result, action)
            index.add(item_id, use, call, names, action)

    def _add_reply(self, reply: ModelReplied) -> None:
        self._calls += 1
        index = self._result_index()
        if self._uses:
            for name in index.results_naming(names_in_reply(reply.parts, self.names_used)):
                self._set(name, replace(self._uses[name], last_named=self._calls, died=None))
        index.pending_calls |= calls_by_id(reply.parts)
        for name in self._due.pop(self._calls, ()):
            use = self._uses.get(name)
            if use is not None and use.died is None and dies_at(use) == self._calls:
                self._uses[name] = replace(use, died=self._calls)

    def _apply_edit(self, before: tuple[Item, ...], view: View) -> None:
        """Drop hidden results and add restored ones as new; if items were only masked, all uses stay."""
        if view.ids == tuple(item.id for item in before):
            changed = [(old, new) for old, new in zip(before, view.items, strict=True) if old is not new]
            if any(is_readable(new) and not is_readable(old) for old, new in changed):
                self._index = None
            elif self._index is not None:
                for _, item in changed:
                    if not is_readable(item):
                        self._index.hide(item.id, self._names.get(item.id, ()))
            return
        shown = frozenset(view.ids)
        self._uses = {name: use for name, use in self._uses.items() if name in shown}
        self._names = {name: names for name, names in self._names.items() if name in shown}
        self._index = None
        for item, result, call in results_in(view.items):
            if item.id not in self._uses and is_large(result):
                action = action_of(call) if call is not None else None
                self._set(item.id, Use(self._calls, kind=kind_of_result(action), failed=result.error))

    def _set(self, name: str, use: Use) -> None:
        """Set a use and schedule its death."""
        self._uses[name] = use
        if use.died is None:
            self._schedule(name, use)

    def _schedule(self, name: str, use: Use) -> None:
        dies = dies_at(use)
        if dies is None:
            return
        if dies <= self._calls:
            self._uses[name] = replace(use, died=self._calls)
        else:
            self._due.setdefault(dies, []).append(name)


def _failed(returned: ToolReturned, action: Action | None) -> bool:
    """Whether a result is a failure; only the output of a command is searched for an exit code."""
    exit_code = exit_of(returned) if action is not None and action.kind == "command" else returned.exit
    return returned.result.error or exit_code not in (None, 0)


def kind_of_result(action: Action | None) -> Kind:
    """The kind of a result, by what its call did; a command that only reads files is a read."""
    if action is None:
        return "other"
    if action.kind == "command" and action.paths and all(access.how == "read" for access in action.paths):
        return "read"
    return _KINDS.get(action.kind, "other")


def is_large(result: ToolResult) -> bool:
    """Whether a result has more than 100 tokens."""
    length = sum(len(part.text) for part in result.parts if isinstance(part, Text))
    return length >= _LARGE_CHARACTERS or palimpsest_size(result) > SMALL_TOKENS
