"""Imitates the summaries of real programs without a model: their size, and the share of names and messages that they keep."""

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Final

from msgspec.json import encode
from msgspec.structs import replace

from palimpsest.core.events import ModelReplied, Usage
from palimpsest.core.items import Content, Opaque, Text, Value, text_of
from palimpsest.core.situation import Card, Evidence
from palimpsest.core.tokens.sizes import palimpsest_size
from palimpsest.core.view import View
from palimpsest.engine.session import Session
from palimpsest.lab.rereads.definitions import plain_name
from palimpsest.wire.encoding.tools import opaque_type
from palimpsest.wire.request import Params


def filler_text(words: str, size: int) -> str:
    """Return `words` repeated to about `size` unscaled tokens."""
    if size <= 0:
        return ""
    repeated = words * (size // 10 + 1)
    cut = repeated[: len(repeated) * size // palimpsest_size(Text(repeated))]
    # The estimate is not linear in the length, so the cut is corrected once.
    return repeated[: len(cut) * size // max(1, palimpsest_size(Text(cut)))].strip()


_TRIGGER: Final = "compaction_trigger"
_MESSAGES: Final = "Messages of the user"
_OPEN: Final = "Still open"
_NAMES: Final = "Names"
_FILLER: Final = "The work went on as it is said above, one step after the other, and nothing else of it is kept here. "


class SummaryStatistics(Value, frozen=True):
    """Statistics of a program's summaries: tokens written and kept, and the shares of edited, read and other names that survive.

    `messages` is the share of user messages that the summary repeats, 0 where it is unknown.
    """

    written: int
    kept: int
    edited: float
    read: float
    others: float
    messages: float = 0.0


# Measured on recorded sessions; a program without measurements has the values of the most similar one.
SUMMARY_STATISTICS: Final[Mapping[str, SummaryStatistics]] = {
    "claude-code": SummaryStatistics(6_000, 4_100, 0.95, 0.47, 0.46, messages=0.78),
    "context-editing": SummaryStatistics(6_000, 4_100, 0.95, 0.47, 0.46, messages=0.78),
    "provider": SummaryStatistics(6_000, 4_100, 0.95, 0.47, 0.46, messages=0.78),
    "codex": SummaryStatistics(2_000, 2_000, 0.89, 0.18, 0.23),
    "opencode": SummaryStatistics(1_200, 1_000, 0.44, 0.05, 0.13),
    "classroom": SummaryStatistics(1_200, 1_000, 0.44, 0.05, 0.13),
}


BeforeSummary = Callable[[str, SummaryStatistics], None]


def summary_statistics_of(profile: str) -> SummaryStatistics | None:
    """Return the statistics of a profile's summaries; None for a profile that folds without a model."""
    return next((statistics for name, statistics in SUMMARY_STATISTICS.items() if profile == name or profile.startswith(f"{name}-")), None)


class Summariser:
    """Writes the summaries of one session like an imitated program; each may repeat names and messages of the previous summary.

    `before_summary` gets the marker of each summary and the statistics first.
    """

    def __init__(
        self, statistics: SummaryStatistics, factor: float, session: Session, before_summary: BeforeSummary = lambda *_: None
    ) -> None:
        self._statistics = statistics
        self._token_limit = round(statistics.kept / factor)
        self._session = session
        self._before_summary = before_summary
        self._count = 0
        self._messages: dict[str, None] = {}
        self._names: dict[str, None] = {}

    def reply(self, view: View, params: Params) -> ModelReplied:
        """Return the summary for a request, in the form that it asks for."""
        self._count += 1
        marker = f"summary {self._count} of this session"
        self._before_summary(marker, self._statistics)
        written = min(self._statistics.written, params.max_tokens or self._statistics.written)
        return reply_to(view, params, self._next(marker), self._session.card, Usage(output=written), size=self._token_limit)

    def _next(self, marker: str) -> str:
        """Return the text of the next summary, from the visible items and the previous summary."""
        evidence, items = self._session.derived.evidence.value(), self._session.log.view.items
        user_messages = _merge_newest_last(self._messages, (text_of(item.content) for item in items if item.kind == "user"))
        names = _merge_newest_last(self._names, evidence.names)
        evidence = replace(evidence, names=tuple(names))
        lines, size = select_lines(marker, self._statistics, evidence, reversed(user_messages), self._token_limit)
        self._messages = {text: None for text in user_messages if (_MESSAGES, text) in lines}
        self._names = {text: None for text in names if (_NAMES, text) in lines}
        return compose_summary(marker, lines, self._token_limit - size)


def _merge_newest_last(before: Iterable[str], now: Iterable[str]) -> dict[str, None]:
    """Return all texts once, each at its newest position."""
    again = dict.fromkeys(now)
    return {**{text: None for text in before if text not in again}, **again}


def is_sampled(name: str, share: float) -> bool:
    """Whether a name is sampled at this rate; deterministic by hash, so a name that survived once survives again."""
    return int.from_bytes(sha256(name.encode("utf-8", "surrogatepass")).digest()[:8]) < share * 2**64


def sampled_names(names: Iterable[str], statistics: SummaryStatistics, evidence: Evidence) -> frozenset[str]:
    """Return the names that survive a summary."""
    shares = {plain_name(path): statistics.read for path in evidence.read}
    shares |= {plain_name(path): statistics.edited for path in evidence.edited}
    return frozenset(name for name in names if is_sampled(name, shares.get(name, statistics.others)))


def reply_to(view: View, params: Params, text: str, card: Card, usage: Usage, *, size: int) -> ModelReplied:
    """Return a summary as text, or as an opaque compaction item of `size` unscaled tokens if the request asks for one."""
    part: Content = Text(text, "assistant")
    last = view.items[-1].content if view.items else None
    if params.endpoint and card.wire == "anthropic":
        block = encode({"type": "compaction", "content": text, "signature": "imitated"}).decode()
        part = Opaque(card.provider, card.name, block, text)
    elif params.endpoint or (isinstance(last, Opaque) and opaque_type(last) == _TRIGGER):
        data = '{"type":"compaction","encrypted_content":"' + "A" * ((size * 4 + 650) * 4 // 3) + '"}'
        part = Opaque(card.provider, card.name, data, text)
    return ModelReplied((part,), usage=usage, stop="end_turn", model=card.name)


def select_lines(
    marker: str, statistics: SummaryStatistics, evidence: Evidence, user_messages: Iterable[str], token_limit: int
) -> tuple[dict[tuple[str, str], None], int]:
    """Return the selected lines as (title, text) in order, and their unscaled tokens."""
    lines: dict[tuple[str, str], None] = {}
    size = palimpsest_size(Text(_opening(marker)))
    for title, share, texts in (
        ("Files changed", statistics.edited, reversed(evidence.edited)),
        (_MESSAGES, statistics.messages, user_messages),
        (_OPEN, statistics.others, evidence.tasks),
        ("Files read", statistics.read, reversed(evidence.read)),
        (_NAMES, statistics.others, reversed(evidence.names)),
    ):
        for text in texts if share else ():
            # Paths are sampled by the name under which re-reads look for them.
            if not is_sampled(text if title in (_MESSAGES, _OPEN) else plain_name(text), share):
                continue
            line_tokens = palimpsest_size(Text(_line(title, text))) - 3
            if size + line_tokens <= token_limit:
                lines[title, text] = None
                size += line_tokens
    return lines, size


def compose_summary(marker: str, lines: Iterable[tuple[str, str]], tokens_left: int) -> str:
    """Return the text of a summary, padded by `tokens_left` unscaled tokens."""
    return "\n".join([_opening(marker), *(_line(title, text) for title, text in lines), filler_text(_FILLER, tokens_left)]).strip()


def _opening(marker: str) -> str:
    return f"What was done so far ({marker})."


def _line(title: str, text: str) -> str:
    return f"- {title}: {text}"
