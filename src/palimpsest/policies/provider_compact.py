"""Compaction by the provider under profiles of our own: asked for when a fold is due, or made by the provider at a threshold."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from palimpsest.audit.floor import REQUIRED_SOURCES, last_request
from palimpsest.audit.pins import pinned
from palimpsest.audit.pricing.bill import prices_of
from palimpsest.core.edits import Fold, Into, Keep, Put
from palimpsest.core.errors import NoModel, PalimpsestError, WireError
from palimpsest.core.events import Failed, ModelReplied
from palimpsest.core.format.texts import cost_text, counted
from palimpsest.core.items import MODEL_KINDS, Content, Document, Image, Item, Text, ToolCall, ToolResult, seq_of
from palimpsest.core.pairs import settled
from palimpsest.core.policy import Ask, Plan, Proposal, Steps, ask
from palimpsest.core.situation import Moment, Situation
from palimpsest.policies.fold.fold import FoldFromLog
from palimpsest.policies.fold_threshold import tokens_after
from palimpsest.policies.handoff.handoff import PURPOSE
from palimpsest.policies.prompt import prompt
from palimpsest.policies.remote import Remote, can_compact, compaction_items
from palimpsest.wire.compaction import fold_into_block, is_compaction
from palimpsest.wire.models.prices import cost, total_usd

NAME: Final = "provider_compact"
MOMENTS: Final[frozenset[Moment]] = frozenset({"before_call", "overflow", "asked", "switched"})
# A summary by the provider has rarely more tokens; it decides only whether asking can make enough room.
USUAL_SUMMARY: Final = 4_000
# Why a provider ended without a summary, and what would have to change.
_NO_SUMMARY: Final = {
    "max_tokens": "the summary did not fit the limit of the reply",
    "model_context_window_exceeded": "the conversation has too many messages for a summary",
    "tool_use": "the model called a tool instead of writing a summary",
    "refusal": "the model refused to write a summary",
    "end_turn": "the model ended without a summary",
}


@dataclass(frozen=True, slots=True)
class ProviderCompact:
    """Asks the provider for a compaction when a fold is due, and folds into the block that comes back.

    The request has exactly the messages of one that was sent, so that all of it is in the cache and the reply to it stays valid behind the
    block, with its thinking. If that leaves too much, all messages are compacted.

    fold: says when a fold is due; it follows in the profile, and folds where no compaction came back.
    keeps_request: the last request of the user and required statements stay word for word, at the end; a full gate demands it.
    remote: how OpenAI is asked.
    """

    fold: FoldFromLog
    keeps_request: bool = False
    remote: Remote = field(default_factory=lambda: Remote("endpoint", MOMENTS, name=NAME))
    name: str = NAME
    moments: frozenset[Moment] = MOMENTS
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Plan a request for a compaction and a fold, if a fold is due and the provider can compact."""
        card = situation.card
        asks_openai = can_compact(card)
        if not asks_openai and card.compaction != "demand":
            return ()
        why = self.fold.due(situation)
        if not why:
            return ()
        return self.remote.steps(situation, card, why) if asks_openai else self._steps(situation, why)

    def _steps(self, situation: Situation, why: str) -> Steps:
        items = situation.view.items
        cut = self._cut(situation)
        if not any(_can_be_summarised(item) for item in items[:cut]):
            return ()
        instructions = prompt("handoff", focus=f"Pay special attention to this: {situation.asked}") if situation.asked else ""
        try:
            reply = yield from ask(Ask(items[:cut], "", PURPOSE, endpoint="compact", instructions=instructions))
            block = _block_of(reply, situation)
        except NoModel:
            # The next policy needs none.
            return ()
        except PalimpsestError as error:
            failed = Failed("remote compaction", error.kind, error.message, by=self.name)
            return Proposal(failed=(failed,), notices=(f"the provider could not compact ({error.message}); folding from the log instead",))
        reasons = (why, _asking_cost(reply, situation), _lost_media(items[:cut]))
        return Proposal((self._edit(situation, cut, block),), "; ".join(filter(None, reasons)))

    def _cut(self, situation: Situation) -> int:
        """The number of leading items to compact: those of the newest request, or all if its reply and results leave too little room."""
        items = situation.view.items
        cut = _sent_before_last_reply(items)
        level = situation.budget.compact_at or situation.budget.window
        rest = sum(situation.tokens.item(item) for item in (*situation.view.head, *items[cut:])) + situation.tools_tokens
        return cut if cut and rest + USUAL_SUMMARY < level else settled(items)

    def _edit(self, situation: Situation, cut: int, block: Put) -> Fold:
        """The fold of the whole view: the block, pinned items, what came after the request, and what must stay word for word.

        What must stay comes last, because anything between the block and the reply behind it would make its thinking invalid.
        """
        view = situation.view
        folded, tail = view.items[:cut], view.items[cut:]
        pins = pinned(view)
        must_stay = self._required(situation) if self.keeps_request or not tail else frozenset()
        into: Into = (
            block,
            *(Keep(item.id) for item in folded if item.id in pins),
            *(Keep(item.id) for item in tail),
            *(Keep(item.id) for item in folded if item.id in must_stay - pins),
            *(self._open_tasks(situation) if self.keeps_request else ()),
        )
        return Fold(view.items[0].id, view.items[-1].id, into)

    def _required(self, situation: Situation) -> frozenset[str]:
        view = situation.view
        request = {item.id for item in last_request(view)}
        facts = {fact.id for source, fact in view.facts.items() if source in REQUIRED_SOURCES}
        return frozenset(request | facts) if self.keeps_request else frozenset(request)

    def _open_tasks(self, situation: Situation) -> Into:
        tasks = situation.listed_evidence.tasks
        return (Put("reminder", Text("\n".join(("Open tasks:", *(f"- {task}" for task in tasks))))),) if tasks else ()


@dataclass(frozen=True, slots=True)
class RecordCompaction:
    """Records a compaction that the provider made in a reply: what stands before its block is no longer read, and is folded away."""

    name: str = NAME
    moments: frozenset[Moment] = frozenset({"after_call"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Propose the fold of everything before the newest block of the last reply."""
        items = situation.view.items
        place = next((place for place in reversed(range(len(items))) if is_compaction(items[place].content)), 0)
        edit = fold_into_block(items, place, pinned(situation.view))
        if edit is None or seq_of(items[place].id) != _newest_reply(items):
            return ()
        size = tokens_after(situation, items, edit)
        gone = _lost_media(items[:place])
        why = f"the provider compacted by itself; about {size:,} tokens remain"
        return Proposal((edit,), f"{why}; {gone}" if gone else why)


def _can_be_summarised(item: Item) -> bool:
    """Whether a summary can say something of an item. A provider refuses a list of a block, thinking and system messages alone."""
    return item.kind not in ("thinking", "context", "reminder", "notice") and not is_compaction(item.content)


def _newest_reply(items: Iterable[Item]) -> int:
    """The event of the newest reply in the view; -1 without one. Items that an edit added belong to no reply."""
    return max((seq_of(item.id) for item in items if item.kind in MODEL_KINDS and item.id.count(".") == 1), default=-1)


def _sent_before_last_reply(items: Sequence[Item]) -> int:
    """The number of leading items that the newest reply answered; 0 if it is not in the view."""
    newest = _newest_reply(items)
    return next((place for place, item in enumerate(items) if newest >= 0 and seq_of(item.id) == newest), 0)


def _block_of(reply: ModelReplied, situation: Situation) -> Put:
    """The block of a reply as a summary. Raises `WireError` if the provider wrote none."""
    found = compaction_items(reply)
    if len(found) != 1 or not is_compaction(found[0]):
        reason = reply.provider_stop or reply.stop
        raise WireError(_NO_SUMMARY.get(reason, f"{len(found)} compactions came back"), where=situation.card.provider)
    return Put("summary", found[0])


def _asking_cost(reply: ModelReplied, situation: Situation) -> str:
    """What the request for a compaction cost, which the price of the edit does not have; empty for a model without known prices."""
    prices = prices_of(situation.card.prices)
    if not prices.are_known:
        return ""
    usages = [usage for usage in (reply.usage, *(each.usage for each in reply.beside)) if usage.total]
    bills = [cost(usage, prices) for usage in usages]
    usd = total_usd(None if bill is None else bill.total for bill in bills) if bills else None
    return f"asking: {cost_text(usd)}"


def _lost_media(items: Iterable[Item]) -> str:
    """What a summary cannot carry over: images and documents of the items, also in results; empty if there are none."""
    parts = [part for item in items if item.mask is None for part in _parts(item.content)]
    images, documents = (sum(isinstance(part, kind) for part in parts) for kind in (Image, Document))
    lost = [counted(number, name) for number, name in ((images, "image"), (documents, "document")) if number]
    return f"{' and '.join(lost)} no longer shown" if lost else ""


def _parts(content: Content) -> tuple[Content, ...]:
    if isinstance(content, ToolResult):
        return content.parts
    return () if isinstance(content, ToolCall) else (content,)
