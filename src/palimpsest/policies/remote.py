"""Compaction by the provider: through its dedicated endpoint, or by a compaction item in an ordinary request."""

from dataclasses import dataclass, field
from typing import Final, Literal

from msgspec.structs import replace

from palimpsest.audit.context_tags import is_real_user_message
from palimpsest.core.edits import Keep, Put
from palimpsest.core.errors import NoModel, PalimpsestError, WireError
from palimpsest.core.events import Failed, ModelReplied
from palimpsest.core.items import Item, Opaque, Text, ToolResult
from palimpsest.core.policy import Ask, Plan, Proposal, Steps, ask
from palimpsest.core.situation import Card, Moment, Situation
from palimpsest.policies.budgets import codex_effective
from palimpsest.policies.handoff.handoff import KEPT_TOKENS as HANDOFF_TOKENS
from palimpsest.policies.handoff.handoff import PURPOSE, notices, summary_text
from palimpsest.policies.handoff.kept_messages import Message, keep_parts, keep_texts, messages_of
from palimpsest.policies.handoff.layout import Ground, Group, fold_of, ground_of, size_after
from palimpsest.policies.handoff.when import MOMENTS, When, effective
from palimpsest.policies.prompt import prompt
from palimpsest.wire.encoding.tools import opaque_type
from palimpsest.wire.json_reading import Json, parse, tables_at, text

_COMPACTIONS: Final = frozenset({"compaction", "compaction_summary", "context_compaction"})


def compactions(reply: ModelReplied) -> tuple[Opaque, ...]:
    """The compaction items of a reply."""
    return tuple(part for part in reply.parts if isinstance(part, Opaque) and opaque_type(part) in _COMPACTIONS)


def put(situation: Situation, compaction: Opaque) -> Put:
    """A compaction at its place; other models read in its stead what the log proves."""
    return Put("summary", replace(compaction, text_fallback=summary_text(situation, compaction.text_fallback)))


def groups_of(situation: Situation, ground: Ground, reply: ModelReplied) -> tuple[Group, ...]:
    """Assistant messages, compactions, real messages of the user and summaries, in their order; all else is dropped.

    What the user asked for last stays, whether or not the provider gave it back; all that the user said if it gave nothing back.
    """
    messages = messages_of(ground.told)
    known: dict[str, list[Message]] = {}
    for message in messages:
        known.setdefault(message.text, []).append(message)
    summaries = {item.content.text: item for item in ground.told if item.kind == "summary" and isinstance(item.content, Text)}
    groups: list[Group] = []
    for part in reply.parts:
        if isinstance(part, Text):
            groups.append(Group((Put("assistant", part),), "other"))
        elif isinstance(part, Opaque) and opaque_type(part) in _COMPACTIONS:
            groups.append(Group((put(situation, part),), "compaction"))
        elif isinstance(part, Opaque) and opaque_type(part) == "message":
            said = _said(parse(part.data, part.provider))
            if said in summaries:
                groups.append(Group((Keep(summaries.pop(said).id),), "summary"))
            elif said.startswith(prompt("handoff_prefix")):
                groups.append(Group((Put("summary", Text(said)),), "summary"))
            elif known.get(said):
                groups.append(Group(tuple(Keep(item.id) for item, _ in known[said].pop(0).words)))
            elif said and is_real_user_message((said,)):
                groups.append(Group((Put("user", Text(said)),)))
    if all(group.what in {"user", "other"} for group in groups):
        raise WireError("the answer holds neither a compaction nor a summary", where=situation.card.provider)
    if messages and messages[-1] in known[messages[-1].text]:
        missing = messages[-1:] if any(group.what == "user" for group in groups) else messages
        groups += (Group(message) for message in keep_texts(missing, HANDOFF_TOKENS))
    # A compaction stands for everything before it, so that nothing of the past may stand behind it.
    return tuple(sorted(groups, key=lambda group: group.what == "compaction"))


def _said(message: Json) -> str:
    """The words of a message in the user's role; none of any other."""
    if text(message, "role") != "user":
        return ""
    return "\n".join(text(part, "text") for part in tables_at(message, "content") if text(part, "text"))


KEPT_TOKENS = 64_000
TRIGGER: Final = '{"type":"compaction_trigger"}'
_LEFT_OUT: Final = "[output left out: there was no room for it in this request]"


@dataclass(frozen=True, slots=True)
class Remote:
    """`door` posts the items to a door of their own and takes what comes back; `trigger` asks for one item in the stream of a reply.

    What fails is recorded and left to the next policy; so is a provider that cannot do it.
    """

    form: Literal["door", "trigger"]
    inject: frozenset[Moment]
    when: When = field(default_factory=When)
    kept_tokens: int = KEPT_TOKENS
    name: str = "remote"
    moments: frozenset[Moment] = MOMENTS
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Rest, or ask the provider and fold."""
        card = situation.previous if situation.moment == "switched" and situation.previous is not None else situation.card
        if not _able(card) or not _able(situation.card):
            return ()
        why = self.when.reason(situation)
        return self._steps(situation, card, why) if why else ()

    def _steps(self, situation: Situation, card: Card, why: str) -> Steps:
        if not (yield from self.when.exactly(situation)):
            return ()
        ground = ground_of(situation.view)
        try:
            reply = yield from ask(replace(self._question(situation, ground, card), model="" if card is situation.card else card.name))
            groups = self._groups(situation, ground, reply)
        except NoModel:
            # The next policy asks as well, and then the rung that needs no model takes its place.
            return ()
        except PalimpsestError as error:
            failed = Failed("remote compaction", error.kind, error.message, by=self.name)
            return Proposal(failed=(failed,), notices=(f"the provider could not compact ({error.message}); it is done here",))
        fold = fold_of(situation, ground, groups, inject=situation.moment in self.inject)
        return Proposal((fold,), why, notices=notices(situation, size_after(situation, ground, fold)))

    def _question(self, situation: Situation, ground: Ground, card: Card) -> Ask:
        room = effective(situation) if card is situation.card else codex_effective(card.window)
        if self.form == "door":
            return Ask(trimmed(situation, ground.told, room), "", PURPOSE, tools=False, endpoint="compact")
        trigger = Item(f"{situation.view.seq + 1}.2", "assistant", Opaque(card.provider, card.name, TRIGGER))
        return Ask((*rewritten(situation, ground.told, room), trigger), "", PURPOSE)

    def _groups(self, situation: Situation, ground: Ground, reply: ModelReplied) -> tuple[Group, ...]:
        if self.form == "door":
            return groups_of(situation, ground, reply)
        found = compactions(reply)
        if len(found) != 1:
            raise WireError(f"one compaction item was asked for and {len(found)} came back", where=situation.card.provider)
        messages = keep_parts(messages_of(ground.told), self.kept_tokens)
        return (*(Group(message) for message in messages), Group((put(situation, found[0]),), "compaction"))


def _able(card: Card) -> bool:
    return card.provider == "openai" and card.wire == "responses"


def trimmed(situation: Situation, items: tuple[Item, ...], room: int) -> tuple[Item, ...]:
    """Without outputs and developer messages at the end, each with its call, until the rest fits; anything else at the end stops it."""
    left = list(items)
    size = sum(situation.tokens.item(item) for item in (*situation.view.head, *left))
    while left and size > room and _droppable(left[-1]):
        last = left.pop()
        size -= situation.tokens.item(last)
        call = last.content.call_id if isinstance(last.content, ToolResult) else ""
        place = next((at for at in reversed(range(len(left))) if call and getattr(left[at].content, "call_id", "") == call), None)
        if place is not None:
            size -= situation.tokens.item(left.pop(place))
    return tuple(left)


def _droppable(item: Item) -> bool:
    return isinstance(item.content, ToolResult) or (isinstance(item.content, Text) and item.content.role == "developer")


def rewritten(situation: Situation, items: tuple[Item, ...], room: int) -> tuple[Item, ...]:
    """With short words in place of the outputs at the end until the rest fits; every call keeps its result."""
    shown = list(items)
    size = sum(situation.tokens.item(item) for item in (*situation.view.head, *shown))
    for place in reversed(range(len(shown))):
        item = shown[place]
        if size <= room or not isinstance(item.content, ToolResult):
            break
        words = "[]" if item.content.form == "search" else _LEFT_OUT
        short = replace(item.content, parts=(Text(words),), blob="")
        size -= situation.tokens.item(item) - situation.tokens.content(short)
        shown[place] = replace(item, content=short, mask=None)
    return tuple(shown)
