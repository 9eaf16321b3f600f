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
        line = _line(item)
        room -= situation.tokens.content(Text(line))
        if room < 0:
            break
        lines.append(line)
    return "\n".join(reversed(lines))


def _line(item: Item) -> str:
    opening = " ".join(text_of(item.content)[: 4 * _OPENING_CHARS].split())[:_OPENING_CHARS]
    return f"[{item.id}] {item.kind}: {opening}"


def _within_bound(text: str, bound: int, situation: Situation) -> str:
    """Return the text; raise `_UnusableNarrative` if it has more than `bound` tokens."""
    tokens = situation.tokens.content(Text(text))
    if tokens > bound or tokens >= situation.used:
        raise _UnusableNarrative("longer", f"the account has {tokens:,} tokens, and {bound:,} are allowed")
    return text
