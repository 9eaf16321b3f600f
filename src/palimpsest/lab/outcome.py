"""What a replay found, as plain values: figures of each profile, every call, every edit, and who filled the window."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from palimpsest.audit.visibility.survival import Survival as Counted
from palimpsest.core.edits import Loss
from palimpsest.core.events import Usage
from palimpsest.core.items import Value
from palimpsest.wire.models.prices import FREE, Cost

Purpose: TypeAlias = Literal["turn", "summary", "reread"]
EditKind: TypeAlias = Literal["fold", "mask", "unmask", "insert"]

_REASONS = 5
SURVIVALS = ("user_messages", "edited_paths", "read_paths", "commands", "numbers")


class Survival(Value, frozen=True, omit_defaults=False):
    """The share of what was there to be kept that still shows, from 0 to 1; 1 where there was nothing."""

    user_messages: float = 1.0
    edited_paths: float = 1.0
    read_paths: float = 1.0
    commands: float = 1.0
    numbers: float = 1.0


class Called(Value, frozen=True):
    """One billed request: when it left, for what, how much it carried, and what it cost.

    `step` counts the recorded calls from 0, so that the same step of two profiles is the same moment of the work.
    """

    step: int
    at: int
    purpose: Purpose
    usage: Usage
    cost: Cost

    @property
    def tokens(self) -> int:
        """The size of the context."""
        return self.usage.prompt


class Edited(Value, frozen=True):
    """One edit that was installed before the call of a step.

    `event` is its place in the replayed log. `hides` are the recorded events whose items it hid, `loss` what was in them by kind
    of entity (its ids are items of the replayed log). Folds have a `survival`, and the counts behind it in `survived`. Tokens `before`
    and `after` are as the profile counts, those `billed` are of the requests before and after all edits of this moment, as calls have them.
    """

    step: int
    at: int
    event: int
    kind: EditKind
    by: str
    why: str = ""
    moment: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    price_usd: float | None = None
    saved_usd_per_call: float | None = None
    hides: tuple[int, ...] = ()
    loss: Loss = Loss()
    survival: Survival | None = None
    survived: Counted | None = None
    billed_before: int = 0
    billed_after: int = 0


class Reread(Value, frozen=True):
    """A recorded call that needed what was hidden: the names it used, the recorded event that showed them, and the tokens fetched again."""

    step: int
    at: int
    names: tuple[str, ...]
    event: int
    tokens: int


class Share(Value, frozen=True):
    """Who filled the window when it was fullest: a kind of item, the tool or source it came from, its tokens and its items."""

    kind: str
    name: str
    tokens: int
    items: int


class Line(Value, frozen=True):
    """A recorded event that some profile hid, in words: what it is, the tool or source it came from, and how it begins."""

    event: int
    kind: str
    name: str = ""
    text: str = ""
    tokens: int = 0


class Kept(Value, frozen=True, omit_defaults=False):
    """The share of the probes of one kind that can be answered from what shows, and with one recall; in so many sessions there are some."""

    visible: float
    with_recall: float
    sessions: int


class Probed(Value, frozen=True, omit_defaults=False):
    """The share of probes that can be answered from what shows, and with one recall beside it; of several sessions the mean.

    Of the `forced` folds so many `folds` were made, and `rested` tells why the others were not. `sessions` were folded once at least,
    and several are averaged over those; `unfolded` are the others, of which nothing could be lost.
    """

    visible: float
    with_recall: float
    folds: int = 0
    forced: int = 0
    sessions: int = 1
    unfolded: int = 0
    rested: Mapping[str, int] = {}
    kinds: Mapping[str, Kept] = {}


class Outcome(Value, frozen=True):
    """One session under one profile and card; `plan_ms` is there when time was measured, `probes` (by cycles) when they were asked for.

    `offloads` counts results that were bounded as they arrived, and `refused` edits that the gate did not let through. `invalid` counts
    malformed requests, `faults` are the first things that are wrong with them. `overflows` counts requests that were longer than the
    window before the profile did something about it, `too_long` those that were sent as long as that all the same. `stopped` says why the
    profile could not make the view small enough: its program would have ended there, and the replay goes on. `asked` and `failed` count
    requests for summaries to a real model, and `failure` is what the first of those said that failed.
    """

    profile: str
    calls: tuple[Called, ...] = ()
    edits: tuple[Edited, ...] = ()
    rereads: tuple[Reread, ...] = ()
    census: tuple[Share, ...] = ()
    offloads: int = 0
    invalid: int = 0
    refused: int = 0
    faults: tuple[str, ...] = ()
    overflows: int = 0
    too_long: int = 0
    probes: Mapping[str, Probed] = {}
    plan_ms: float | None = None
    stopped: str = ""
    asked: int = 0
    failed: int = 0
    failure: str = ""

    @property
    def cost(self) -> Cost:
        """Dollars by part."""
        return sum((call.cost for call in self.calls), FREE)


class Replayed(Value, frozen=True):
    """One session under several profiles; `source` is the file it was read from, or the home, `lines` what a page needs to name events."""

    id: str
    source: str
    format: str
    events: int
    title: str = ""
    model: str = ""
    tokens: int = 0
    profiles: Mapping[str, Outcome] = {}
    lines: tuple[Line, ...] = ()


class CardRun(Value, frozen=True):
    """All sessions under one card; `ttl` is the lifetime of its cache entries."""

    card: str
    ttl: str
    window: int
    sessions: tuple[Replayed, ...] = ()


class Comparison(Value, frozen=True):
    """Everything that one `pal replay` found; `against` is the profile that ratios are taken against, if it was replayed.

    `settings` are those of the environment that profiles followed, by profile.
    """

    runs: tuple[CardRun, ...]
    profiles: tuple[str, ...]
    against: str = ""
    settings: Mapping[str, Mapping[str, str]] = {}


class Figures(Value, frozen=True, omit_defaults=False):
    """The numbers of one outcome, or of many together, under the names that `pal replay --json` prints."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    peak: int = 0
    mean: int = 0
    cache_read: int = 0
    cache_write: int = 0
    usd: float = 0.0
    usd_parts: Mapping[str, float] = {}
    usd_of: Mapping[str, float] = {}
    folds: int = 0
    masks: int = 0
    offloads: int = 0
    invalid: int = 0
    faults: tuple[str, ...] = ()
    too_long: int = 0
    refused: int = 0
    stopped: tuple[str, ...] = ()
    asked: int = 0
    failed: int = 0
    failure: str = ""
    rereads: int = 0
    survival: Survival = Survival()
    probes: Mapping[str, Mapping[str, Probed]] = {}
    plan_ms: float | None = None


def figures(outcomes: Iterable[Outcome]) -> Figures:
    """The numbers of some outcomes together; context sizes are those of the conversation's own calls, survivals those of all folds."""
    many = tuple(outcomes)
    calls = [call for outcome in many for call in outcome.calls]
    turns = [call.tokens for call in calls if call.purpose == "turn"]
    total = sum((call.cost for call in calls), FREE)
    timed = [outcome.plan_ms for outcome in many if outcome.plan_ms is not None]
    return Figures(
        calls=len(calls),
        tokens_in=sum(call.tokens for call in calls),
        tokens_out=sum(call.usage.output for call in calls),
        peak=max(turns, default=0),
        mean=round(sum(turns) / len(turns)) if turns else 0,
        cache_read=sum(call.usage.cache_read for call in calls),
        cache_write=sum(call.usage.cache_write + call.usage.cache_write_long for call in calls),
        usd=round(total.total, 6),
        usd_parts={name: round(dollars, 6) for name, dollars in total.parts().items()},
        usd_of=_by_purpose(calls),
        folds=_count(many, "fold"),
        masks=_count(many, "mask"),
        offloads=sum(outcome.offloads for outcome in many),
        invalid=sum(outcome.invalid for outcome in many),
        faults=_distinct(fault for outcome in many for fault in outcome.faults),
        too_long=sum(outcome.too_long for outcome in many),
        refused=sum(outcome.refused for outcome in many),
        stopped=_distinct(outcome.stopped for outcome in many),
        asked=sum(outcome.asked for outcome in many),
        failed=sum(outcome.failed for outcome in many),
        failure=next((outcome.failure for outcome in many if outcome.failure), ""),
        rereads=sum(len(outcome.rereads) for outcome in many),
        survival=_pooled(many),
        probes={"cycles": _probed(many)},
        plan_ms=round(sum(timed), 3) if timed else None,
    )


def survival(counted: Counted) -> Survival:
    """Counts as shares."""
    named = {"edited_paths": counted.edited, "read_paths": counted.read, "user_messages": counted.messages}
    shares = {"commands": counted.commands, "numbers": counted.numbers, **named}
    return Survival(**{name: round(share.ratio, 4) for name, share in shares.items()})


def _pooled(outcomes: Iterable[Outcome]) -> Survival:
    """What survived all folds together; where nothing was folded everything did."""
    counts = [edit.survived for outcome in outcomes for edit in outcome.edits if edit.survived is not None]
    return survival(sum(counts, Counted()))


def ratio(one: float, other: float) -> float | None:
    """How many times the other; nothing where that is nothing."""
    return one / other if other else None


def _distinct(reasons: Iterable[str]) -> tuple[str, ...]:
    """The first reasons of several sessions, each once."""
    return tuple(dict.fromkeys(reason for reason in reasons if reason))[:_REASONS]


def _count(outcomes: Iterable[Outcome], kind: EditKind) -> int:
    return sum(edit.kind == kind for outcome in outcomes for edit in outcome.edits)


def _by_purpose(calls: Iterable[Called]) -> dict[str, float]:
    """What the conversation's own calls, summaries and re-reads cost, each with all its parts."""
    found = {"turn": 0.0, "summary": 0.0, "reread": 0.0}
    for call in calls:
        found[call.purpose] += call.cost.total
    return {name: round(dollars, 6) for name, dollars in found.items()}


def _probed(outcomes: Iterable[Outcome]) -> dict[str, Probed]:
    found: dict[str, list[Probed]] = {}
    for outcome in outcomes:
        for cycles, each in outcome.probes.items():
            found.setdefault(cycles, []).append(each)
    return {cycles: averaged(many) for cycles, many in found.items()}


def averaged(many: Sequence[Probed]) -> Probed:
    """Several sessions as one; where none of them was folded, as what they all are."""
    folded = [each for each in many if each.sessions] or many
    rested: Counter[str] = Counter()
    kinds: dict[str, list[Kept]] = {}
    for each in many:
        rested.update(each.rested)
    for each in folded:
        for kind, kept in each.kinds.items():
            kinds.setdefault(kind, []).append(kept)
    return Probed(
        _mean(each.visible for each in folded),
        _mean(each.with_recall for each in folded),
        sum(each.folds for each in many),
        sum(each.forced for each in many),
        sum(each.sessions for each in many),
        sum(each.unfolded for each in many),
        dict(rested),
        {kind: Kept(_mean(one.visible for one in kept), _mean(one.with_recall for one in kept), len(kept)) for kind, kept in kinds.items()},
    )


def _mean(values: Iterable[float]) -> float:
    many = tuple(values)
    return round(sum(many) / len(many), 4) if many else 1.0
