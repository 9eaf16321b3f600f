"""Codex's compaction: a model summarizes the work, and the view becomes the newest user messages and that summary."""

from collections.abc import Generator, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from palimpsest.audit.fold_texts import evidence_block, older_messages_block
from palimpsest.core.edits import Fold, Into, Keep, Put
from palimpsest.core.errors import NoModel, PalimpsestError
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Text
from palimpsest.core.policy import Answer, Ask, Look, Outcome, Plan, Proposal, Steps, Want, look
from palimpsest.core.situation import Moment, Situation
from palimpsest.core.tokens.budget import percent_left
from palimpsest.core.tokens.truncate import truncate_middle
from palimpsest.policies.handoff.kept_messages import keep_texts, messages_of
from palimpsest.policies.handoff.layout import Ground, Group, fold_of, ground_of, size_after
from palimpsest.policies.handoff.when import MOMENTS, When, effective
from palimpsest.policies.prompt import prompt
from palimpsest.policies.summarize.shorten import Answered, ask_with_less

PROOF_TOKENS: Final = 4_000
TITLE: Final = "Beside the summary, from the log and not from a model:"
_OLDER: Final = "Older messages of the user, by id, time and opening words:"


def summary_text(situation: Situation, summary: str, messages: Iterable[Into] = (), tokens: int = PROOF_TOKENS) -> str:
    """What stands in place of the work: the words that introduce it, the summary, and what the log proves.

    `messages` are those of the user that stay; `tokens` is the room of the proof, which a small window makes smaller.
    """
    whole = frozenset(piece.id for message in messages for piece in message if isinstance(piece, Keep))
    proof = proof_of(situation, whole, min(tokens, situation.budget.window // 50))
    words = f"{prompt('handoff_prefix')}\n{summary}"
    return f"{words}\n\n{TITLE}\n{proof}" if proof else words


def proof_of(situation: Situation, whole: AbstractSet[str], tokens: int) -> str:
    """What the log proves, in so many tokens and half as many for older messages; `whole` are the items of the user that show."""
    if not tokens:
        return ""
    evidence = situation.evidence
    older = older_messages_block(evidence.user_messages, whole)
    parts = [evidence_block(evidence, tokens)]
    if older:
        parts.append(f"{_OLDER}\n{truncate_middle(older, tokens // 2).text}")
    return "\n".join(part for part in parts if part)


KEPT_TOKENS = 20_000
PURPOSE = "compact"
_LEAST = 1_000
WARNING = "long sessions and many compactions make answers less exact; a new session per task keeps them sharp"


@dataclass(frozen=True, slots=True)
class Handoff:
    """A summary by the model at hand. At the moments of `inject` the stated context moves with it, else it is stated anew next turn.

    `in_parts` shows a message that was cut as three parts. `words` or the file `words_from` take the place of our own prompt.
    """

    inject: frozenset[Moment]
    when: When = field(default_factory=When)
    kept_tokens: int = KEPT_TOKENS
    in_parts: bool = False
    words: str = ""
    words_from: str = ""
    name: str = "handoff"
    moments: frozenset[Moment] = MOMENTS
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Rest, or ask for the summary and fold."""
        why = self.when.reason(situation)
        return self._steps(situation, why) if why else ()

    def _steps(self, situation: Situation, why: str) -> Steps:
        if not (yield from self.when.exactly(situation)):
            return ()
        ground = ground_of(situation.view)
        words = yield from self._words(situation)
        answered = yield from _ask(Ask(ground.told, words, PURPOSE, tools=False), situation)
        return self._proposal(situation, ground, answered, why)

    def _words(self, situation: Situation) -> Generator[Want, Answer, str]:
        told = (yield from look(Look(self.words_from))) if self.words_from and not self.words else None
        focus = f"Pay special attention to this: {situation.asked}" if situation.asked else ""
        own = self.words or told
        return f"{own}\n\n{focus}".strip() if own else prompt("handoff", focus=focus)

    def _proposal(self, situation: Situation, ground: Ground, answered: Answered, why: str) -> Outcome:
        told = summary = last_message(answered.reply)
        level = situation.budget.compact_at or situation.budget.window
        fold, size = self._fold(situation, ground, summary, self.kept_tokens, PROOF_TOKENS)
        # A summary may be longer than what it sums up: then less and less is kept until it fits.
        for kept, bound, proof in ((self.kept_tokens // 4, level // 4, PROOF_TOKENS // 4), (_LEAST, level // 16, 0)):
            if size + situation.incoming < level and size < situation.tokens.total(situation.view) + situation.tools_tokens:
                break
            told = truncate_middle(summary, bound).text
            fold, size = self._fold(situation, ground, told, kept, proof)
        return Proposal((fold,), why, notices=notices(situation, size, answered.dropped))

    def _fold(self, situation: Situation, ground: Ground, summary: str, kept: int, proof: int) -> tuple[Fold, int]:
        messages = keep_texts(messages_of(ground.told), kept, in_parts=self.in_parts)
        last = Put("summary", Text(summary_text(situation, summary, messages, proof)))
        groups = (*(Group(message) for message in messages), Group((last,), "summary"))
        fold = fold_of(situation, ground, groups, inject=situation.moment in self.inject)
        return fold, size_after(situation, ground, fold)


def last_message(reply: ModelReplied) -> str:
    """The words of the last message in a reply; empty when there is none."""
    texts: Sequence[Text] = [part for part in reply.parts if isinstance(part, Text)]
    place = len(texts)
    while place and texts[place - 1].ref == texts[-1].ref:
        place -= 1
    return "".join(part.text for part in texts[place:])


def notices(situation: Situation, size: int, dropped: int = 0) -> tuple[str, ...]:
    """What the user should know: what the summary did not see, how much room there is, and once that long sessions lose accuracy."""
    told = [f"compacted: about {percent_left(size, effective(situation))}% of the context is free now"]
    if dropped:
        told.append(f"the {dropped} oldest items did not fit the request for the summary, which knows nothing of them")
    if all(item.kind != "summary" for item in situation.view.items):
        told.append(WARNING)
    return tuple(told)


def _ask(want: Ask, situation: Situation) -> Generator[Want, Answer, Answered]:
    """Ask the model at hand; after a switch the one before, which still has the room, and the new one if that is gone."""
    previous = situation.previous if situation.moment == "switched" else None
    if previous is None:
        return (yield from ask_with_less(want))
    try:
        return (yield from ask_with_less(replace(want, model=previous.name)))
    except NoModel:
        raise
    except PalimpsestError as first:
        try:
            return (yield from ask_with_less(want))
        except PalimpsestError:
            raise first from None
