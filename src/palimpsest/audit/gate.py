"""The gate, which checks, adapts or refuses the edits of a policy, the floor below which no request can go, and pinned items."""

from typing import Literal, TypeAlias

from msgspec.structs import replace

from palimpsest.audit.citations import check_narrative, sources_of
from palimpsest.audit.fold_texts import is_computed
from palimpsest.audit.tool_calls import action_of
from palimpsest.core.errors import TooFull
from palimpsest.core.events import numbers_of
from palimpsest.core.items import (
    Edit,
    Fold,
    Insert,
    Into,
    Item,
    Keep,
    Mask,
    Put,
    Text,
    ToolCall,
    Unmask,
    Value,
    kept_ids,
    newly_unpaired,
    pairs_of,
    pending_calls,
    text_of,
)
from palimpsest.core.log import keeps_pairs
from palimpsest.core.plans import Edits, Situation
from palimpsest.core.view import View, is_readable, shown


def pinned(view: View) -> frozenset[str]:
    """The ids of the items that no policy may hide."""
    if not view.pins:
        return frozenset()
    paths = tuple(name for name in view.pins if numbers_of(name) is None)
    pinned_by_path: dict[str, bool] = {}
    found: set[str] = set()
    for item in view.items:
        if item.id in view.pins or (paths and isinstance(item.content, ToolCall) and _shows(item.content, paths, pinned_by_path)):
            found.add(item.id)
    for call, result in pairs_of(view.items) if found else ():
        if call.id in found or result.id in found:
            found.update((call.id, result.id))
    return frozenset(found)


def _shows(call: ToolCall, paths: tuple[str, ...], pinned_by_path: dict[str, bool]) -> bool:
    """Whether a call shows one of the pinned files; `pinned_by_path` caches the answer, because most paths occur many times."""
    for access in action_of(call).paths:
        if access.how != "search":
            path = access.path
            if path not in pinned_by_path:
                pinned_by_path[path] = any(same_path(path, pin) for pin in paths)
            if pinned_by_path[path]:
                return True
    return False


def same_path(one: str, other: str) -> bool:
    """Whether two paths are equal, or one of them ends with the other at a folder boundary."""
    one, other = one.removeprefix("./"), other.removeprefix("./")
    return one == other or one.endswith(f"/{other}") or other.endswith(f"/{one}")


# Without these sources the model would not know its permissions and open tasks.
REQUIRED_SOURCES = frozenset({"mode", "permissions", "tasks"})


class FloorPart(Value, frozen=True):
    """One part of the floor, its tokens, and advice how to shrink it."""

    name: str
    tokens: int
    advice: str = ""


class Floor(Value, frozen=True):
    """The parts of the floor; `ids` are the items of the conversation among them."""

    parts: tuple[FloorPart, ...]
    ids: frozenset[str] = frozenset()

    @property
    def tokens(self) -> int:
        """Tokens of all parts."""
        return sum(part.tokens for part in self.parts)


def last_request(view: View) -> tuple[Item, ...]:
    """The last request of the user, with the steering messages since."""
    messages = [item for item in view.items if item.kind in ("user", "steering")]
    newest = next((item for item in reversed(messages) if item.kind == "user"), None)
    if newest is None:
        return tuple(messages[-1:])
    start = next(place for place, item in enumerate(messages) if _event(item) == _event(newest))
    return tuple(messages[start:])


def floor_of(situation: Situation) -> Floor:
    """The floor of the current view."""
    view, counter = situation.view, situation.tokens
    pins, request, pending = pinned(view), last_request(view), pending_calls(view.items)
    request_ids = frozenset(item.id for item in request)
    source_ids = frozenset(fact.id for source, fact in view.facts.items() if source in REQUIRED_SOURCES) - request_ids
    pending_ids = frozenset(item.id for item in pending) - pins
    pinned_items = [item for item in view.items if item.id in pins and item.id not in request_ids | source_ids]
    largest_head = sorted(view.head, key=lambda item: -counter.item(item))[:1]
    largest_pins = sorted(pinned_items, key=lambda item: -counter.item(item))[:3]
    parts = [
        FloorPart("head", _sum(situation, view.head), f"shorten {largest_head[0].source or largest_head[0].id}" if largest_head else ""),
        FloorPart("tools", situation.tools_tokens, "offer fewer tools"),
        FloorPart("pins", _sum(situation, pinned_items), f"unpin {', '.join(item.id for item in largest_pins)}" if largest_pins else ""),
        FloorPart("last request", _sum(situation, request), "put long parts of it into a file"),
        FloorPart(
            "mode and tasks",
            _sum(situation, [item for item in view.items if item.id in source_ids]) + _tasks(situation),
            "close what is done",
        ),
        FloorPart("pending calls", _sum(situation, [item for item in pending if item.id in pending_ids]), "let them finish"),
    ]
    return Floor(tuple(part for part in parts if part.tokens), pins | request_ids | pending_ids | (source_ids & frozenset(view.ids)))


def token_limit(situation: Situation) -> int | None:
    """The most tokens that a request may have, or `None` if the card has no window."""
    level = situation.budget.block_at or situation.budget.window
    return level or None


def check_floor(situation: Situation) -> Floor:
    """The floor of the current view. Raises `TooFull` if it alone exceeds the limit."""
    floor, limit = floor_of(situation), token_limit(situation)
    if limit is not None and floor.tokens >= limit:
        raise too_full(situation, floor, limit)
    return floor


def too_full(situation: Situation, floor: Floor, limit: int) -> TooFull:
    """The error that lists the parts of the floor with their tokens and advice."""
    part_list = "; ".join(f"{part.name} {part.tokens:,}" + (f" ({part.advice})" if part.advice else "") for part in floor.parts)
    return TooFull(f"what cannot be left out has {floor.tokens:,} tokens, and {limit:,} fit: {part_list}", where=situation.session)


def _sum(situation: Situation, items: tuple[Item, ...] | list[Item]) -> int:
    return sum(situation.tokens.item(item) for item in items)


def _tasks(situation: Situation) -> int:
    """Tokens of the open tasks, of which the first 60 characters are always listed."""
    lines = "\n".join(f"- {task[:60]}" for task in situation.listed_evidence.tasks)
    return situation.tokens.content(Text(lines)) if lines else 0


def _event(item: Item) -> str:
    return item.id.partition(".")[0]


def keep_pins(edits: Edits, view: View) -> Edits:
    """The edits without masks on pinned items, and with pinned items kept by folds; calls and results stay together."""
    protected = pinned(view)
    if not protected:
        return edits
    places = {item.id: place for place, item in enumerate(view.items)}
    safe = (_pinned_edit(edit, view, places, protected) for edit in edits)
    return tuple(edit for edit in safe if edit is not None)


def _pinned_edit(edit: Edit, view: View, places: dict[str, int], protected: frozenset[str]) -> Edit | None:
    match edit:
        case Mask(ids=ids):
            rest = tuple(name for name in ids if name not in protected)
            return replace(edit, ids=rest) if rest else None
        case Fold(first=first, last=last, into=into):
            if first not in places or last not in places:
                return edit
            folded = view.items[places[first] : places[last] + 1]
            already_kept = frozenset(kept_ids(edit))
            lost = tuple(Keep(item.id) for item in folded if item.id in protected and item.id not in already_kept)
            # After the first piece, which is usually a user message, so that a view does not begin with a call.
            return replace(edit, into=(*into[:1], *lost, *into[1:])) if lost else edit
        case Unmask() | Insert():
            return edit


def without_unsupported_lines(edits: Edits, situation: Situation) -> tuple[Edits, tuple[str, ...]]:
    """The edits without narrative lines that no cited event supports, and these lines."""
    removed: list[str] = []
    cleaned: list[Edit] = []
    for edit in edits:
        if isinstance(edit, Fold):
            into = _without_unsupported(edit.into, situation, removed)
            cleaned.append(edit if into == edit.into else replace(edit, into=into))
        elif isinstance(edit, Insert):
            contents = _without_unsupported(edit.contents, situation, removed)
            if contents:
                cleaned.append(edit if contents == edit.contents else replace(edit, contents=contents))
        else:
            cleaned.append(edit)
    return tuple(cleaned), tuple(removed)


def _without_unsupported(into: Into, situation: Situation, removed: list[str]) -> Into:
    if not any(_is_narrative(piece) for piece in into):
        return into
    pieces: list[Put | Keep] = []
    for piece in into:
        if isinstance(piece, Keep) or not isinstance(piece.content, Text) or not _is_narrative(piece):
            pieces.append(piece)
            continue
        text, unsupported = check_narrative(piece.content.text, sources_of(situation.view.items))
        removed += unsupported
        if text == piece.content.text:
            pieces.append(piece)
        elif text:
            pieces.append(replace(piece, content=replace(piece.content, text=text)))
    return tuple(pieces)


def _is_narrative(piece: Put | Keep) -> bool:
    return isinstance(piece, Put) and piece.kind == "summary" and not is_computed(piece)


def removed_lines_text(count: int) -> str:
    """A message that says how many lines were removed."""
    return "1 line without a valid citation was left out" if count == 1 else f"{count} lines without a valid citation were left out"


Strictness: TypeAlias = Literal["full", "lenient"]
# Share of the tokens between the floor and the compaction level that a fold must free.
FREE_SHARE = 0.15
# Characters of an open task that must stay visible.
OPENING = 40


class Verdict(Value, frozen=True):
    """The edits that may be installed, or the reason why not; `removed` are narrative lines without a valid citation.

    Edits that the gate changed must be judged again, with the view that they leave. `warnings` are what a full gate would have refused,
    if `strictness` is `lenient`.
    """

    edits: Edits = ()
    refused: str = ""
    removed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def judge(edits: Edits, after: View, situation: Situation, *, shrinks: bool, strictness: Strictness = "full") -> Verdict:
    """Judge edits; `after` is the view they would leave, and `shrinks` demands that it is smaller.

    With strictness `lenient` only what keeps a session working is checked, and all other objections to a fold become warnings.
    """
    changed = keep_pins(edits, situation.view)
    removed: tuple[str, ...] = ()
    if strictness == "full":
        changed, removed = without_unsupported_lines(changed, situation)
    if not changed:
        return Verdict(refused="nothing remains of the edit: its items are pinned, or its lines have no valid citation", removed=removed)
    if changed != edits:
        return Verdict(changed, removed=removed)
    unpaired = [] if keeps_pairs(situation.view, edits) else sorted(newly_unpaired(situation.view.items, after.items))
    if unpaired:
        return Verdict(refused=f"item {unpaired[0]} would be visible without its call or result")
    before, remaining = situation.tokens.total(situation.view), situation.tokens.total(after)
    if shrinks and remaining >= before:
        return Verdict(refused="the view would not be smaller")
    if strictness == "lenient":
        return Verdict(edits, warnings=_warnings(edits, (before, remaining), after, situation))
    refused = _size_problem(edits, before, remaining, situation) or _missing_content(after, situation)
    return Verdict(refused=refused) if refused else Verdict(edits)


def fold_limit(situation: Situation, floor: int) -> int | None:
    """The most tokens that a fold may leave, so that a share of the tokens above the floor is free; `None` without a window."""
    limit_tokens = token_limit(situation)
    level = situation.budget.compact_at or limit_tokens
    if level is None or limit_tokens is None:
        return None
    return int(level - FREE_SHARE * (level - floor)) if floor < level else limit_tokens - 1


def _size_problem(edits: Edits, before: int, remaining: int, situation: Situation) -> str:
    """Why the size is wrong, or empty: folds and masks must shrink the view, a fold to its limit, and other edits must fit."""
    folds = any(isinstance(edit, Fold) for edit in edits)
    if (folds or any(isinstance(edit, Mask) for edit in edits)) and remaining >= before:
        return "the view would not be smaller"
    tokens, limit_tokens = remaining + situation.tools_tokens, token_limit(situation)
    if folds:
        limit = fold_limit(situation, floor_of(situation).tokens)
        if limit is not None and tokens > limit:
            return f"{tokens:,} tokens would remain, and a fold must leave at most {limit:,}"
    elif remaining > before and limit_tokens is not None and tokens >= limit_tokens:
        return f"it does not fit: {tokens:,} tokens, and the limit is below {limit_tokens:,}"
    return ""


def _warnings(edits: Edits, sizes: tuple[int, int], after: View, situation: Situation) -> tuple[str, ...]:
    """What a full gate would refuse about a fold, except for citations: imitated programs have none."""
    if not any(isinstance(edit, Fold) for edit in edits):
        return ()
    return tuple(warning for warning in (_size_problem(edits, *sizes, situation), _missing_content(after, situation)) if warning)


def _missing_content(after: View, situation: Situation) -> str:
    """What the edits would hide although it must stay visible, or empty."""
    view = situation.view
    visible_ids = {item.id for item in after.items if is_readable(item)}
    lost = next((item.id for item in last_request(view) if item.mask is None and item.id not in visible_ids), None)
    if lost is not None:
        return f"the last request, item {lost}, would not be visible"
    source = next((name for name in sorted(REQUIRED_SOURCES) if name in view.facts and name not in after.facts), None)
    if source is not None:
        return f"the statement of {source} would not be visible"
    tasks = situation.listed_evidence.tasks
    if tasks:
        text, earlier = _shown_text(after), _shown_text(view)
        lost_task = next((task for task in tasks if task[:OPENING] in earlier and task[:OPENING] not in text), None)
        if lost_task is not None:
            return f"the open task {lost_task[:OPENING]!r} would not be visible"
    return ""


def _shown_text(view: View) -> str:
    visible = (shown(item) for item in (*view.head, *view.items))
    return "\n".join(text_of(content) for content in visible if content is not None)
