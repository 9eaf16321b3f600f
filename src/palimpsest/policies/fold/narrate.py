"""Adds a narrative to a fold: a model writes it, each line with citations; on any failure the plain fold follows."""

from dataclasses import dataclass, field

from msgspec.structs import replace

from palimpsest.audit.citations import HEADINGS, check_narrative, sources_of
from palimpsest.audit.fold_texts import NARRATIVE
from palimpsest.audit.gate import removed_lines_text
from palimpsest.core.edits import Put
from palimpsest.core.errors import NoModel, PalimpsestError
from palimpsest.core.events import Failed, ModelReplied
from palimpsest.core.events.stops import StopReason, stop_reason
from palimpsest.core.items import Item, Text, ToolCall, text_of
from palimpsest.core.policy import Ask, Plan, Proposal, Steps, ask, proposal_of
from palimpsest.core.situation import Moment, Situation
from palimpsest.policies.fold.fold import FoldFromLog
from palimpsest.policies.prompt import prompt

# What the list of events says of each item, in characters, and how much of the window the whole list may take.
_OPENING = 80
_LISTED = 0.03
_CUT_SHORT: frozenset[StopReason] = frozenset({"max_tokens", "context_window"})


class _Unusable(PalimpsestError):
    """A reply that is no narrative."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Narrate:
    """Stands before the fold in a profile, and asks only when that fold is due; if it fails, the fold behind it takes its place."""

    fold: FoldFromLog = field(default_factory=FoldFromLog)
    name: str = "narrate"
    moments: frozenset[Moment] = frozenset({"asked", "idle"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Ask, if a fold follows and the setting wants a narrative at this moment."""
        mode = self.fold.narrative
        if mode == "off" or (situation.moment == "idle" and mode != "auto"):
            return ()
        return self._steps(situation) if proposal_of(self.fold.propose(situation)).edits else ()

    def _steps(self, situation: Situation) -> Steps:
        view = situation.view
        bound = self.fold.bounds.scaled(situation.budget.window).narrative
        request = prompt("narrative", words=str(bound // 2), focus=situation.asked, events=_listed(situation))
        try:
            reply = yield from ask(Ask(view.items, request, "narrative"))
            text, removed = check_narrative(_bounded(_text(reply), bound, situation), sources_of(view.items))
            if not text:
                raise _Unusable("empty", "no line of the account has a valid citation")
        except NoModel:
            return Proposal(notices=("no model is at hand: folded without an account of the work",))
        except PalimpsestError as error:
            return Proposal(failed=(Failed("narrative", error.kind, error.message, by=self.name),))
        folding = proposal_of(self.fold.propose(situation, Put("summary", Text(text), NARRATIVE)))
        lines = f"; {removed_lines_text(len(removed))}" if removed else ""
        return replace(folding, why=f"{folding.why}; with an account that a model wrote{lines}")


def _text(reply: ModelReplied) -> str:
    """What the model wrote, if it wrote a narrative."""
    if any(isinstance(part, ToolCall) for part in reply.parts):
        raise _Unusable("tool_call", "the model called a tool instead of telling what happened")
    text = "\n".join(text_of(part) for part in reply.parts if isinstance(part, Text)).strip()
    if reply.error:
        raise _Unusable("refused", "the model refused to tell what happened")
    if stop_reason(reply.stop) in _CUT_SHORT:
        raise _Unusable("longer", "the model did not come to an end")
    if not text:
        raise _Unusable("empty", "the model told nothing")
    if not any(heading in text for heading in HEADINGS):
        raise _Unusable("refused", "the model answered something else")
    return text


def _listed(situation: Situation) -> str:
    """The events that may be cited, one line for each item, oldest first: the newest that fit."""
    lines: list[str] = []
    room = situation.tokens.total(situation.view) if not situation.budget.window else int(situation.budget.window * _LISTED)
    for item in reversed(situation.view.items):
        if item.hidden:
            continue
        line = _line(item)
        room -= situation.tokens.content(Text(line))
        if room < 0:
            break
        lines.append(line)
    return "\n".join(reversed(lines))


def _line(item: Item) -> str:
    opening = " ".join(text_of(item.content)[: 4 * _OPENING].split())[:_OPENING]
    return f"[{item.id}] {item.kind}: {opening}"


def _bounded(text: str, bound: int, situation: Situation) -> str:
    """The text, if it is short enough."""
    tokens = situation.tokens.content(Text(text))
    if tokens > bound or tokens >= situation.used:
        raise _Unusable("longer", f"the account has {tokens:,} tokens, and {bound:,} are allowed")
    return text
