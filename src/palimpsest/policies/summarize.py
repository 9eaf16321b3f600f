"""Full compaction as Claude Code does it: a model sums up the conversation in nine sections, and the summary takes its place."""

from dataclasses import dataclass, field

from palimpsest.audit.pins import pinned
from palimpsest.core.edits import Fold, Keep, Put
from palimpsest.core.errors import CannotFold, NoModel
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Item, Text, ToolCall
from palimpsest.core.pairs import pending_calls, rounds
from palimpsest.core.policy import Plan, Proposal, Steps
from palimpsest.core.situation import Moment, Situation
from palimpsest.policies.continued import Continued
from palimpsest.policies.pressing import is_due
from palimpsest.policies.prompt import prompt
from palimpsest.policies.strip_images import strip_images
from palimpsest.policies.too_long import RETRIES, ask_dropping, ask_halving

_SAID = frozenset({"user", "steering", "assistant", "thinking", "call", "result"})
NO_SUMMARY = "no assistant message in summarization response"


@dataclass(frozen=True, slots=True)
class Summarize:
    """Folds the whole conversation; with `keeps_round` all but the last round and what the user just said.

    `auto` is the compaction that comes by itself, `asked` the one that the user wants. A request that is too long loses its oldest
    rounds, or with `keeps_round` folds half as many.
    """

    auto: bool = True
    asked: bool = True
    overflow: bool = False
    keeps_round: bool = False
    images: bool = False
    retries: int = RETRIES
    form: Continued = field(default_factory=Continued)
    report: str = "Conversation compacted"
    breakpoint_rule: str = ""
    name: str = "summarize"
    shrinks: bool = True

    @property
    def moments(self) -> frozenset[Moment]:
        """Before a call when due, when asked, and after a refusal where the profile has it so."""
        wanted: tuple[tuple[bool, Moment], ...] = (
            (self.auto, "before_call"),
            (self.asked, "asked"),
            (self.auto and self.overflow, "overflow"),
        )
        return frozenset(moment for on, moment in wanted if on)

    def plan(self, situation: Situation) -> Plan:
        """Steps that ask the model, if there is anything to fold."""
        if situation.moment == "before_call" and not is_due(situation):
            return ()
        if not any(item.kind in _SAID for item in situation.view.items):
            return Proposal(notices=("There is nothing to compact.",)) if situation.moment == "asked" else ()
        return self._half(situation) if self.keeps_round else self._whole(situation)

    def _whole(self, situation: Situation) -> Steps:
        items = situation.view.items
        reply = yield from ask_dropping(self._shown(items), request_text(situation), situation.tokens, self.retries)
        return self._fold(situation, reply, len(items))

    def _half(self, situation: Situation) -> Steps:
        items = situation.view.items
        count = len(rounds(items)) - 1
        if count < 1 and situation.moment == "overflow":
            raise NoModel("there is only one exchange, which no summary of what came before can shorten")
        if count < 1:
            raise CannotFold("too_few_groups: there is only one exchange, and that stays", kind="too_few_groups")
        if situation.moment == "overflow":
            count = max(1, count // 2)
        reply, end = yield from ask_halving(self._shown(items), count, request_text(situation), self.breakpoint_rule)
        return self._fold(situation, reply, end)

    def _shown(self, items: tuple[Item, ...]) -> tuple[Item, ...]:
        return items if self.images else strip_images(items)

    def _fold(self, situation: Situation, reply: ModelReplied, end: int) -> Proposal:
        """The summary in place of the items before `end`; pins stay, and so do calls whose results are still to come."""
        summary = self.form.summary_of(reply)
        if not summary:
            raise CannotFold(NO_SUMMARY, kind="no_summary")
        items = situation.view.items
        folded = items[:end]
        tools = tuple(item.content.tool for item in folded if isinstance(item.content, ToolCall))
        stays = pinned(situation.view).union(item.id for item in pending_calls(items))
        keeps = tuple(Keep(item.id) for item in folded if item.id in stays)
        automatic = situation.moment != "asked"
        text = self.form.message(
            summary, situation.session, automatic=automatic, kept=bool(keeps) or end < len(items), tools=(*tools, *situation.health.called)
        )
        edit = Fold(folded[0].id, folded[-1].id, (Put("summary", Text(text)), *keeps))
        return Proposal((edit,), _why(situation), notices=(self.report,))


def request_text(situation: Situation) -> str:
    """What the model is asked, with the wishes of the user for this one time."""
    wishes = situation.asked.strip()
    return prompt("nine_sections", instructions=f"Additional Instructions:\n{wishes}" if wishes else "")


def _why(situation: Situation) -> str:
    match situation.moment:
        case "asked":
            return "manual"
        case "overflow":
            return "auto: the provider found the request too long"
        case _:
            return f"auto: {situation.used:,} tokens are used, and compaction is due at {situation.budget.compact_at or 0:,}"
