"""The model card in use with its calibrated token counter, and the size rules of the programs that profiles imitate."""

from collections.abc import Callable, Iterable
from typing import ClassVar, Final

import msgspec

from palimpsest.core.events import CallStarted, Event, ModelReplied, ModelSwitched, SessionOpened
from palimpsest.core.items import Content, Document, Image, Opaque, Text, Thinking, ToolCall, ToolResult, text_of
from palimpsest.core.ledger import LedgerProjection
from palimpsest.core.plans import ModelCard
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.tokens import SizeRule, decrypted_bytes, encrypted_in, palimpsest_size, quarter_rounded_up
from palimpsest.core.view import Scope
from palimpsest.core.view_projection import ViewProjection
from palimpsest.wire.responses import IMAGE_PAYLOAD, item_json

CLAUDE_IMAGE_TOKENS = 2_000
BLOB_BYTES = 500_000

_encode = msgspec.json.Encoder().encode


def responses_size(content: Content) -> int:
    """A quarter of the bytes of the compact JSON on the Responses wire; images and encrypted payloads count as in Codex."""
    if isinstance(content, Thinking) and content.signature is not None:
        return quarter_rounded_up(decrypted_bytes(len(content.signature.data)))
    if isinstance(content, Opaque):
        inside = encrypted_in(content.data)
        if inside.type == "ghost_snapshot":
            return 0
        if inside.encrypted_content is not None:
            return quarter_rounded_up(decrypted_bytes(len(inside.encrypted_content)))
    shape = item_json(content)
    return quarter_rounded_up(len(_encode(shape.json)) + shape.payloads * IMAGE_PAYLOAD)


def claude_size(content: Content) -> int:
    """Four characters per token; an image counts 2,000 tokens."""
    match content:
        case Image() | Document():
            return CLAUDE_IMAGE_TOKENS
        case ToolResult():
            return sum(claude_size(part) for part in content.parts)
        case Text() | Thinking() | ToolCall() | Opaque():
            return quarter_rounded_up(len(text_of(content)))


def claude_list_size(sizes: Iterable[int]) -> int:
    """A list without reported usage: a third more than its sum, rounded up."""
    return -(-sum(sizes) * 4 // 3)


def readable_size(content: Content) -> int:
    """A quarter of the readable characters, rounded to the nearest; images count nothing."""
    match content:
        case Image() | Document():
            return 0
        case ToolResult():
            return _quarter("\n".join(text_of(part) for part in content.parts if isinstance(part, Text | Opaque)))
        case Text() | Thinking() | ToolCall() | Opaque():
            return _quarter(text_of(content))


def json_size(content: Content) -> int:
    """A quarter of the characters of the wire JSON, rounded to the nearest."""
    return _quarter(_encode(item_json(content).json).decode())


def _quarter(text: str) -> int:
    return (len(text) + 2) // 4


def bytes_size(content: Content) -> int:
    """Bytes on the wire instead of tokens; an image counts 500,000 bytes."""
    shape = item_json(content)
    return len(_encode(shape.json)) + shape.payloads * BLOB_BYTES


SIZE_RULES: Final[dict[str, SizeRule]] = {
    "palimpsest": palimpsest_size,
    "codex": responses_size,
    "claude-code": claude_size,
    "opencode": readable_size,
    "opencode-1.18": json_size,
    "classroom": json_size,
    "bytes": bytes_size,
}


# Only our own estimate is calibrated; the rules of imitated programs count as the originals do.
_LEARNS = "palimpsest"


class Metering:
    """Projection of the card in use, and of a token counter whose factor follows the reported usage."""

    version: ClassVar = 2
    watches: ClassVar = frozenset({CallStarted, ModelReplied, ModelSwitched, SessionOpened})
    scope: ClassVar[Scope] = "path"

    def __init__(self, views: ViewProjection, card_of: Callable[[str], ModelCard], size: str) -> None:
        # Snapshots of another size rule do not apply.
        self.name = f"metering/{size}"
        self._views = views
        self._card_of = card_of
        self._size = size
        self._ledger = LedgerProjection()
        self._model = ""
        self.card = card_of("")
        self.counter = self._new_counter()
        # The revision of the view and the counter by which items were counted, their number, and their unscaled tokens.
        self._counted: tuple[tuple[int, TokenCounter], int, int] = (views.revision, self.counter), 0, 0

    def take(self, event: Event) -> None:
        """Apply one event: follow switches of the model, and calibrate after replies."""
        body = event.body
        match body:
            case CallStarted():
                self._ledger.take(event)
                self._follow_model()
            case ModelReplied():
                self._ledger.take(event)
                self.counter.factor = self._factor()
            case ModelSwitched() | SessionOpened():
                self._follow_model()
            case _:
                return

    def raw_before(self) -> int:
        """Unscaled tokens of the view before an event that edits nothing. Only new items are counted, except after an edit."""
        views, counter = self._views, self.counter
        seen, counted, raw = self._counted
        if seen != (views.revision, counter) or counted > views.count_before:
            seen, counted, raw = (views.revision, counter), 0, 0
        raw += sum(counter.unscaled_sizes(views.items[counted : views.count_before]))
        self._counted = seen, views.count_before, raw
        return raw + sum(counter.unscaled_sizes(views.head_before))

    @property
    def newest_tools(self) -> int:
        """Tokens of the tools that the newest call offered, as its reports show; 0 if none were recorded."""
        sums = self._ledger.value().calibration.models.get(self.card.name)
        return 0 if sums is None else sums.tools_tokens

    def tools_tokens(self, size: int) -> int:
        """Tokens of tool declarations with an unscaled size: as the provider measured them, or by the factor."""
        if self._size != _LEARNS:
            return self.counter.scaled(size)
        return self._ledger.value().calibration.tools_tokens(self.card.name, size)

    def snapshot(self) -> bytes:
        """The reported usage as JSON."""
        return self._ledger.snapshot()

    def restore(self, data: bytes) -> None:
        """Continue from a snapshot, with the model of the restored view."""
        self._ledger.restore(data)
        self._model = self._views.rest.model
        self.card = self._card_of(self._model)
        self.counter = self._new_counter()

    def reset(self) -> None:
        """Start again with the model of the session."""
        self._ledger.reset()
        self._model = ""
        self.card = self._card_of("")
        self.counter = self._new_counter()

    def _follow_model(self) -> None:
        name = self._views.rest.model
        # Compared by the name that was given: a card may have another, as that of a model with a date has.
        if name and name != self._model:
            self._model, counted_alike = name, self.card.cache_edits
            self.card = self._card_of(name)
            if self.card.cache_edits == counted_alike:
                self.counter.factor = self._factor()
            else:
                self.counter = self._new_counter()

    def _new_counter(self) -> TokenCounter:
        return TokenCounter(SIZE_RULES[self._size], self._factor(), drops_cached=self.card.cache_edits)

    def _factor(self) -> float:
        return self._ledger.value().calibration.factor(self.card.name) if self._size == _LEARNS else 1.0
