"""Results of a replay as plain values: billed calls, edits, re-reads, the fullest window, and figures of each profile."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Self, TypeAlias, get_args

from msgspec.structs import replace

from palimpsest.audit.loss import Survival as SurvivalCounts
from palimpsest.audit.reasoning import total_lost
from palimpsest.core.events import Usage
from palimpsest.core.items import Loss, ReasoningLost, Value
from palimpsest.wire.models import FREE, Cost

Purpose: TypeAlias = Literal["turn", "summary", "reread", "keep_alive"]
EditKind: TypeAlias = Literal["fold", "mask", "unmask", "insert"]

RECORDED = "recorded"
OWN_CARDS = "own"
NO_MODEL = "no model"
_MOST_REASONS = 5


class SurvivalShares(Value, frozen=True, omit_defaults=False):
    """Shares of the entities of folded spans that are still visible, from 0 to 1; 1 if there were none."""

    user_messages: float = 1.0
    edited_paths: float = 1.0
    read_paths: float = 1.0
    commands: float = 1.0
    numbers: float = 1.0


SURVIVALS = SurvivalShares.__struct_fields__


class BilledCall(Value, frozen=True):
    """One billed request: its time in milliseconds, its purpose, its usage and its cost in dollars.

    `step` is the number of the recorded call, from 0, so the same step under two profiles is the same moment of the work.
    """

    step: int
    at: int
    purpose: Purpose
    usage: Usage
    cost: Cost

    @property
    def tokens(self) -> int:
        """Size of the prompt, in tokens."""
        return self.usage.prompt


class ReplayedEdit(Value, frozen=True):
    """One edit that was installed before the call of a step.

    `event` is its sequence number in the replayed log. `hides` are the recorded events whose items it hid; `loss` lists the entities
    in them (its ids are items of the replayed log). Folds have `survival`, and the counts behind it in `survived`. `tokens_before` and
    `tokens_after` are counted by the profile; `billed_before` and `billed_after` are request sizes around all edits of this moment.
    `within_loop` is true if the model went on after tool results.
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
    survival: SurvivalShares | None = None
    survived: SurvivalCounts | None = None
    billed_before: int = 0
    billed_after: int = 0
    reasoning_lost: ReasoningLost | None = None
    within_loop: bool = False


class Reread(Value, frozen=True):
    """A recorded call that used hidden names: those names, the recorded event that showed them, and the tokens that were fetched again."""

    step: int
    at: int
    names: tuple[str, ...]
    event: int
    tokens: int


class WindowShare(Value, frozen=True):
    """Tokens and number of items of one kind, from one tool or source, in the fullest window."""

    kind: str
    name: str
    tokens: int
    items: int


class HiddenEvent(Value, frozen=True):
    """A recorded event that a profile hid: its kind, the tool or source it came from, the beginning of its text, and its tokens."""

    event: int
    kind: str
    name: str = ""
    text: str = ""
    tokens: int = 0


class KindScores(Value, frozen=True, omit_defaults=False):
    """Shares of the probes of one kind that the view answers, alone and with one recall; `sessions` counts sessions with such probes."""

    visible: float
    with_recall: float
    sessions: int


class ProbeScores(Value, frozen=True, omit_defaults=False):
    """Shares of probes that the view answers, alone and with one recall; of several sessions, the mean.

    `forced` folds were attempted and `folds` were made; `rested` counts the reasons of the others. `sessions` is the number of sessions
    with at least one fold, over which shares are averaged; `unfolded` is the number of the others.
    """

    visible: float
    with_recall: float
    folds: int = 0
    forced: int = 0
    sessions: int = 1
    unfolded: int = 0
    rested: Mapping[str, int] = {}
    kinds: Mapping[str, KindScores] = {}


class Outcome(Value, frozen=True):
    """Result of one session under one profile and card; `plan_ms` and `probes` (by cycles) are set only if they were requested.

    `rereads` are those that were billed, `rereads_by` the number by each definition; those of the others are counted, not billed.
    `offloads` counts results that the result limiter shortened, `refused` counts edits that the gate refused. `invalid` counts
    malformed requests; `faults` lists their first errors. `overflows` counts requests that exceeded the window before the profile
    reacted, `too_long` those that were sent too long. `stopped` says why the profile could not make the view fit: the imitated
    program would have ended there, and the replay continues. `asked` and `failed` count requests for summaries to a real model;
    `failure` is the message of the first one that failed. `thinking_blocks` are those of the replies, where the model binds its thinking to
    what stands before it.
    """

    profile: str
    calls: tuple[BilledCall, ...] = ()
    edits: tuple[ReplayedEdit, ...] = ()
    rereads: tuple[Reread, ...] = ()
    census: tuple[WindowShare, ...] = ()
    offloads: int = 0
    invalid: int = 0
    refused: int = 0
    faults: tuple[str, ...] = ()
    overflows: int = 0
    too_long: int = 0
    probes: Mapping[str, ProbeScores] = {}
    plan_ms: float | None = None
    stopped: str = ""
    asked: int = 0
    failed: int = 0
    failure: str = ""
    rereads_by: Mapping[str, int] = {}
    thinking_blocks: int = 0

    @property
    def cost(self) -> Cost:
        """Total cost in dollars, by part."""
        return sum((call.cost for call in self.calls), FREE)


class ReplayedSession(Value, frozen=True):
    """One session under several profiles; `source` is its file or home, `lines` are the hidden events that a report names.

    `card`, `ttl` and `window` are those of its bills; `stand_in_for` is the model whose place that card takes, or empty. `recorded` is
    what really happened, and None if its file reports no usage.
    """

    id: str
    source: str
    format: str
    events: int
    title: str = ""
    model: str = ""
    tokens: int = 0
    profiles: Mapping[str, Outcome] = {}
    lines: tuple[HiddenEvent, ...] = ()
    card: str = ""
    ttl: str = ""
    window: int = 0
    stand_in_for: str = ""
    recorded: Outcome | None = None

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """The outcomes by profile, and under `RECORDED` what really happened, if its file tells."""
        return dict(self.profiles) | ({} if self.recorded is None else {RECORDED: self.recorded})


class CardRun(Value, frozen=True):
    """All sessions under one card, or each under its own; `ttl` is the lifetime of cache entries (empty for automatic caches).

    If sessions differ, `card` is `OWN_CARDS`, `ttl` is empty or `window` is 0: each session has its own value.
    """

    card: str
    ttl: str
    window: int
    sessions: tuple[ReplayedSession, ...] = ()

    @property
    def outcomes(self) -> dict[str, list[Outcome]]:
        """The outcomes of all sessions by profile, and under `RECORDED` those of the sessions whose files tell."""
        found: dict[str, list[Outcome]] = {}
        for session in self.sessions:
            for name, outcome in session.outcomes.items():
                found.setdefault(name, []).append(outcome)
        recorded = found.pop(RECORDED, None)
        # Last in any case: a profile that only later sessions have would come after it.
        return found if recorded is None else {**found, RECORDED: recorded}

    def with_session_terms(self, session: ReplayedSession) -> Self:
        """Return the run with the card, the lifetime and the window of one session."""
        return replace(self, card=session.card, ttl=session.ttl, window=session.window) if session.card else self


class Comparison(Value, frozen=True):
    """Result of one `pal replay`; `against` is the baseline profile for ratios, empty if it was not replayed.

    `settings` are the environment settings that changed a profile, by profile; `rereads` names the definition of re-reads that is billed.
    """

    runs: tuple[CardRun, ...]
    profiles: tuple[str, ...]
    against: str = ""
    settings: Mapping[str, Mapping[str, str]] = {}
    rereads: str = ""


class Figures(Value, frozen=True, omit_defaults=False):
    """Totals over one or more outcomes, under the names that `pal replay --json` prints.

    `folds_per_100` counts folds per 100 recorded calls, so calls for summaries and re-reads do not lower it. `reasoning_kept` is the share
    of the thinking blocks of all replies that no edit took away, `None` if there were none or the model does not bind its thinking;
    `reasoning_lost_in_loops` counts those that were lost where the model went on after tool results.
    """

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
    folds_per_100: float = 0.0
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
    rereads_by: Mapping[str, int] = {}
    reasoning_lost: ReasoningLost = ReasoningLost()
    reasoning_lost_in_loops: int = 0
    reasoning_kept: float | None = None
    survival: SurvivalShares = SurvivalShares()
    probes: Mapping[str, Mapping[str, ProbeScores]] = {}
    plan_ms: float | None = None


def figures(outcomes: Iterable[Outcome]) -> Figures:
    """Return the totals of some outcomes; context sizes cover turn calls only, survival covers all folds."""
    many = tuple(outcomes)
    calls = [call for outcome in many for call in outcome.calls]
    turns = [call.tokens for call in calls if call.purpose == "turn"]
    total = sum((call.cost for call in calls), FREE)
    edits = [edit.kind for outcome in many for edit in outcome.edits]
    cycles = dict.fromkeys(number for outcome in many for number in outcome.probes)
    survived = [edit.survived for outcome in many for edit in outcome.edits if edit.survived is not None]
    definitions = dict.fromkeys(name for outcome in many for name in outcome.rereads_by)
    thought, lost = sum(outcome.thinking_blocks for outcome in many), _lost_reasoning(many)
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
        usd_of={name: round(sum((call.cost.total for call in calls if call.purpose == name), 0.0), 6) for name in get_args(Purpose)},
        folds=edits.count("fold"),
        folds_per_100=round(100 * edits.count("fold") / len(turns), 2) if turns else 0.0,
        masks=edits.count("mask"),
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
        rereads_by={name: sum(outcome.rereads_by.get(name, 0) for outcome in many) for name in definitions},
        reasoning_lost=lost,
        reasoning_lost_in_loops=sum(
            edit.reasoning_lost.blocks for outcome in many for edit in outcome.edits if edit.within_loop and edit.reasoning_lost is not None
        ),
        reasoning_kept=round(1 - lost.blocks / thought, 4) if thought else None,
        survival=survival(sum(survived, SurvivalCounts())),
        probes={"cycles": {each: mean_scores([outcome.probes[each] for outcome in many if each in outcome.probes]) for each in cycles}},
        plan_ms=round(sum(timed), 3) if timed else None,
    )


def _lost_reasoning(outcomes: Iterable[Outcome]) -> ReasoningLost:
    """Return the thinking that all edits took away."""
    lost = [edit.reasoning_lost for outcome in outcomes for edit in outcome.edits if edit.reasoning_lost is not None]
    tokens = total_lost([each.tokens for each in lost]).tokens
    return ReasoningLost(sum(each.blocks for each in lost), tokens)


def survival(counted: SurvivalCounts) -> SurvivalShares:
    """Convert survival counts to shares from 0 to 1."""
    shares = (counted.messages, counted.edited, counted.read, counted.commands, counted.numbers)
    return SurvivalShares(*(round(share.ratio, 4) for share in shares))


def ratio(one: float, other: float) -> float | None:
    """Return `one / other`, or None if `other` is zero."""
    return one / other if other else None


def _distinct(reasons: Iterable[str]) -> tuple[str, ...]:
    """Return the first distinct reasons, without empty ones."""
    return tuple(dict.fromkeys(reason for reason in reasons if reason))[:_MOST_REASONS]


def mean_scores(many: Sequence[ProbeScores]) -> ProbeScores:
    """Average the scores of several sessions over those that were folded, or over all if none was."""
    folded = [each for each in many if each.sessions] or many
    rested: Counter[str] = Counter()
    kinds: dict[str, list[KindScores]] = {}
    for each in many:
        rested.update(each.rested)
    for each in folded:
        for kind, kept in each.kinds.items():
            kinds.setdefault(kind, []).append(kept)
    return ProbeScores(
        _mean(each.visible for each in folded),
        _mean(each.with_recall for each in folded),
        sum(each.folds for each in many),
        sum(each.forced for each in many),
        sum(each.sessions for each in many),
        sum(each.unfolded for each in many),
        dict(rested),
        {
            kind: KindScores(_mean(one.visible for one in kept), _mean(one.with_recall for one in kept), len(kept))
            for kind, kept in kinds.items()
        },
    )


def _mean(values: Iterable[float]) -> float:
    many = tuple(values)
    return round(sum(many) / len(many), 4) if many else 1.0
