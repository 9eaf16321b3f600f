"""The policy that folds from the log without a model, and the narrative with citations that a model may add to a fold."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from msgspec.structs import replace

from palimpsest.audit.citations import HEADINGS, check_narrative, sources_of
from palimpsest.audit.fold_texts import NARRATIVE
from palimpsest.audit.gate import FREE_SHARE, Floor, check_floor, fold_limit, removed_lines_text, token_limit, too_full
from palimpsest.audit.prices import price_of_fold, request_after_fold
from palimpsest.audit.reasoning import is_within_loop
from palimpsest.core.errors import NoModel, PalimpsestError
from palimpsest.core.events import Failed, ModelReplied, StopReason, stop_reason
from palimpsest.core.items import Item, Put, Text, ToolCall, text_of
from palimpsest.core.plans import Ask, Look, Moment, Outcome, Plan, Proposal, Situation, Steps, ask, look_or_none, proposal_of
from palimpsest.policies.fold_parts import FULL_WINDOW, NO_FILES, USUAL_LEVEL, Bounds, fallback_levels, files_in_work, fold_within
from palimpsest.policies.limits import fold_threshold, prompt, shows_held_items

Narrative: TypeAlias = Literal["off", "auto", "asked"]
# The largest share of the view that a fold may leave without pressure, when asked for and automatically: more is not worth the loss.
_LARGEST_SHARE_ASKED, _LARGEST_SHARE_AUTO = 0.95, 0.8


@dataclass(frozen=True, slots=True)
class FoldFromLog:
    """Folds without a model.

    cover: how many times the rent must cover the price of a fold.
    shrink: how many times smaller the view must become for a fold without pressure.
    early_at: least tokens of a view, in a window of 200,000, that is folded without pressure.
    cold_at: the same for a view of which nothing is cached, so that a fold costs nothing.
    in_use: most tokens of results in use that a fold without pressure hides; while more is in use, it waits. 0 is any number.
    auto: fold automatically; if false, only when the user asks or after an overflow.
    always: fold whenever it is planned; for the fallback, which is planned only when a fold is due.
    narrative: when a model writes a narrative; `off` also leaves out running notes.
    """

    name: str = "fold"
    moments: frozenset[Moment] = frozenset({"before_call", "overflow", "asked", "switched", "idle"})
    shrinks: bool = True
    bounds: Bounds = field(default_factory=Bounds)
    cover: float = 2.0
    shrink: float = 2.0
    early_at: int = 0
    cold_at: int = 0
    in_use: int = 0
    auto: bool = True
    always: bool = False
    narrative: Narrative = "off"

    def plan(self, situation: Situation) -> Plan:
        """Plan the fold of the first fallback level that fits, if a fold is due."""
        return self.steps(situation) if self.due(situation) else ()

    def steps(self, situation: Situation, narrative: Put | None = None) -> Steps:
        """Read the files in work as they are now, and propose the fold."""
        files: dict[str, str] = {}
        for path in files_in_work(situation.view.items) if self.bounds.results else ():
            text = yield from look_or_none(Look(path))
            files |= {path: text} if text is not None else {}
        return self.propose(situation, narrative, files)

    def propose(self, situation: Situation, narrative: Put | None = None, files: Mapping[str, str] = NO_FILES) -> Outcome:
        """Propose the fold that is due, with a narrative and with present texts of files, if they are given.

        Raises `TooFull` if the window is full and no fold makes enough room.
        """
        why = self.due(situation)
        if not why:
            return ()
        floor = check_floor(situation)
        now = situation.tokens.total(situation.view) + situation.tools_tokens
        limit, most = self._limits(situation, floor.tokens, now)
        under_pressure, smallest = situation.moment == "overflow" or bool(self._reason_by_pressure(situation)), None
        share = _LARGEST_SHARE_ASKED if self.always or situation.moment == "asked" else min(_LARGEST_SHARE_AUTO, 1 / self.shrink)
        largest = now if under_pressure else now * share
        most_lost = self.in_use if self.in_use and situation.moment == "before_call" and not under_pressure else now
        for number, bounds in fallback_levels(self.bounds, situation.budget.window):
            candidate = fold_within(situation, bounds, floor, narrative or self._notes(situation, bounds), files)
            if candidate is None or candidate.tokens >= largest or candidate.lost > most_lost:
                if under_pressure:
                    continue
                break
            if candidate.tokens <= limit:
                return Proposal(candidate.edits, why if number == USUAL_LEVEL else f"{why}; fallback level {number}")
            smallest = candidate
        if smallest is None or smallest.tokens > most:
            return self._nothing_fits(situation, floor)
        return Proposal(smallest.edits, f"{why}; no fallback level leaves more room")

    def due(self, situation: Situation) -> str:
        """Return why a fold is due now; empty if it is not."""
        if not situation.view.items:
            return ""
        if self.always:
            return "no model was available for a summary"
        if situation.moment == "asked":
            return f"the user asked for it: {situation.asked}" if situation.asked else "the user asked for it"
        if not situation.may_fold:
            return ""
        if situation.moment == "overflow":
            return "" if _has_freed_enough(situation) else "the request was too long"
        if not self.auto:
            return ""
        if situation.moment == "idle":
            return self._reason_when_idle(situation)
        return self._reason_by_pressure(situation) or self._reason_by_rent(situation)

    def _reason_by_pressure(self, situation: Situation) -> str:
        """Return why there is pressure: too many tokens or bytes; empty if there is none."""
        budget, call = situation.budget, situation.view.call
        level = fold_threshold(situation, budget.compact_at)
        if level is not None and situation.used >= level:
            return f"{situation.used:,} tokens are used, and from {level:,} on a fold is due"
        if budget.bytes_at is not None and call is not None and call.size >= budget.bytes_at and not situation.cache.edited:
            return f"the last request had {call.size:,} bytes, and from {budget.bytes_at:,} on a fold is due"
        return ""

    def _shrinks_much(self, situation: Situation) -> bool:
        return not shows_held_items(situation) and situation.used > self.shrink * request_after_fold(situation)

    def _reason_when_idle(self, situation: Situation) -> str:
        """Return why to fold while the user is away: the cache is warm for the narrative now, and cold at the next call anyway."""
        if self.narrative != "auto" or not self._shrinks_much(situation):
            return ""
        return "the user is away, and the cache will have expired when they return"

    def _reason_by_rent(self, situation: Situation) -> str:
        """Return why a fold pays: the view is large, it would become much smaller, and the rent covers the price of a fold."""
        if situation.reasoning and is_within_loop(situation.view):
            return ""
        window = situation.budget.window
        share = min(1.0, window / FULL_WINDOW) if window else 1.0
        if situation.used < min(self.early_at, self.cold_at) * share or not self._shrinks_much(situation):
            return ""
        price = price_of_fold(situation)
        if situation.rent < self.cover * price or situation.used < share * (self.early_at if price > 0 else self.cold_at):
            return ""
        return f"waiting has cost {situation.rent:,.0f} tokens, and a fold costs {price:,.0f}"

    def _limits(self, situation: Situation, floor: int, now: int) -> tuple[int, int]:
        """Return the tokens that a fold should come down to, and the most that it may leave."""
        level, most = situation.budget.compact_at or token_limit(situation), fold_limit(situation, floor)
        if level is None or most is None:
            return now, now
        share = _count_factor(situation, now) if situation.moment == "overflow" else 1.0
        return int(level * share * (1 - FREE_SHARE)), most

    def _nothing_fits(self, situation: Situation, floor: Floor) -> Outcome:
        room = token_limit(situation)
        if room is not None and situation.used >= room and situation.moment != "asked":
            raise too_full(situation, floor, room)
        return ()

    def _notes(self, situation: Situation, bounds: Bounds) -> Put | None:
        notes = situation.view.notes
        if notes is None or self.narrative == "off":
            return None
        content = Text(check_narrative(notes.text, sources_of(situation.view.items)).text)
        return Put("summary", content, NARRATIVE) if content.text and situation.tokens.content(content) <= bounds.narrative else None


def _count_factor(situation: Situation, now: int) -> float:
    """Return the factor from real tokens to our count after an overflow: the rejected request had at least the tokens of the window."""
    call, window = situation.view.call, situation.budget.window
    counted = situation.tokens.scaled(call.estimate) + situation.tools_tokens if call is not None and call.estimate else now
    return min(1.0, counted / window) if window else 1.0


def _has_freed_enough(situation: Situation) -> bool:
    """Return whether edits since the rejected request have freed enough tokens."""
    level = situation.budget.compact_at or token_limit(situation)
    if level is None or not situation.cache.edited:
        return False
    now = situation.tokens.total(situation.view) + situation.tools_tokens
    return now <= level * _count_factor(situation, now) * (1 - FREE_SHARE)


def model_free_fallback() -> FoldFromLog:
    """Return the policy that every profile uses in place of a summary when no model is available."""
    return FoldFromLog("fold without a model", always=True)


# Characters of each item in the list of citable events, and the share of the window that the list may take.
_OPENING_CHARS = 80
_LIST_SHARE = 0.03
_CUT_SHORT: frozenset[StopReason] = frozenset({"max_tokens", "context_window"})


class _UnusableNarrative(PalimpsestError):
    """A reply that cannot be used as a narrative."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Narrate:
    """Comes before `fold` in a profile and adds a narrative to it when it is due; if that fails, the plain fold runs."""

    fold: FoldFromLog = field(default_factory=FoldFromLog)
    name: str = "narrate"
    moments: frozenset[Moment] = frozenset({"asked", "idle"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Plan to ask for a narrative, if a fold is due and the setting allows one at this moment."""
        mode = self.fold.narrative
        if mode == "off" or (situation.moment == "idle" and mode != "auto"):
            return ()
        return self._steps(situation) if proposal_of(self.fold.propose(situation)).edits else ()

    def _steps(self, situation: Situation) -> Steps:
        view = situation.view
        bound = self.fold.bounds.scaled(situation.budget.window).narrative
        request = prompt("narrative", words=str(bound // 2), focus=situation.asked, events=_citable_events(situation))
        try:
            reply = yield from ask(Ask(view.items, request, "narrative"))
            text, removed = check_narrative(_within_bound(_narrative_text(reply), bound, situation), sources_of(view.items))
            if not text:
                raise _UnusableNarrative("empty", "no line of the account has a valid citation")
        except NoModel:
            return Proposal(notices=("no model is available: folded without an account of the work",))
        except PalimpsestError as error:
            return Proposal(failed=(Failed("narrative", error.kind, error.message, by=self.name),))
        proposal = proposal_of((yield from self.fold.steps(situation, Put("summary", Text(text), NARRATIVE))))
        lines = f"; {removed_lines_text(len(removed))}" if removed else ""
        return replace(proposal, why=f"{proposal.why}; with an account that a model wrote{lines}")


def _narrative_text(reply: ModelReplied) -> str:
    """Return the text of a narrative; raise `_UnusableNarrative` if the reply is none."""
    if any(isinstance(part, ToolCall) for part in reply.parts):
        raise _UnusableNarrative("tool_call", "the model called a tool instead of writing an account")
    text = "\n".join(text_of(part) for part in reply.parts if isinstance(part, Text)).strip()
    if reply.error:
        raise _UnusableNarrative("refused", "the model refused to write an account")
    if stop_reason(reply.stop) in _CUT_SHORT:
        raise _UnusableNarrative("longer", "the reply was cut off")
    if not text:
        raise _UnusableNarrative("empty", "the reply is empty")
    if not any(heading in text for heading in HEADINGS):
        raise _UnusableNarrative("refused", "the reply has none of the required headings")
    return text


def _citable_events(situation: Situation) -> str:
    """Return one line for each visible item that may be cited, oldest first: as many of the newest as fit."""
    lines: list[str] = []
    room = situation.tokens.total(situation.view) if not situation.budget.window else int(situation.budget.window * _LIST_SHARE)
    for item in reversed(situation.view.items):
        if item.hidden:
            continue
        line = _dialogue_line(item)
        room -= situation.tokens.content(Text(line))
        if room < 0:
            break
        lines.append(line)
    return "\n".join(reversed(lines))


def _dialogue_line(item: Item) -> str:
    opening = " ".join(text_of(item.content)[: 4 * _OPENING_CHARS].split())[:_OPENING_CHARS]
    return f"[{item.id}] {item.kind}: {opening}"


def _within_bound(text: str, bound: int, situation: Situation) -> str:
    """Return the text; raise `_UnusableNarrative` if it has more than `bound` tokens."""
    tokens = situation.tokens.content(Text(text))
    if tokens > bound or tokens >= situation.used:
        raise _UnusableNarrative("longer", f"the account has {tokens:,} tokens, and {bound:,} are allowed")
    return text
