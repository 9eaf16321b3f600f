"""Folds with the thread of the work as a model tells it: goal, approach, state, next step; whatever goes wrong, a plain fold follows."""

from dataclasses import dataclass, field

from msgspec.structs import replace

from palimpsest.audit.amend import left_out, supported
from palimpsest.audit.parts import NARRATIVE
from palimpsest.core.edits import Put
from palimpsest.core.errors import NoModel, PalimpsestError
from palimpsest.core.events import Failed, ModelReplied
from palimpsest.core.items import Text, ToolCall, text_of
from palimpsest.core.policy import Ask, Plan, Proposal, Steps, ask, proposal_of
from palimpsest.core.situation import Moment, Situation
from palimpsest.core.stops import StopReason, stop_reason
from palimpsest.policies.fold import FoldFromLog
from palimpsest.policies.prompt import prompt

HEADINGS = ("## Goal", "## Approach", "## State", "## Next step")
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
        request = prompt("narrative", words=str(bound // 2), focus=situation.asked)
        try:
            reply = yield from ask(Ask(view.items, request, "narrative"))
            text, removed = supported(_text(reply), situation)
            told = Text(f"[account of the work up to event {view.seq}]\n{_checked(text, bound, situation)}")
        except NoModel:
            return Proposal(notices=("no model is at hand: folded without an account of the work",))
        except PalimpsestError as error:
            return Proposal(failed=(Failed("narrative", error.kind, error.message, by=self.name),))
        folding = proposal_of(self.fold.propose(situation, Put("summary", told, NARRATIVE)))
        lines = f"; {left_out(len(removed))}" if removed else ""
        return replace(folding, why=f"{folding.why}; with what a model told{lines}")


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


def _checked(text: str, bound: int, situation: Situation) -> str:
    """The text, if something is left of it and it is short enough."""
    if not any(line.strip() and not line.startswith("#") for line in text.split("\n")):
        raise _Unusable("empty", "nothing of what the model told is supported by the log")
    tokens = situation.tokens.content(Text(text))
    if tokens > bound or tokens >= situation.used:
        raise _Unusable("longer", f"what the model told has {tokens:,} tokens, and {bound:,} are allowed")
    return text
