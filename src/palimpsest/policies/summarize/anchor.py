"""OpenCode's compaction: folds the conversation into a marker and a summary, with or without a verbatim tail."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from palimpsest.audit.pins import pinned
from palimpsest.core.edits import Fold, Into, Keep, Put
from palimpsest.core.errors import WireError
from palimpsest.core.events import ModelReplied
from palimpsest.core.format.tags import within
from palimpsest.core.items import Document, Image, Item, Text, seq_of, text_of
from palimpsest.core.pairs import safe_cuts, settled
from palimpsest.core.policy import Ask, Plan, Proposal, Steps, ask
from palimpsest.core.situation import Moment, Situation
from palimpsest.core.tokens.view_sizes import CountsTokens
from palimpsest.policies.fold_threshold import is_fold_due
from palimpsest.policies.prompt import prompt
from palimpsest.policies.summarize.compress import attachment_name, flatten
from palimpsest.policies.summarize.summarize import checked_summary

MARKER = "What did we do so far?"


@dataclass(frozen=True, slots=True)
class Anchor:
    """Asks a model for a summary and folds the conversation into it.

    transcript: the model sees the whole conversation as items, or everything before the tail as one text.
    auto: run when the budget is reached; if false, only when the user asks.
    model: name of the summarizing model; empty for the model of the session.
    preserve: tokens of the verbatim tail; by default a quarter of the usable window, within 2,000 and 15,000.
    tail_turns: largest number of turns in the tail.
    """

    transcript: Literal["items", "text"] = "items"
    auto: bool = True
    model: str = ""
    preserve: int | None = None
    tail_turns: int | None = None
    name: str = "anchor"
    moments: frozenset[Moment] = frozenset({"before_call", "after_call", "asked"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Plan a summary and a fold, if they are due or forced and there is something to fold."""
        forced = situation.moment in {"asked", "overflow"}
        if not (forced or (self.auto and is_fold_due(situation))):
            return ()
        items = situation.view.items[: settled(situation.view.items)]
        if not forced and len(items) < len(situation.view.items):
            return ()
        resent = _last_user_message(items) if situation.moment == "overflow" else ()
        folded = tuple(item for item in items if item not in resent) if resent else items
        if self.transcript == "text" and not resent:
            folded = items[: tail_start(items, self.tail_budget(situation), situation.tokens, self.tail_turns)]
        if not any(item.kind != "context" for item in folded):
            return ()
        return self._steps(situation, folded, resent, items[-1] if resent else folded[-1])

    def tail_budget(self, situation: Situation) -> int:
        """Return the tokens of the verbatim tail."""
        usable = situation.budget.compact_at or situation.budget.window - situation.budget.buffer
        return self.preserve if self.preserve is not None else min(15_000, max(2_000, usable // 4))

    def _steps(self, situation: Situation, folded: tuple[Item, ...], resent: tuple[Item, ...], last: Item) -> Steps:
        summary = _finished_summary((yield from ask(self._ask(situation, folded))), strict=self.transcript == "text")
        into: Into = (Put("reminder", Text(MARKER)), Put("summary", Text(summary, "assistant")))
        pins = pinned(situation.view)
        into += tuple(Keep(item.id) for item in folded if item.id in pins)
        into += tuple(_without_file(item) for item in resent)
        # Within a turn the next request would end with the summary, a reply which many models refuse to go on from.
        ends = situation.health.turn is not None and last is situation.view.items[-1]
        if (situation.moment != "asked" or ends) and not resent:
            continuation = prompt("opencode/continue_or_ask") if self.transcript == "text" else prompt("opencode/continue")
            into += (Put("reminder", Text(continuation)),)
        why = "asked for" if situation.moment == "asked" else f"{situation.used:,} tokens are used"
        return Proposal((Fold(folded[0].id, last.id, into),), why)

    def _ask(self, situation: Situation, folded: tuple[Item, ...]) -> Ask:
        focus = situation.asked
        if self.transcript == "items":
            request = prompt("opencode/request", focus=focus)
            return Ask(folded, request, "summary", head=False, tools=False, model=self.model, system=prompt("opencode/summariser"))
        prior = "\n\n".join(text_of(item.content) for item in folded if item.kind == "summary")
        conversation = flatten(item for item in folded if item.kind != "summary")
        block = within("prior-summary", prior) if prior else ""
        request = prompt("opencode/template", focus=focus, prior=block, conversation=within("conversation", conversation))
        return Ask((), request, "summary", head=False, tools=False, model=self.model, system=prompt("opencode/head"))


def _finished_summary(reply: ModelReplied, *, strict: bool) -> str:
    """Return the text of a summary; raise `WireError` if the reply did not finish, or with `strict` ended in an error."""
    text = checked_summary(reply)
    # A stop reason that we do not know is a finished reply too.
    if not (reply.stop or reply.provider_stop) or (strict and reply.error):
        raise WireError(f"the summary did not finish{f' ({reply.error})' if reply.error else ''}")
    return text


def _last_user_message(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return the items of the last user message; empty if the conversation has nothing else."""
    newest = next((item for item in reversed(items) if item.kind == "user"), None)
    if newest is None:
        return ()
    message = tuple(item for item in items if item.kind == "user" and seq_of(item.id) == seq_of(newest.id))
    return message if any(item.kind != "context" for item in items if item not in message) else ()


def _without_file(item: Item) -> Keep | Put:
    """Return a part of a message to be sent again: text as it is, an image or document as its name."""
    if isinstance(item.content, Image | Document):
        return Put("user", Text(attachment_name(item.content)))
    return Keep(item.id)


def tail_start(items: Sequence[Item], budget: int, counter: CountsTokens, turns: int | None = None) -> int:
    """Return the index of the first item of a verbatim tail of at most `budget` tokens and `turns` turns.

    The tail has whole turns; the first turn that does not fit is split where its rest does. Without a tail, or if the tail would be the
    whole conversation, the index is `len(items)`.
    """
    end = len(items)
    starts = [index for index, item in enumerate(items) if item.kind == "user" and (index == 0 or items[index - 1].kind != "user")]
    tail, remaining = end, budget
    for number, start in enumerate(reversed(starts)):
        if turns is not None and number >= turns:
            break
        size = sum(counter.item(item) for item in items[start:tail])
        if size > remaining:
            tail = _split_turn(items, start, tail, remaining, counter)
            break
        tail, remaining = start, remaining - size
    return end if tail == 0 else tail


def _split_turn(items: Sequence[Item], start: int, stop: int, budget: int, counter: CountsTokens) -> int:
    """Return the earliest index within a turn from which its rest fits the budget, without separating a call from its result."""
    safe = frozenset(safe_cuts(items))
    best, size = stop, 0
    for index in range(stop - 1, start, -1):
        size += counter.item(items[index])
        if size > budget:
            break
        if index in safe:
            best = index
    return best
