"""Folds a conversation into a marker and an anchored summary, as OpenCode does, with or without a verbatim tail."""

from dataclasses import dataclass
from typing import Literal

from palimpsest.audit.pins import pinned
from palimpsest.core.edits import Fold, Into, Keep, Put
from palimpsest.core.errors import WireError
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Document, Image, Item, Text, seq_of, text_of
from palimpsest.core.pairs import settled
from palimpsest.core.policy import Ask, Plan, Proposal, Steps, ask
from palimpsest.core.situation import Moment, Situation
from palimpsest.policies.notices import is_due
from palimpsest.policies.prompt import prompt
from palimpsest.policies.summarize.compress import attached, flatten
from palimpsest.policies.summarize.summarize import summary_in
from palimpsest.policies.summarize.tail import tail_start

MARKER = "What did we do so far?"


@dataclass(frozen=True, slots=True)
class Anchor:
    """`told` says how the model is shown the conversation: every item as it is, or what lies before the tail as one text.

    `model` may be another one than that of the session. With `auto` off only the user can ask for it.
    """

    told: Literal["items", "text"] = "items"
    auto: bool = True
    model: str = ""
    preserve: int | None = None
    tail_turns: int | None = None
    name: str = "anchor"
    moments: frozenset[Moment] = frozenset({"before_call", "after_call", "asked"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Rest, or ask for a summary and fold."""
        forced = situation.moment in {"asked", "overflow"}
        if not (forced or (self.auto and is_due(situation))):
            return ()
        items = situation.view.items[: settled(situation.view.items)]
        if not forced and len(items) < len(situation.view.items):
            return ()
        replay = _rejected(items) if situation.moment == "overflow" else ()
        told = tuple(item for item in items if item not in replay) if replay else items
        if self.told == "text" and not replay:
            told = items[: tail_start(items, self.tail_budget(situation), situation.tokens, self.tail_turns)]
        if not any(item.kind != "context" for item in told):
            return ()
        return self._steps(situation, told, replay, items[-1] if replay else told[-1])

    def tail_budget(self, situation: Situation) -> int:
        """How many tokens at the end stay as they are."""
        usable = situation.budget.compact_at or situation.budget.window - situation.budget.buffer
        return self.preserve if self.preserve is not None else min(15_000, max(2_000, usable // 4))

    def _steps(self, situation: Situation, told: tuple[Item, ...], replay: tuple[Item, ...], last: Item) -> Steps:
        summary = _checked((yield from ask(self._ask(situation, told))), strict=self.told == "text")
        into: Into = (Put("reminder", Text(MARKER)), Put("summary", Text(summary, "assistant")))
        stays = pinned(situation.view)
        into += tuple(Keep(item.id) for item in told if item.id in stays)
        into += tuple(_again(item) for item in replay)
        if situation.moment != "asked" and not replay:
            go_on = prompt("opencode/continue_or_ask") if self.told == "text" else prompt("opencode/continue")
            into += (Put("reminder", Text(go_on)),)
        why = "asked for" if situation.moment == "asked" else f"{situation.used:,} tokens are used"
        return Proposal((Fold(told[0].id, last.id, into),), why)

    def _ask(self, situation: Situation, told: tuple[Item, ...]) -> Ask:
        focus = situation.asked
        if self.told == "items":
            request = prompt("opencode/request", focus=focus)
            return Ask(told, request, "summary", head=False, tools=False, model=self.model, system=prompt("opencode/summariser"))
        prior = "\n\n".join(text_of(item.content) for item in told if item.kind == "summary")
        spoken = flatten(item for item in told if item.kind != "summary")
        block = f"<prior-summary>\n{prior}\n</prior-summary>" if prior else ""
        request = prompt("opencode/template", focus=focus, prior=block, conversation=f"<conversation>\n{spoken}\n</conversation>")
        return Ask((), request, "summary", head=False, tools=False, model=self.model, system=prompt("opencode/head"))


def _checked(reply: ModelReplied, *, strict: bool) -> str:
    """The text of a summary that counts: finished, and where it matters without an error."""
    text = summary_in(reply)
    # A word that the vocabulary does not have is an end too.
    if not (reply.stop or reply.provider_stop) or (strict and reply.error):
        raise WireError(f"the summary did not finish{f' ({reply.error})' if reply.error else ''}")
    return text


def _rejected(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """The items of the last message of the user, wherever the turn stands, if there is anything else."""
    newest = next((item for item in reversed(items) if item.kind == "user"), None)
    if newest is None:
        return ()
    said = tuple(item for item in items if item.kind == "user" and seq_of(item.id) == seq_of(newest.id))
    return said if any(item.kind != "context" for item in items if item not in said) else ()


def _again(item: Item) -> Keep | Put:
    """A piece of a message that is sent once more: words as they were, files only by name."""
    if isinstance(item.content, Image | Document):
        return Put("user", Text(attached(item.content)))
    return Keep(item.id)
