"""Uses of tool results: when each was last named, superseded and dead, and the stubs that replace dead results of a view."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import ClassVar, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from palimpsest.audit.entities import names_used
from palimpsest.audit.gate import pinned
from palimpsest.audit.tool_calls import Action, ToolClass, action_of, action_with, exit_of
from palimpsest.audit.visible import ResultIndex, calls_by_id, index_results, names_in_reply, names_in_result, results_in
from palimpsest.core.events import ContextStated, EditUndone, Event, ModelReplied, ToolReturned, ViewEdited
from palimpsest.core.items import Content, FrozenDict, Item, Mask, Text, ToolCall, ToolResult, Value, answered_calls, frozen
from palimpsest.core.plans import Situation, Use
from palimpsest.core.tokens import SizeRule, TokenSizes, estimate, palimpsest_size, scaled
from palimpsest.core.view import Scope, StateProjection, View, is_readable
from palimpsest.core.view_projection import ViewProjection

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

    def __init__(self, views: ViewProjection) -> None:
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


STUB_TOKENS = 25
_LONGEST = 80
_STEP = 4
# Calls with longer arguments are kept in a small cache, calls above the second limit in none.
_LONG_CALL: Final = 1_000
_LONGEST_CALL: Final = 100_000


def stub_text(call: ToolCall, tokens: int, item_id: str, factor: float) -> str:
    """The stub of a cleared result of `tokens` tokens: at most 25 tokens long. A long path keeps its end, any other argument its start."""
    tool = call.tool
    argument, is_path = argument_of(call)
    # Lengths above those of both texts cut nothing, so that they are skipped.
    whole = max(len(tool), len(argument))
    length = _LONGEST
    while True:
        tool_shown, argument_shown = tool[: max(8, length)], _cut(argument, length, end=is_path)
        text = (
            f"[{tool_shown} {argument_shown}: {tokens} tokens, id {item_id}]"
            if argument_shown
            else f"[{tool_shown}: {tokens} tokens, id {item_id}]"
        )
        if estimate(text, factor) <= STUB_TOKENS or not length:
            return text
        length = max(0, min(length, (whole + _STEP - 1) // _STEP * _STEP) - _STEP)


def _cut(text: str, length: int, *, end: bool) -> str:
    if len(text) <= length:
        return text
    if length < 4:
        return ""
    return f"…{text[len(text) - length + 1 :]}" if end else f"{text[: length - 1]}…"


def argument_of(call: ToolCall) -> tuple[str, bool]:
    """The path, the command or the raw arguments of a call, and whether it is a path."""
    action = action_of(call)
    if action.paths and not action.command:
        return action.paths[0].path, True
    argument_shown = action.command or ("" if call.args == "{}" else call.args)
    return " ".join(argument_shown[: 4 * _LONGEST].split()), False


def call_of_result(items: Sequence[Item], place: int) -> ToolCall:
    """The call of a result: the nearest one before it with its id, or a placeholder.

    Replies of 0.1.0 may repeat a call id; only then are all pairs of the view computed.
    """
    result = items[place]
    call_id = result.content.call_id if isinstance(result.content, ToolResult) else ""
    while place and call_id:
        place -= 1
        call = items[place].content
        if isinstance(call, ToolCall) and call.call_id == call_id:
            other = items[place - 1].content if place else None
            repeats = isinstance(other, ToolCall) and other.call_id == call_id
            return answered_calls(items).get(result.id, call) if repeats else call
    return ToolCall(call_id, "tool", "{}")


def clearing_masks(view: View, places: Iterable[int], tokens: TokenSizes) -> list[tuple[Mask, int]]:
    """The mask that clears the result at each place of the view, and the tokens that it frees."""
    items, sizes = view.items, tokens.in_order(view)
    rule, factor = tokens.rule, tokens.factor
    found: list[tuple[Mask, int]] = []
    for place in places:
        item, call = items[place], items[place - 1].content
        # The call mostly stands directly before its result; checking that here takes half the time of a function call.
        if (
            not (isinstance(call, ToolCall) and isinstance(item.content, ToolResult) and call.call_id == item.content.call_id and place)
            or items[place - 2].kind == "call"
        ):
            call = call_of_result(items, place)
        cover = _cached_clearing_mask if len(call.args) <= _LONG_CALL else _clearing_mask
        found.append(cover(call, sizes[place], item.id, factor, rule))
    return found


def _clearing_mask(call: ToolCall, raw: int, item_id: str, factor: float, rule: SizeRule) -> tuple[Mask, int]:
    """The mask of a result with unscaled size `raw`, and the tokens that it frees."""
    tokens, length = scaled(raw, factor), len(call.args)
    write = _cached_mask if length <= _LONG_CALL else _cached_long_mask if length <= _LONGEST_CALL else _mask_of
    # Rounded, so that stubs do not change with every call: all of them would have to be shown and checked once more.
    rounded = round(factor, 2)
    mask, size = write(call, scaled(raw, rounded), item_id, rounded, rule)
    return mask, tokens - scaled(size, factor)


def _mask_of(call: ToolCall, tokens: int, item_id: str, factor: float, rule: SizeRule) -> tuple[Mask, int]:
    """The mask of a result of `tokens` tokens, and the unscaled size of its stub."""
    text = stub_text(call, tokens, item_id, factor)
    return Mask((item_id,), text), rule(ToolResult(call.call_id, (Text(text),)))


# Most results that are dead before one call were dead before the previous one, and writing a stub takes 20 times as long as a cache hit.
# A reply changes the factor a little, which changes what a mask frees but mostly not its text. A view of
# 200,000 tokens rarely has more than 1,000 results to clear, and each has more than 100 tokens.
_cached_clearing_mask = lru_cache(maxsize=1_024)(_clearing_mask)
_cached_mask = lru_cache(maxsize=1_024)(_mask_of)
_cached_long_mask = lru_cache(maxsize=128)(_mask_of)


_place = attrgetter("place")


class DeadResult(Value, frozen=True):
    """A dead result: its place in the view, the tokens that clearing it frees, and the calls for which it has paid rent.

    Without a mask `gain` is the size of the whole result, from which the size of the stub is not yet subtracted.
    """

    place: int
    gain: int
    calls: int
    mask: Mask | None = None


# Factors on the lifespan of a result by the length in bits of its size in eighths of the usual size: each doubling halves it.
# No size has more than 64 bits.
_SHARES: Final = (4.0, 4.0, 2.0, 1.0, 0.5, 0.25, *[0.125] * 59)
# A report of a sub-agent is dear to get again, however long it is, and a file that was read is often edited much later.
_SMALLEST_SHARES: Final[Mapping[Kind, float]] = {"other": 0.0, "read": 0.5}


@lru_cache(maxsize=16)
def _lifespans_by_size(patience: float, reads: float | None) -> tuple[Mapping[Kind, Lifespans], ...]:
    """The lifespans for each of `_SHARES`; rent grows with the size, so that a large result lives for fewer calls."""
    factors: dict[Kind, float] = {"other": patience, "read": patience if reads is None else reads}
    return tuple(
        {
            **lifespans_for(patience),
            **{kind: lifespans_for(factors[kind] * max(least, share))[kind] for kind, least in _SMALLEST_SHARES.items()},
        }
        for share in _SHARES
    )


def dead_results(
    situation: Situation,
    *,
    held: bool = False,
    patience: float = 1.0,
    reads: float | None = None,
    usual: int = 0,
) -> list[DeadResult]:
    """The visible dead results, newest first and without masks, which are expensive to write.

    Pinned items are left out, and unless `held` is set also items that an undo restored. `patience` scales lifespans. With `usual` they
    are those of a result of half that many tokens up to that many; a larger result lives shorter and a smaller one longer, and `reads`
    scales those of files that were read; `None` is the same.
    """
    view, tokens, calls = situation.view, situation.tokens, situation.health.calls
    items, sizes, places, factor = view.items, tokens.in_order(view), tokens.places_in(view), tokens.factor
    as_recorded, ages, ages_by_size = patience == 1.0 and not usual, lifespans_for(patience), _lifespans_by_size(patience, reads)
    protected = pinned(view) if held else pinned(view) | view.held
    found: list[DeadResult] = []
    for name, use in situation.uses.items():
        place = places.get(name)
        if place is None or items[place].mask is not None:
            continue
        # Scaled inline, because calling `scaled` would take a tenth of the total time.
        size = round(sizes[place] * factor)
        death = use.died if as_recorded else dies_at(use, ages_by_size[(size * 8 // usual).bit_length()] if usual else ages)
        if death is None or (death > calls and not as_recorded) or name in protected:
            continue
        # The coming call pays rent too.
        found.append(DeadResult(place, size, calls - death + 1 if calls > death else 1))
    found.sort(key=_place, reverse=True)
    return found


def with_masks(dead: list[DeadResult], situation: Situation) -> list[DeadResult]:
    """The results with their masks and what each then frees; those that free nothing are left out."""
    masks = clearing_masks(situation.view, [result.place for result in dead], situation.tokens)
    return [DeadResult(result.place, gain, result.calls, mask) for result, (mask, gain) in zip(dead, masks, strict=True) if gain > 0]


def masks_of(dead: Sequence[DeadResult]) -> tuple[Mask, ...]:
    """The masks of the results that have one, in the order of the view."""
    return tuple([result.mask for result in reversed(dead) if result.mask is not None])
