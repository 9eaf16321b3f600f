"""Scripted replies, refusals and records of the strict double, its own table of models, and opaque signatures."""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple

ThinkingOff = Literal["never", "between_tools", "low effort", "always"]
"""What turns thinking off: nothing, `between_tools`, `disabled` at effort `high` or below, or `disabled`."""


class StrictPrices(NamedTuple):
    """Dollars for a million tokens; `write` lives for 5 or 30 minutes, `write_long` for 1 or 12 hours."""

    input: float = 0.0
    output: float = 0.0
    read: float = 0.0
    write: float = 0.0
    write_long: float = 0.0


class StrictModel(NamedTuple):
    """A model as the double plays it. `least_cache` and the windows are tokens; above `step` tokens of prompt `step_prices` count."""

    name: str
    provider: Literal["anthropic", "openai"] = "anthropic"
    prices: StrictPrices = StrictPrices()
    step: int | None = None
    step_prices: StrictPrices = StrictPrices()
    window: int = 1_000_000
    reply: int = 128_000
    binds: bool = False
    """Whether its thinking is bound to its prefix; for OpenAI, whether reasoning behind a change is dropped."""
    checked_for_old_accounts: bool = False
    """Whether accounts from before 2026-08-31 are refused too when the request does not say what to do."""
    reads: frozenset[str] = frozenset()
    """The bound models whose thinking it reads, itself included; a model that is not bound reads all that are not."""
    own_account: bool = False
    """Whether its thinking can be read only in the account that made it."""
    forced_tools: bool = True
    budget: bool = False
    """Whether `thinking.type` may be `enabled`."""
    adaptive: bool = True
    off: ThinkingOff = "always"
    thinks: bool = True
    """Whether it thinks without being asked."""
    sampling: bool = False
    prefill: bool = False
    inner_system: bool = True
    compaction: bool = True
    least_cache: int = 512
    writes_cost: bool = True
    """Whether cache writes are billed; only asked for OpenAI."""


_UNBOUND_OLD: Final = frozenset(
    {"claude-sonnet-5", "claude-opus-4-8", "claude-opus-4-7", "claude-opus-4-6", "claude-sonnet-4-6", "claude-haiku-4-5"}
    | {"claude-opus-4-5", "claude-sonnet-4-5", "claude-opus-4-1", "claude-opus-4", "claude-sonnet-4"}
)
_FABLE_READS: Final = _UNBOUND_OLD | {"claude-opus-5", "claude-opus-5-5", "claude-fable-5"}
# Only that it reads Sonnet 5.5 is documented; that it reads what is older than itself is inferred.
_OPUS_READS: Final = _UNBOUND_OLD | {"claude-opus-5", "claude-sonnet-5-5"}
_HAIKU_READS: Final = frozenset({"claude-haiku-5-5"})
_FABLE_52: Final = StrictPrices(8, 40, 0.20, 10, 16)
_FABLE_51: Final = StrictPrices(10, 50, 0.25, 12.5, 20)
_OPUS_5: Final = StrictPrices(5, 25, 0.50, 6.25, 10)


def _bound(name: str, prices: StrictPrices, reads: frozenset[str], *, off: ThinkingOff = "never") -> StrictModel:
    return StrictModel(name, prices=prices, binds=True, reads=reads | {name}, forced_tools=False, off=off)


def _older(name: str, prices: StrictPrices, least_cache: int) -> StrictModel:
    """A model of the 4.6 kind: it takes budgets and sampling, but no prefill and no system message inside."""
    return StrictModel(name, prices=prices, least_cache=least_cache, budget=True, sampling=True, inner_system=False, thinks=False)


_CLAUDE: Final = (
    _bound("claude-fable-5-2", _FABLE_52, frozenset())._replace(checked_for_old_accounts=True, own_account=True),
    _bound("claude-mythos-5-2", _FABLE_52, frozenset({"claude-fable-5-2"}))._replace(checked_for_old_accounts=True, own_account=True),
    _bound("claude-fable-5-1", _FABLE_51, _FABLE_READS),
    _bound("claude-mythos-5-1", _FABLE_51, frozenset())._replace(checked_for_old_accounts=True),
    StrictModel("claude-fable-5", prices=StrictPrices(10, 50, 1, 12.5, 20), off="never"),
    StrictModel("claude-mythos-5", prices=StrictPrices(10, 50, 1, 12.5, 20), off="never"),
    _bound("claude-opus-5-5", StrictPrices(4, 20, 0.20, 5, 8), _OPUS_READS),
    StrictModel("claude-opus-5", prices=_OPUS_5, off="low effort"),
    _bound("claude-sonnet-5-5", StrictPrices(2, 10, 0.10, 2.5, 4), _UNBOUND_OLD, off="between_tools")._replace(own_account=True),
    StrictModel("claude-sonnet-5", prices=StrictPrices(2, 10, 0.20, 2.5, 4), least_cache=1_024, inner_system=False),
    _bound("claude-haiku-5-5", StrictPrices(0.10, 0.50, 0.01, 0.125, 0.20), _HAIKU_READS, off="low effort")._replace(
        forced_tools=True, own_account=True, step=100_000, step_prices=StrictPrices(0.50, 2.50, 0.05, 0.625, 1.00)
    ),
    StrictModel("claude-opus-4-8", prices=_OPUS_5, least_cache=1_024, thinks=False),
    StrictModel("claude-opus-4-7", prices=_OPUS_5, least_cache=2_048, thinks=False, inner_system=False),
    _older("claude-opus-4-6", _OPUS_5, 4_096),
    _older("claude-sonnet-4-6", StrictPrices(3, 15, 0.30, 3.75, 6), 1_024),
    *(
        _older(name, prices, least)._replace(prefill=True, adaptive=False, compaction=False, window=200_000, reply=64_000)
        for name, prices, least in (
            ("claude-haiku-4-5", StrictPrices(1, 5, 0.10, 1.25, 2), 4_096),
            ("claude-opus-4-5", _OPUS_5, 4_096),
            ("claude-sonnet-4-5", StrictPrices(3, 15, 0.30, 3.75, 6), 1_024),
        )
    ),
)


def _gpt(name: str, prices: StrictPrices, step: StrictPrices | None = None, *, binds: bool = True, writes: bool = True) -> StrictModel:
    """A model of OpenAI; above 272,000 tokens input and cache cost twice as much and output half as much again, unless `step` says more."""
    long = step or StrictPrices(2 * prices.input, 1.5 * prices.output, 2 * prices.read, 2 * prices.write, 2 * prices.write_long)
    facts = StrictModel(name, "openai", prices, 272_000, long, window=922_000, binds=binds, sampling=True, least_cache=1_024)
    return facts._replace(reads=frozenset({name}), writes_cost=writes)


_GPT: Final = (
    _gpt("gpt-6-astra", StrictPrices(10, 50, 1, 12.5, 25))._replace(sampling=False, off="never"),
    _gpt("gpt-6.1-sol", StrictPrices(2, 10, 0.10, 2.5, 5), StrictPrices(4, 15, 0.20, 5, 10)),
    _gpt("gpt-6.1-terra", StrictPrices(1, 5, 0.05, 1.25, 2.5)),
    _gpt("gpt-6-sol", StrictPrices(2, 10, 0.20, 2.5, 5)),
    _gpt("gpt-6-luna", StrictPrices(0.10, 0.50, 0.01, 0.125, 0.25)),
    _gpt("gpt-5.6-sol", StrictPrices(4, 20, 0.40, 5, 10), binds=False),
    _gpt("gpt-5.6-terra", StrictPrices(2, 12, 0.20, 2.5, 5), binds=False),
    _gpt("gpt-5.6-luna", StrictPrices(0.20, 1.2, 0.02, 0.25, 0.50), binds=False),
    _gpt("gpt-5.5", StrictPrices(5, 30, 0.50), binds=False, writes=False)._replace(window=1_050_000),
    _gpt("gpt-5.4", StrictPrices(2.5, 15, 0.25), binds=False, writes=False)._replace(window=1_050_000),
)
STRICT_MODELS: Final = {each.name: each for each in (*_CLAUDE, *_GPT)}
_dated: Final = re.compile(r"-20\d{6}$")


def strict_model(name: str) -> StrictModel | None:
    """Look up a model; a date behind its name does not count, and a Claude or GPT that is not known plays the newest. `None` for others."""
    plain = _dated.sub("", name)
    known = STRICT_MODELS.get("gpt-5.6-sol" if plain == "gpt-5.6" else plain)
    if known is not None:
        return known
    if plain.startswith("claude-"):
        return STRICT_MODELS["claude-fable-5-2"]._replace(name=plain, reads=frozenset({plain}))
    if plain.startswith("gpt-"):
        return STRICT_MODELS["gpt-6-astra"]._replace(name=plain, reads=frozenset({plain}))
    return None


def model_facts(model: StrictModel) -> dict[str, object]:
    """Return how a provider lists a model."""
    if model.provider == "openai":
        return {"id": model.name, "object": "model", "created": 0, "owned_by": "openai"}
    facts = {"id": model.name, "type": "model", "display_name": model.name, "created_at": "2026-01-01T00:00:00Z", "lifecycle": "active"}
    support = {"supported": model.compaction}
    limits = {"max_input_tokens": model.window, "max_tokens": model.reply}
    return {**facts, **limits, "capabilities": {"compaction": {**support, "summarize": support}}}


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


_SECRET: Final = "the key of the strict double"  # noqa: S105 - it keeps nothing secret: it tells a damaged signature from a whole one


class ThinkingSeal(NamedTuple):
    """What a signature of thinking says: its id, who made it, and what it is bound to. `tokens` is the size of the reasoning."""

    id: str
    model: str
    account: str
    after: str
    system: str
    tools: str
    prefix: str
    tokens: int


class SummarySeal(NamedTuple):
    """What a signature of a compaction block says; `prefixes` are the digests of the list that it summarises, `last_role` how it ended."""

    content: str
    bound: bool
    system: str
    tools: str
    prefixes: tuple[str, ...]
    last_role: str


def seal(facts: ThinkingSeal | SummarySeal) -> str:
    """Write a signature."""
    text = json.dumps([type(facts).__name__, *facts], separators=(",", ":"))
    return base64.b64encode(f"{digest_of(_SECRET, text)}{text}".encode()).decode()


def thinking_seal(signature: object) -> ThinkingSeal | None:
    """Read a signature of thinking; `None` if it is damaged."""
    facts = _facts(signature, ThinkingSeal.__name__)
    return None if facts is None else ThinkingSeal(*facts)


def summary_seal(signature: object) -> SummarySeal | None:
    """Read a signature of a compaction block; `None` if it is damaged."""
    facts = _facts(signature, SummarySeal.__name__)
    return None if facts is None else SummarySeal(*facts)._replace(prefixes=tuple(facts[4]))


def _facts(signature: object, kind: str) -> list[Any] | None:
    try:
        whole = base64.b64decode(str(signature), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    digest, text = whole[:32], whole[32:]
    if digest != digest_of(_SECRET, text):
        return None
    name, *facts = json.loads(text)
    return facts if name == kind else None
