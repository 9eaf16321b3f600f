"""Compaction by the provider: through its dedicated endpoint, or by a compaction item in an ordinary request."""

from dataclasses import dataclass, field
from typing import Final, Literal

from msgspec.structs import replace

from palimpsest.audit.context_tags import is_real_user_message
from palimpsest.audit.fold_texts import EVIDENCE_TITLE, EVIDENCE_TOKENS, evidence_text
from palimpsest.core.edits import Keep, Put
from palimpsest.core.errors import NoModel, PalimpsestError, WireError
from palimpsest.core.events import Failed, ModelReplied
from palimpsest.core.items import Item, Opaque, Text, ToolResult
from palimpsest.core.policy import Ask, Plan, Proposal, Steps, ask
from palimpsest.core.situation import Card, Moment, Situation
from palimpsest.policies.budgets import codex_effective
from palimpsest.policies.fold_threshold import tokens_after
from palimpsest.policies.handoff.handoff import KEPT_TOKENS as HANDOFF_TOKENS
from palimpsest.policies.handoff.handoff import PURPOSE, notices, summary_text
from palimpsest.policies.handoff.kept_messages import KeptMessage, keep_parts, keep_texts, messages_of
from palimpsest.policies.handoff.layout import Group, HandoffRun, handoff_fold, handoff_run
from palimpsest.policies.handoff.trigger import MOMENTS, HandoffTrigger, effective_window
from palimpsest.policies.prompt import prompt
from palimpsest.wire.compaction import COMPACTION_TYPES
from palimpsest.wire.encoding.tools import opaque_type
from palimpsest.wire.json_reading import Json, parse, tables_at, text


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
    moments: frozenset[Moment] = MOMENTS
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Plan a request for a compaction and a fold, if a handoff is due and the provider can compact."""
        card = situation.previous if situation.moment == "switched" and situation.previous is not None else situation.card
        if not can_compact(card) or not can_compact(situation.card):
            return ()
        why = self.trigger.reason(situation)
        return self._steps_if_due(situation, card, why) if why else ()

    def _steps_if_due(self, situation: Situation, card: Card, why: str) -> Steps:
        if not (yield from self.trigger.is_due_by_scope(situation)):
            return ()
        return (yield from self.steps(situation, card, why))

    def steps(self, situation: Situation, card: Card, why: str) -> Steps:
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

    def _request(self, situation: Situation, run: HandoffRun, card: Card) -> Ask:
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


def can_compact(card: Card) -> bool:
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
