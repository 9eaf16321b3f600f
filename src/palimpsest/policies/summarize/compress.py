"""The compaction of the profile `classroom`: saves the transcript in the project and folds the conversation into a short summary."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from palimpsest.audit.pins import pinned
from palimpsest.core.edits import Fold, Into, Keep, Put
from palimpsest.core.items import Content, Document, Image, Item, Opaque, Text, Thinking, ToolCall, ToolResult, text_of
from palimpsest.core.pairs import settled
from palimpsest.core.policy import Ask, Plan, Proposal, Save, Steps, ask, save
from palimpsest.core.situation import Moment, Situation
from palimpsest.core.view import shown
from palimpsest.policies.fold_threshold import fold_threshold
from palimpsest.policies.prompt import prompt
from palimpsest.policies.summarize.summarize import checked_summary
from palimpsest.policies.summarize.wire_messages import message_lines
from palimpsest.wire.responses.item_json import item_json

LONGEST_RESULT = 2_000
CONTINUE: Final = "continue"
"""The source of the request to go on after a compaction within a turn."""


def flatten(items: Iterable[Item], longest: int = LONGEST_RESULT) -> str:
    """Return items as one text, separated by blank lines; a result of more than `longest` characters is cut."""
    return "\n\n".join(line for item in items if (line := _line(shown(item), longest)))


def attachment_name(part: Image | Document) -> str:
    """Return the line that replaces an image or document which is not sent."""
    name = part.name if isinstance(part, Document) else part.url
    return f"[Attached {part.media}: {name}]" if name else f"[Attached {part.media}]"


def _line(content: Content | None, longest: int) -> str:
    match content:
        case None:
            return ""
        case Text():
            return f"[{'Assistant' if content.role == 'assistant' else 'User'}]: {content.text}"
        case Thinking():
            return f"[Assistant reasoning]: {content.text}" if content.text else ""
        case ToolCall():
            return f"[Assistant tool call]: {content.tool}({content.args})"
        case ToolResult():
            text = "\n".join(attachment_name(part) if isinstance(part, Image | Document) else text_of(part) for part in content.parts)
            cut = f"{text[:longest]}\n[truncated]" if len(text) > longest else text
            return f"[{'Tool error' if content.error else 'Tool result'}]: {cut}"
        case Image() | Document():
            return f"[User]: {attachment_name(content)}"
        case Opaque():
            return f"[Assistant]: {content.text_fallback}" if content.text_fallback else ""


_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Compress:
    """Folds above `above` tokens, and when asked; the model sees `shown_chars` characters from one end of the transcript."""

    above: int = 50_000
    shown_chars: int = 80_000
    shown_end: Literal["start", "end"] = "start"
    reply: int = 2_000
    name: str = "compress"
    moments: frozenset[Moment] = frozenset({"before_call", "asked", "overflow"})
    shrinks: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Plan to save the transcript, ask for a summary and fold, if that is due or forced."""
        forced = situation.moment in {"asked", "overflow"}
        items = situation.view.items[: settled(situation.view.items)]
        level = fold_threshold(situation, self.above) or self.above
        due = situation.used > level and situation.may_fold and len(items) == len(situation.view.items)
        if not items or not (forced or due):
            return ()
        return self._steps(situation, items)

    def _steps(self, situation: Situation, items: tuple[Item, ...]) -> Steps:
        view = situation.view
        # The transcript is saved first, so that a failure loses nothing.
        yield from save(Save(message_lines(items), f".transcripts/transcript_{situation.now // 1000}.jsonl", in_project=True))
        lines = [_message_line(item) for item in items]
        text = "[" + ",".join(line.decode() for line in lines if line) + "]"
        part = text[: self.shown_chars] if self.shown_end == "start" else text[-self.shown_chars :]
        request = prompt("classroom_summary", focus=situation.asked, conversation=part)
        reply = yield from ask(Ask((), request, "summary", head=False, tools=False, reply=self.reply))
        summary = Put("summary", Text(f"[Compressed]\n\n{checked_summary(reply)}"))
        stated = {fact.id for fact in view.facts.values()} | pinned(view)
        kept = tuple(Keep(item.id) for item in items if item.id in stated)
        into: Into = (*kept, summary, Put("assistant", Text("Understood. Continuing.", "assistant")))
        if situation.health.turn is not None:
            # The next request would end with a reply, which many models refuse to go on from.
            into += (Put("reminder", Text("<reminder>Go on with the task.</reminder>"), CONTINUE),)
        why = "asked for" if situation.moment == "asked" else f"{situation.used:,} tokens are more than {self.above:,}"
        return Proposal((Fold(items[0].id, items[-1].id, into),), why)


def _message_line(item: Item) -> bytes:
    """Encode a visible item as one line of JSON; empty for a hidden one."""
    content = shown(item)
    return b"" if content is None else _encode(item_json(content).json)
