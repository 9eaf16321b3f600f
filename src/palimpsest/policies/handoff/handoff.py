"""Codex's compaction into a summary by a model and the newest user messages, and the last resort if it fails."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from palimpsest.audit.dead_results import clearing_masks
from palimpsest.audit.pins import pinned
from palimpsest.core.edits import Fold, Mask, Put
from palimpsest.core.errors import NoModel, PalimpsestError
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Text, ToolResult
from palimpsest.core.pairs import rounds
from palimpsest.core.policy import Answer, Ask, Look, Outcome, Plan, Policy, Proposal, Steps, Want, look
from palimpsest.core.situation import Moment, Situation
from palimpsest.core.tokens.truncate import truncate_middle
from palimpsest.policies.budgets import percent_left
from palimpsest.policies.fold_threshold import tokens_after
from palimpsest.policies.handoff.kept_messages import keep_texts, messages_of
from palimpsest.policies.handoff.layout import Group, HandoffRun, handoff_fold, handoff_run, just_edited
from palimpsest.policies.handoff.trigger import MOMENTS, HandoffTrigger, effective_window
from palimpsest.policies.prompt import prompt
from palimpsest.policies.summarize.shorten import TrimmedReply, ask_dropping_items


def summary_text(summary: str) -> str:
    """Return the text that replaces the work: an introduction, and the summary in the next line."""
    return f"{prompt('handoff_prefix')}\n{summary}"


KEPT_TOKENS = 20_000
PURPOSE = "compact"
_LEAST = 1_000
WARNING = "long sessions and many compactions make answers less exact; a new session per task keeps them sharp"


@dataclass(frozen=True, slots=True)
class Handoff:
    """Asks a model for a summary and folds the conversation into it and the newest user messages.

    inject: moments at which the fold repeats the stated context; at others it is stated again with the next turn.
    kept_tokens: bound of the user messages that stay.
    in_parts: a message that is cut becomes three parts.
    prompt_text, prompt_file: replace the built-in prompt; the text wins.
    """

    inject: frozenset[Moment]
    trigger: HandoffTrigger = field(default_factory=HandoffTrigger)
    kept_tokens: int = KEPT_TOKENS
    in_parts: bool = False
    prompt_text: str = ""
    prompt_file: str = ""
    name: str = "handoff"
    moments: frozenset[Moment] = MOMENTS
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Plan a summary and a fold, if a handoff is due."""
        why = self.trigger.reason(situation)
        return self._steps(situation, why) if why else ()

    def _steps(self, situation: Situation, why: str) -> Steps:
        if not (yield from self.trigger.is_due_by_scope(situation)):
            return ()
        run = handoff_run(situation.view)
        request = yield from self._prompt(situation)
        answer = yield from _ask(Ask(run.shown, request, PURPOSE, tools=False), situation)
        return self._proposal(situation, run, answer, why)

    def _prompt(self, situation: Situation) -> Generator[Want, Answer, str]:
        file_text = (yield from look(Look(self.prompt_file))) if self.prompt_file and not self.prompt_text else None
        focus = f"Pay special attention to this: {situation.asked}" if situation.asked else ""
        own = self.prompt_text or file_text
        return f"{own}\n\n{focus}".strip() if own else prompt("handoff", focus=focus)

    def _proposal(self, situation: Situation, run: HandoffRun, answer: TrimmedReply, why: str) -> Outcome:
        summary = last_message(answer.reply)
        level = situation.budget.compact_at or situation.budget.window
        fold, size = self._fold(situation, run, summary, self.kept_tokens)
        # A summary may be longer than the conversation: then less and less is kept until it fits.
        for kept, bound in ((self.kept_tokens // 4, level // 4), (_LEAST, level // 16)):
            if size + situation.incoming < level and size < situation.tokens.total(situation.view) + situation.tools_tokens:
                break
            cut_summary = truncate_middle(summary, bound).text
            fold, size = self._fold(situation, run, cut_summary, kept)
        return Proposal((fold,), why, notices=notices(situation, size, answer.dropped))

    def _fold(self, situation: Situation, run: HandoffRun, summary: str, kept: int) -> tuple[Fold, int]:
        messages = keep_texts(messages_of(run.shown), kept, in_parts=self.in_parts)
        last = Put("summary", Text(summary_text(summary)))
        groups = (*(Group(message) for message in messages), Group((last,), "summary"))
        fold = handoff_fold(situation, run, groups, inject=situation.moment in self.inject)
        return fold, tokens_after(situation, run.items, fold)


def last_message(reply: ModelReplied) -> str:
    """Return the text of the last message in a reply; empty if there is none."""
    texts: Sequence[Text] = [part for part in reply.parts if isinstance(part, Text)]
    place = len(texts)
    while place and texts[place - 1].ref == texts[-1].ref:
        place -= 1
    return "".join(part.text for part in texts[place:])


def notices(situation: Situation, size: int, dropped: int = 0) -> tuple[str, ...]:
    """Return the notices after a fold: the free share, the items left out of the summary, and at the first fold a warning."""
    lines = [f"compacted: about {percent_left(size, effective_window(situation))}% of the context is free now"]
    if dropped:
        lines.append(f"the {dropped} oldest items did not fit the request for the summary, which does not cover them")
    if all(item.kind != "summary" for item in situation.view.items):
        lines.append(WARNING)
    return tuple(lines)


def _ask(want: Ask, situation: Situation) -> Generator[Want, Answer, TrimmedReply]:
    """Ask the model of the session; after a switch ask the previous model, which has the larger window, and on failure the new one."""
    previous = situation.previous if situation.moment == "switched" else None
    if previous is None:
        return (yield from ask_dropping_items(want))
    try:
        return (yield from ask_dropping_items(replace(want, model=previous.name)))
    except NoModel:
        raise
    except PalimpsestError as first:
        try:
            return (yield from ask_dropping_items(want))
        except PalimpsestError:
            raise first from None


@dataclass(frozen=True, slots=True)
class LastResort:
    """Frees tokens when every handoff failed and the view exceeds the effective window: masks old results, else folds without a model.

    `fallback` is the policy that folds without a model.
    """

    fallback: Policy | None = None
    name: str = "last_resort"
    moments: frozenset[Moment] = frozenset({"turn_starts", "before_call", "overflow"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Propose masks if they free enough tokens, else the fold of the fallback."""
        room = effective_window(situation)
        if situation.used < room and (situation.moment != "overflow" or just_edited(situation.view)):
            return ()
        masks, saved = _masks(situation)
        if masks and (situation.used - saved < room or self.fallback is None):
            return Proposal(masks, f"{situation.used:,} tokens are used, {room:,} can be sent, and no summary could be made")
        return self.fallback.plan(situation) if self.fallback is not None and situation.may_fold else ()


def _masks(situation: Situation) -> tuple[tuple[Mask, ...], int]:
    """Return masks for the results before the last round, and the tokens that they save."""
    items, pins = situation.view.items, pinned(situation.view)
    starts = rounds(items)
    older = enumerate(items[: starts[-1]] if starts else ())
    places = [place for place, item in older if isinstance(item.content, ToolResult) and item.mask is None and item.id not in pins]
    worth = [(mask, gain) for mask, gain in clearing_masks(situation.view, places, situation.tokens) if gain > 0]
    return tuple(mask for mask, _ in worth), sum(gain for _, gain in worth)
