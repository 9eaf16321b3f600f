"""Answers what plans want while no model is at hand: summaries of the size and the memory that those of other programs have."""

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Final

from palimpsest.core.events import ModelReplied, Usage
from palimpsest.core.items import Item, Opaque, Text, Value, text_of
from palimpsest.core.policy import Answer, Ask, Want
from palimpsest.core.situation import Card, Evidence
from palimpsest.core.sizes import palimpsest_size
from palimpsest.engine.flow import answer_without_model
from palimpsest.engine.session import Session
from palimpsest.lab.needs import plain_name
from palimpsest.lab.padding import padding
from palimpsest.wire.args import type_of

_TRIGGER: Final = "compaction_trigger"
_FILLER: Final = "The work went on as it is told above, one step after the other, and nothing else of it is kept here. "


class Manner(Value, frozen=True):
    """How a program's summaries are: tokens written and kept, and the shares of names that survive them.

    `messages` is the share of the user's messages that the summary itself repeats, where that is known.
    """

    written: int
    kept: int
    edited: float
    read: float
    others: float
    messages: float = 0.0


# As they were seen in recorded sessions; what nobody has measured is taken to be like the nearest that somebody has.
MANNERS: Final[Mapping[str, Manner]] = {
    "claude-code": Manner(6_000, 4_100, 0.95, 0.47, 0.46, messages=0.78),
    "codex": Manner(2_000, 2_000, 0.89, 0.18, 0.23),
    "opencode": Manner(1_200, 1_000, 0.44, 0.05, 0.13),
    "classroom": Manner(1_200, 1_000, 0.44, 0.05, 0.13),
}


def manner_of(profile: str) -> Manner | None:
    """How a profile's summaries are; none for one that imitates nobody and folds without a model."""
    return next((manner for name, manner in MANNERS.items() if profile == name or profile.startswith(f"{name}-")), None)


def imitating(profile: str, factor: float) -> Callable[[Session, Want], Answer]:
    """Answers the wants of a profile that imitates another program, where nothing is billed; all others have no model."""
    manner = manner_of(profile)
    if manner is None:
        return answer_without_model

    def answer(session: Session, want: Want) -> Answer:
        if not isinstance(want, Ask):
            return answer_without_model(session, want)
        said = [text_of(item.content) for item in reversed(session.log.view.items) if item.kind == "user"]
        text = summary_text("summary of this session", manner, session.witness.evidence, said, factor)
        return reply_to(want, text, session.card, Usage(output=manner.written), round(manner.kept / factor))

    return answer


def survives(name: str, share: float) -> bool:
    """Whether a name is among those that survive: a fixed draw, so that what survived once survives again."""
    return int.from_bytes(sha256(name.encode("utf-8", "surrogatepass")).digest()[:8]) < share * 2**64


def drawn(names: Iterable[str], manner: Manner, evidence: Evidence) -> frozenset[str]:
    """The names that survive a summary."""
    edited = {plain_name(path) for path in evidence.edited}
    read = {plain_name(path) for path in evidence.read}
    return frozenset(name for name in names if survives(name, _share(name, manner, edited, read)))


def _share(name: str, manner: Manner, edited: set[str], read: set[str]) -> float:
    return manner.edited if name in edited else manner.read if name in read else manner.others


def reply_to(want: Ask, text: str, card: Card, usage: Usage, size: int) -> ModelReplied:
    """A summary in the form that was asked for: words, or an item of so many unscaled tokens that only the provider can open."""
    if want.endpoint or (want.items and _is_trigger(want.items[-1])):
        data = '{"type":"compaction","encrypted_content":"' + "A" * ((size * 4 + 650) * 4 // 3) + '"}'
        return ModelReplied((Opaque(card.provider, card.name, data, text),), usage=usage, stop="end_turn", model=card.name)
    return ModelReplied((Text(text, "assistant"),), usage=usage, stop="end_turn", model=card.name)


def _is_trigger(item: Item) -> bool:
    return isinstance(item.content, Opaque) and type_of(item.content) == _TRIGGER


def summary_text(marker: str, manner: Manner, evidence: Evidence, messages: Iterable[str], factor: float) -> str:
    """As many surviving names and messages as there is room for, newest first, and filled up to the size that summaries have."""
    room = round(manner.kept / factor)
    lines = [f"What was done so far ({marker})."]
    size = palimpsest_size(Text(lines[0]))
    for title, share, told in (
        ("Files changed", manner.edited, reversed(evidence.edited)),
        ("Messages of the user", manner.messages, messages),
        ("Files read", manner.read, reversed(evidence.read)),
        ("Names", manner.others, reversed(evidence.names)),
    ):
        for text in told if share else ():
            # Paths are drawn by the name under which they are looked for later.
            if not survives(plain_name(text), share):
                continue
            line = f"- {title}: {text}"
            weight = palimpsest_size(Text(line)) - 3
            if size + weight <= room:
                lines.append(line)
                size += weight
    return "\n".join([*lines, padding(_FILLER, room - size)]).strip()
