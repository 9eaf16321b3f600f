"""Lets the provider compact by itself: at a door of its own, or by an item at the end of an ordinary request."""

from dataclasses import dataclass, field
from typing import Final, Literal

from msgspec.structs import replace

from palimpsest.core.budget_rules import codex_effective
from palimpsest.core.errors import NoModel, PalimpsestError, WireError
from palimpsest.core.events import Failed, ModelReplied
from palimpsest.core.items import Item, Opaque, Text, ToolResult
from palimpsest.core.policy import Ask, Plan, Proposal, Steps, ask
from palimpsest.core.situation import Card, Moment, Situation
from palimpsest.policies.handoff import PURPOSE, notices
from palimpsest.policies.handoff_layout import Ground, Group, fold_of, ground_of, size_after
from palimpsest.policies.handoff_when import MOMENTS, When, effective
from palimpsest.policies.kept_messages import keep_parts, messages_of
from palimpsest.policies.remote_answer import compactions, groups_of, put

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
