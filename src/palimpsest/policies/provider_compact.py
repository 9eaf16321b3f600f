"""Compaction by the provider: the policies that ask for it or compare its price, for Codex and for the profile `provider`."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as provider_replace
from typing import Final, Literal

from msgspec.structs import replace

from palimpsest.audit.entities import is_real_user_message
from palimpsest.audit.fold_texts import EVIDENCE_TITLE, EVIDENCE_TOKENS, evidence_text
from palimpsest.audit.gate import REQUIRED_SOURCES, last_request, pinned
from palimpsest.audit.loss import loss_of
from palimpsest.audit.prices import price_of, rates_of
from palimpsest.core.errors import NoModel, PalimpsestError, TooFull, WireError
from palimpsest.core.events import Failed, ModelReplied
from palimpsest.core.items import (
    MODEL_KINDS,
    Content,
    Document,
    Fold,
    Image,
    Into,
    Item,
    Keep,
    Loss,
    Opaque,
    Put,
    Text,
    ToolCall,
    ToolResult,
    seq_of,
    settled,
)
from palimpsest.core.log import check_fit
from palimpsest.core.plans import Answer, Ask, Edits, ModelCard, Moment, Plan, Proposal, Situation, Steps, Want, ask, proposal_of, steps_of
from palimpsest.core.text import cost_text, counted
from palimpsest.core.view import View
from palimpsest.policies.budgets import codex_effective
from palimpsest.policies.clear import ClearDead
from palimpsest.policies.fold import FoldFromLog, Narrate
from palimpsest.policies.handoff import (
    KEPT_TOKENS as HANDOFF_TOKENS,
)
from palimpsest.policies.handoff import (
    MOMENTS as REMOTE_MOMENTS,
)
from palimpsest.policies.handoff import (
    PURPOSE,
    Group,
    HandoffRun,
    HandoffTrigger,
    KeptMessage,
    effective_window,
    handoff_fold,
    handoff_run,
    keep_parts,
    keep_texts,
    messages_of,
    notices,
    summary_text,
)
from palimpsest.policies.limits import prompt, tokens_after
from palimpsest.policies.profile import Profile, strict_number
from palimpsest.policies.profiles import ThriftNumbers, with_numbers
from palimpsest.wire.binding import COMPACTION_TYPES, fold_into_block, is_compaction
from palimpsest.wire.encoding import opaque_type
from palimpsest.wire.json_reading import Json, parse, tables_at, text
from palimpsest.wire.models import Tariff
from palimpsest.wire.request import Params


def compaction_items(reply: ModelReplied) -> tuple[Opaque, ...]:
    """Return the compaction items of a reply."""
    return tuple(part for part in reply.parts if isinstance(part, Opaque) and opaque_type(part) in COMPACTION_TYPES)


def compaction_put(situation: Situation, compaction: Opaque) -> Put:
    """Return a compaction item as a summary, with the evidence of the log as text fallback for other models, which cannot read it."""
    evidence = evidence_text(situation.listed_evidence, frozenset(), min(EVIDENCE_TOKENS, situation.budget.window // 50))
    proved = f"\n\n{EVIDENCE_TITLE}\n{evidence}" if evidence else ""
    return Put("summary", replace(compaction, text_fallback=f"{summary_text(compaction.text_fallback)}{proved}"))


def groups_of(situation: Situation, run: HandoffRun, reply: ModelReplied) -> tuple[Group, ...]:
    """Return the groups of a reply: assistant messages, compactions, user messages and summaries, in their order.

    The last user message stays even if the provider left it out; if it left out all of them, all within a bound stay. Raises `WireError`
    if the reply has neither a compaction nor a summary.
    """
    messages = messages_of(run.shown)
    by_text: dict[str, list[KeptMessage]] = {}
    for message in messages:
        by_text.setdefault(message.text, []).append(message)
    summaries = {item.content.text: item for item in run.shown if item.kind == "summary" and isinstance(item.content, Text)}
    groups: list[Group] = []
    for part in reply.parts:
        if isinstance(part, Text):
            groups.append(Group((Put("assistant", part),), "other"))
        elif isinstance(part, Opaque) and opaque_type(part) in COMPACTION_TYPES:
            groups.append(Group((compaction_put(situation, part),), "compaction"))
        elif isinstance(part, Opaque) and opaque_type(part) == "message":
            user_text = _user_text(parse(part.data, part.provider))
            if user_text in summaries:
                groups.append(Group((Keep(summaries.pop(user_text).id),), "summary"))
            elif user_text.startswith(prompt("handoff_prefix")):
                groups.append(Group((Put("summary", Text(user_text)),), "summary"))
            elif by_text.get(user_text):
                groups.append(Group(tuple(Keep(item.id) for item, _ in by_text[user_text].pop(0).plain_parts)))
            elif user_text and is_real_user_message((user_text,)):
                groups.append(Group((Put("user", Text(user_text)),)))
    if all(group.kind in {"user", "other"} for group in groups):
        raise WireError("the answer holds neither a compaction nor a summary", where=situation.card.provider)
    if messages and messages[-1] in by_text[messages[-1].text]:
        missing = messages[-1:] if any(group.kind == "user" for group in groups) else messages
        groups += (Group(message) for message in keep_texts(missing, HANDOFF_TOKENS))
    # A compaction replaces everything before it, so that older items must not follow it.
    return tuple(sorted(groups, key=lambda group: group.kind == "compaction"))


def _user_text(message: Json) -> str:
    """Return the text of a message in the user role; empty for other roles."""
    if text(message, "role") != "user":
        return ""
    return "\n".join(text(part, "text") for part in tables_at(message, "content") if text(part, "text"))


KEPT_TOKENS = 64_000
TRIGGER: Final = '{"type":"compaction_trigger"}'
_OMITTED_OUTPUT: Final = "[output left out: there was no room for it in this request]"


@dataclass(frozen=True, slots=True)
class Remote:
    """Lets the provider compact the conversation and folds it into the answer.

    form: `endpoint` posts the items to a dedicated endpoint; `item` asks for a compaction item in an ordinary request.
    inject: moments at which the fold repeats the stated context.
    kept_tokens: bound of the user messages that stay; only for `item`.

    A failure is recorded, and the next policy runs. Does nothing for a provider that has no compaction.
    """

    form: Literal["endpoint", "item"]
    inject: frozenset[Moment]
    trigger: HandoffTrigger = field(default_factory=HandoffTrigger)
    kept_tokens: int = KEPT_TOKENS
    name: str = "remote"
    moments: frozenset[Moment] = REMOTE_MOMENTS
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Plan a request for a compaction and a fold, if a handoff is due and the provider can compact."""
        card = situation.previous if situation.moment == "switched" and situation.previous is not None else situation.card
        if not can_compact(card) or not can_compact(situation.card):
            return ()
        why = self.trigger.reason(situation)
        return self._steps_if_due(situation, card, why) if why else ()

    def _steps_if_due(self, situation: Situation, card: ModelCard, why: str) -> Steps:
        if not (yield from self.trigger.is_due_by_scope(situation)):
            return ()
        return (yield from self.steps(situation, card, why))

    def steps(self, situation: Situation, card: ModelCard, why: str) -> Steps:
        """Ask the provider of a model for a compaction, and propose the fold into its answer."""
        run = handoff_run(situation.view)
        try:
            reply = yield from ask(replace(self._request(situation, run, card), model="" if card is situation.card else card.name))
            groups = self._groups(situation, run, reply)
        except NoModel:
            # The next policy asks for a model too, and is then replaced by the fallback that needs none.
            return ()
        except PalimpsestError as error:
            failed = Failed("remote compaction", error.kind, error.message, by=self.name)
            return Proposal(failed=(failed,), notices=(f"the provider could not compact ({error.message}); compacting locally instead",))
        fold = handoff_fold(situation, run, groups, inject=situation.moment in self.inject)
        return Proposal((fold,), why, notices=notices(situation, tokens_after(situation, run.items, fold)))

    def _request(self, situation: Situation, run: HandoffRun, card: ModelCard) -> Ask:
        room = effective_window(situation) if card is situation.card else codex_effective(card.working_window)
        if self.form == "endpoint":
            return Ask(without_last_outputs(situation, run.shown, room), "", PURPOSE, tools=False, endpoint="compact")
        trigger = Item(f"{situation.view.seq + 1}.2", "assistant", Opaque(card.provider, card.name, TRIGGER))
        return Ask((*with_short_outputs(situation, run.shown, room), trigger), "", PURPOSE)

    def _groups(self, situation: Situation, run: HandoffRun, reply: ModelReplied) -> tuple[Group, ...]:
        if self.form == "endpoint":
            return groups_of(situation, run, reply)
        found = compaction_items(reply)
        if len(found) != 1:
            raise WireError(f"one compaction item was asked for and {len(found)} came back", where=situation.card.provider)
        messages = keep_parts(messages_of(run.shown), self.kept_tokens)
        return (*(Group(message) for message in messages), Group((compaction_put(situation, found[0]),), "compaction"))


def can_compact(card: ModelCard) -> bool:
    """Whether a model is served by OpenAI over Responses, the only provider with a compaction endpoint."""
    return card.provider == "openai" and card.wire == "responses"


def without_last_outputs(situation: Situation, items: tuple[Item, ...], room: int) -> tuple[Item, ...]:
    """Drop tool results with their calls, and developer messages, from the end until the rest fits `room` tokens.

    Stops at any other item.
    """
    kept = list(items)
    size = sum(situation.tokens.item(item) for item in (*situation.view.head, *kept))
    while kept and size > room and _is_droppable(kept[-1]):
        last = kept.pop()
        size -= situation.tokens.item(last)
        call = last.content.call_id if isinstance(last.content, ToolResult) else ""
        place = next((at for at in reversed(range(len(kept))) if call and getattr(kept[at].content, "call_id", "") == call), None)
        if place is not None:
            size -= situation.tokens.item(kept.pop(place))
    return tuple(kept)


def _is_droppable(item: Item) -> bool:
    return isinstance(item.content, ToolResult) or (isinstance(item.content, Text) and item.content.role == "developer")


def with_short_outputs(situation: Situation, items: tuple[Item, ...], room: int) -> tuple[Item, ...]:
    """Replace tool results at the end by a short notice until the items fit `room` tokens; every call keeps its result."""
    shown = list(items)
    size = sum(situation.tokens.item(item) for item in (*situation.view.head, *shown))
    for place in reversed(range(len(shown))):
        item = shown[place]
        if size <= room or not isinstance(item.content, ToolResult):
            break
        notice = "[]" if item.content.form == "search" else _OMITTED_OUTPUT
        short = replace(item.content, parts=(Text(notice),), blob="")
        size -= situation.tokens.item(item) - situation.tokens.content(short)
        shown[place] = replace(item, content=short, mask=None)
    return tuple(shown)


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
        cut = self._cut_place(situation)
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

    def _cut_place(self, situation: Situation) -> int:
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
    prices = situation.card.prices
    if not prices.are_known:
        return ""
    usages = [usage for usage in (reply.usage, *(each.usage for each in reply.beside)) if usage.total]
    usd = sum(Tariff(prices).bill(usage).total for usage in usages) if usages else None
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


# A text of about as many tokens as a summary by the provider usually has, to price the view with one.
_USUAL_TEXT: Final = "summary " * USUAL_SUMMARY


@dataclass(frozen=True, slots=True)
class CheaperCompaction:
    """Asks the provider only if that costs at most as much as our fold and reading again what is in use and our fold hides.

    Of the two answers the one that loses less by the audit is taken, ours if both lose the same. Ours is taken too where prices are not
    known or the summary cannot be read. This policy then proposes nothing, and the fold follows in the profile.
    """

    provider: ProviderCompact
    name: str = NAME
    moments: frozenset[Moment] = MOMENTS
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Plan the comparison, if a fold is due and the provider's summary would be readable."""
        if situation.card.compaction != "demand" or situation.card.wire != "anthropic" or not self.provider.fold.due(situation):
            return ()
        return self._steps(situation)

    def _steps(self, situation: Situation) -> Generator[Want, Answer, Proposal]:
        try:
            ours = proposal_of((yield from self.provider.fold.steps(situation)))
        except TooFull:
            ours = Proposal()
        if ours.edits and (reason := self._ours_is_cheaper(situation, ours.edits)):
            return Proposal(notices=(f"folded from the log: {reason}",))
        theirs = yield from steps_of(self.provider.plan(situation))
        if not theirs.edits or not ours.edits:
            return theirs
        view = situation.view
        losses = [_lost(loss_of(view, _after(view, proposal.edits))) for proposal in (ours, theirs)]
        compared = f"the audit finds {losses[1]:,} things lost in the provider's compaction and {losses[0]:,} in ours"
        if losses[0] <= losses[1]:
            return Proposal(notices=(f"folded from the log: {compared}",))
        return Proposal(theirs.edits, f"{theirs.why}; {compared}", theirs.failed, theirs.notices)

    def _ours_is_cheaper(self, situation: Situation, edits: Edits) -> str:
        """Why our fold is to be taken without asking the provider; empty if asking may pay."""
        view, card = situation.view, situation.card
        after = _after(view, edits)
        usual = Fold(view.items[0].id, view.items[-1].id, (Put("summary", Text(_USUAL_TEXT)),))
        ours, theirs = price_of(view, after, situation).usd, price_of(view, _after(view, (usual,)), situation).usd
        if ours is None or theirs is None:
            return f"the prices of {card.name} are not known"
        rates = rates_of(card, situation.cache)
        cached = min(situation.cache.longest(situation.now), situation.used)
        asking = rates.read * cached + rates.write * (situation.used - cached) + rates.output * USUAL_SUMMARY
        again = rates.write * _in_use(situation, after)
        tariff = Tariff(card.prices)
        theirs += tariff.usd(asking)
        ours += tariff.usd(again)
        return (
            "" if theirs <= ours else f"the provider's compaction would cost about ${theirs:.4f}, ours ${ours:.4f} with what is read again"
        )


def _after(view: View, edits: Edits) -> View:
    """The view after edits that fit it."""
    items = {item.id: item for item in view.items}
    return check_fit(view, edits, items.get, frozenset).view


def _in_use(situation: Situation, after: View) -> int:
    """Tokens of the results in use that are visible now and not in the view `after`."""
    shown = {item.id for item in after.items if item.mask is None}
    hidden = [item for item in situation.view.items if isinstance(item.content, ToolResult) and item.mask is None and item.id not in shown]
    live = [item for item in hidden if (use := situation.uses.get(item.id)) is not None and use.died is None]
    return sum(situation.tokens.item(item) for item in live)


def _lost(loss: Loss) -> int:
    """How many things a loss has, of all kinds, counted alike."""
    listed = (loss.paths, loss.commands, loss.symbols, loss.errors, loss.urls, loss.identifiers)
    return sum(map(len, listed)) + sum(loss.more.values()) + loss.numbers + loss.user_messages


# A fold is due only when the window is nearly full, as with the programs that leave it to the provider.
_NEVER: Final = 10**11


def provider(settings: Mapping[str, str]) -> Profile:
    """Leave compaction to the provider; a fold from the log follows where it cannot or does not.

    `compaction.trigger` are the input tokens from which on the provider compacts by itself; without it, it is asked when a fold is due.
    The settings of `palimpsest` hold too; those about what a fold keeps are for the fold from the log.
    """
    ours = with_numbers(ThriftNumbers(early_at=_NEVER, cold_at=_NEVER), settings, reminds=True)
    fold = next(policy for policy in ours.policies if isinstance(policy, FoldFromLog))
    trigger = strict_number(settings, "compaction.trigger", wanted="a number of tokens")
    compacting = (*((RecordCompaction(),) if trigger is not None else ()), ProviderCompact(fold))
    kept = tuple(policy for policy in ours.policies if not isinstance(policy, ClearDead | Narrate))
    params = Params(dialect="openai", compact_at=trigger)
    return provider_replace(ours, name="provider", policies=(*compacting, *kept), params=params, strictness="lenient")
