"""What a strict provider is asked and answers: scripted replies, refusals with their exact words, and records of both."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from palimpsest.testing.strict.models import StrictModel, StrictPrices

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class ScriptedReply:
    """What the model says: blocks of Anthropic Messages without signatures, which the other wires put into their own shape.

    The stop reason follows from the blocks if it is not given.
    """

    blocks: tuple[JsonObject, ...] = ()
    stop_reason: str | None = None


@dataclass(frozen=True)
class ScriptedFailure:
    """An error that the provider answers whatever was asked, such as an overload."""

    status: int
    kind: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)
    code: str = ""


@dataclass(frozen=True)
class StrictRequest:
    """A request as it arrived. `messages` is the whole list that it stands for, where a thread sent only its end."""

    path: str
    headers: Mapping[str, str]
    body: JsonObject
    messages: tuple[JsonObject, ...] = ()

    @property
    def betas(self) -> frozenset[str]:
        """The values of the header `anthropic-beta`."""
        return frozenset(value.strip() for value in self.headers.get("anthropic-beta", "").split(",") if value.strip())

    @property
    def account(self) -> str:
        """The account that pays: the key of the request."""
        return self.headers.get("x-api-key") or self.headers.get("authorization", "").removeprefix("Bearer ")


class StrictRefusal(Exception):
    """A request is refused. `reason` is our short word for it, which is counted; the rest is what goes over the wire."""

    def __init__(self, reason: str, message: str, status: int = 400, kind: str = "invalid_request_error", code: str = "") -> None:
        super().__init__(message)
        self.reason, self.message, self.status, self.kind, self.code = reason, message, status, kind, code
        self.headers: dict[str, str] = {}


@dataclass(frozen=True)
class BilledTokenClasses:
    """The tokens of one inference by class; `thinking` is part of `output`."""

    input: int = 0
    read: int = 0
    written: int = 0
    written_long: int = 0
    output: int = 0
    thinking: int = 0

    @property
    def prompt(self) -> int:
        """All tokens of the prompt, cached or not."""
        return self.input + self.read + self.written + self.written_long

    def dollars(self, model: StrictModel) -> float:
        """Return what they cost: the whole call at the higher prices if its prompt is above the step."""
        prices: StrictPrices = model.step_prices if model.step is not None and self.prompt > model.step else model.prices
        counts = (self.input, self.output, self.read, self.written, self.written_long)
        return sum(count * rate for count, rate in zip(counts, prices, strict=True)) / 1e6


@dataclass(frozen=True)
class StrictRecord:
    """A request and what became of it. Thinking that is dropped was paid for once and is lost to the model."""

    request: StrictRequest
    status: int
    refused: str = ""
    thinking_sent: int = 0
    thinking_dropped: int = 0
    billed: tuple[BilledTokenClasses, ...] = ()
    dollars: float = 0.0
    reply: JsonObject = field(default_factory=dict)

    @property
    def thinking_kept(self) -> int:
        """The thinking blocks that the model was shown; none of a refused request."""
        return 0 if self.refused else self.thinking_sent - self.thinking_dropped


def canonical(value: object) -> str:
    """Write a value so that key order and spacing do not matter."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest_of(*parts: str) -> str:
    """Digest a sequence of texts."""
    return sha256("\x00".join(parts).encode(errors="surrogatepass")).hexdigest()[:32]


def tokens_of_text(text: str) -> int:
    """Count tokens as the double does: one for each four bytes, and at least one."""
    return max(1, len(text.encode(errors="surrogatepass")) // 4)


def blocks_of(content: object) -> list[JsonObject]:
    """The blocks of a content; a text alone stands for one block with that text."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
