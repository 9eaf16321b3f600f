"""The gate: checks the edits of a policy before they are installed, and adapts or refuses them."""

from typing import Literal, TypeAlias

from msgspec.structs import replace

from palimpsest.audit.citations import check_narrative, sources_of
from palimpsest.audit.floor import REQUIRED_SOURCES, floor_of, last_request, token_limit
from palimpsest.audit.fold_texts import is_computed
from palimpsest.audit.pins import pinned
from palimpsest.core.edits import Edit, Fold, Insert, Into, Keep, Mask, Put, Unmask, kept_ids
from palimpsest.core.items import Text, Value, text_of
from palimpsest.core.log.fitting import keeps_pairs
from palimpsest.core.pairs import newly_unpaired
from palimpsest.core.policy import Edits
from palimpsest.core.situation import Situation
from palimpsest.core.view import View, is_readable, shown


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
        text, earlier = _text(after), _text(view)
        lost_task = next((task for task in tasks if task[:OPENING] in earlier and task[:OPENING] not in text), None)
        if lost_task is not None:
            return f"the open task {lost_task[:OPENING]!r} would not be visible"
    return ""


def _text(view: View) -> str:
    visible = (shown(item) for item in (*view.head, *view.items))
    return "\n".join(text_of(content) for content in visible if content is not None)
