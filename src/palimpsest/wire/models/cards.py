"""Model cards: names, windows, reply limits, media, cache and prices of known models."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import takewhile
from math import inf
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.items import Value
from palimpsest.core.tokens.patterns import lazy_pattern
from palimpsest.core.tokens.spending import PRICE_STEPS

DEFAULT_MODEL: Final = "claude-sonnet-4-6"
"""Model of a new session if none is named anywhere."""

_LONG_SUFFIX = "[1m]"
_VENDORS = ("anthropic/", "openai/")
_BEDROCK = lazy_pattern(r"(?:(?:us|us-gov|eu|apac|jp|au|ca|global)\.)?anthropic\.(?P<name>claude-.+?)(?:-v\d+(?::\d+)?)?")
# Some resellers write `claude-sonnet-4.6`.
_POINT_VERSION = lazy_pattern(r"(?<=\d)\.(?=\d)")
_DATE = lazy_pattern(r"(?:[-@]20\d{6}|-20\d\d-\d\d-\d\d|@default)$")

# Only listed names are aliases: another model whose name merely starts alike has its own window and prices.
_VARIANTS: Mapping[str, str] = {
    "claude-sonnet-4-0": "claude-sonnet-4",
    "claude-opus-4-0": "claude-opus-4",
    "claude-3-5-haiku-latest": "claude-3-5-haiku",
    "claude-3-5-sonnet-latest": "claude-3-5-sonnet",
    "claude-3-7-sonnet-latest": "claude-3-7-sonnet",
    "gpt-5-chat": "gpt-5",
    "gpt-5-chat-latest": "gpt-5",
    "gpt-5-search-api": "gpt-5",
    "gpt-5.1-chat-latest": "gpt-5.1",
    "gpt-5.2-chat-latest": "gpt-5.2",
    "gpt-5.2-codex-fast": "gpt-5.2-codex",
}
# Names that earlier versions used and no provider knows.
_FORMER_NAMES: Mapping[str, str] = {"claude-haiku-3-5": "claude-3-5-haiku"}


class ModelNameParts(NamedTuple):
    """A model name taken apart: the name of its card, the name for the API, and whether it asks for the long window.

    `api_name` is empty where the one of the card is to be sent.
    """

    card: str
    api_name: str
    long: bool


@lru_cache(maxsize=256)
def parse_model_name(name: str) -> ModelNameParts:
    """Split a model name into card, API name and window; it knows vendor prefixes, Bedrock ids, dates and aliases."""
    full_name = name.removesuffix(_LONG_SUFFIX)
    bedrock = _BEDROCK.fullmatch(full_name)
    without_vendor = bedrock["name"] if bedrock else full_name
    for vendor in _VENDORS:
        without_vendor = without_vendor.removeprefix(vendor)
    if without_vendor.startswith("claude-"):
        without_vendor = _POINT_VERSION.sub("-", without_vendor)
    without_date = _DATE.sub("", without_vendor)
    card_name = _FORMER_NAMES.get(without_date) or _VARIANTS.get(without_date, without_date)
    requested = full_name if bedrock else without_vendor
    return ModelNameParts(card_name, "" if requested == card_name or without_date in _FORMER_NAMES else requested, full_name != name)


WireName: TypeAlias = Literal["anthropic", "responses", "chat"]


class LongPrices(Value, frozen=True):
    """Dollars per million tokens for calls whose prompt has more than `above` tokens, one of `PRICE_STEPS`."""

    above: int
    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    cache_write_long: float | None = None

    def __post_init__(self) -> None:
        if self.above not in PRICE_STEPS:
            steps = ", ".join(map(str, PRICE_STEPS))
            raise BadInput(f"long prompts may have another price above {steps} tokens, not above {self.above}", where="prices.long.above")


class Prices(Value, frozen=True):
    """Dollars per million tokens; tokens whose cache price is `None` cost as much as input.

    Prices of zero are unknown, unless the model is `free`. They hold from the day `since` on (ISO 8601, UTC), and `before` it others.
    """

    input: float = 0.0
    output: float = 0.0
    cache_read: float | None = None
    cache_write: float | None = None
    cache_write_long: float | None = None
    long: LongPrices | None = None
    free: bool = False
    since: str = ""
    before: "Prices | None" = None

    def __post_init__(self) -> None:
        for name in ("input", "output", "cache_read", "cache_write", "cache_write_long"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < inf:
                raise BadInput(f"a price must be a number of dollars that is not negative, not {value}", where=f"prices.{name}")
            if self.free and value:
                raise BadInput(f"a free model has no price of {value}", where=f"prices.{name}")

    @property
    def are_known(self) -> bool:
        """Whether these are prices at all."""
        return self.free or self.input > 0 or self.output > 0

    def on(self, day: str) -> "Prices":
        """The prices of a day, given as ISO 8601."""
        found = self
        while day < found.since and found.before is not None:
            found = found.before
        return found


class ModelCard(Value, frozen=True):
    """The facts about a model: wire, limits in tokens, media, cache and prices.

    `system_messages` says whether system messages may stand inside the conversation; `None` leaves it to the wire.
    """

    name: str
    wire: WireName
    provider: str
    window: int
    reply: int
    family: str = ""
    api_name: str = ""
    input_limit: int | None = None
    images: bool = True
    documents: bool = False
    audio: bool = False
    thinking: bool = False
    cache: Literal["none", "breakpoints", "automatic"] = "none"
    cache_minimum: int = 1024
    cache_edits: bool = False
    prices: Prices = Prices()
    call_ids: Literal["any", "claude", "mistral"] = "any"
    system_messages: bool | None = None

    @property
    def takes_system_messages(self) -> bool:
        """Whether system messages may stand inside the conversation; by default on every wire but Anthropic Messages."""
        return self.wire != "anthropic" if self.system_messages is None else self.system_messages


_CLAUDE = ModelCard(
    "", "anthropic", "anthropic", 200_000, 0, family="claude", documents=True, thinking=True, cache="breakpoints", call_ids="claude"
)
# Newer models accept more than this window, but double the price of the whole call above it; older ones reject it.
_GPT = ModelCard(
    "", "responses", "openai", 272_000, 128_000, family="gpt", input_limit=272_000, documents=True, thinking=True, cache="automatic"
)
_GENERIC_CARDS: Mapping[str, ModelCard] = {
    "openai-compatible": ModelCard("", "chat", "openai-compatible", 128_000, 8_192, images=False, cache="automatic"),
    # The chat templates of many local models reject a system message that is not the first.
    "local": ModelCard("", "chat", "local", 8_192, 2_048, images=False, cache="automatic", cache_minimum=1, system_messages=False),
}
_MISTRAL = lazy_pattern(r"(?:mi|dev|code|mag|mini)stral")


def _claude(name: str, dollars: tuple[float, float], reply: int, **changes: object) -> ModelCard:
    """Return the card of a Claude model; `changes` are the fields in which it differs from most of them."""
    return replace(_CLAUDE, name=name, reply=reply, prices=Prices(*dollars, *_cache_prices(dollars[0])), **changes)


def _gpt(name: str, dollars: tuple[float, float], *, read: float | None = 0.1, write: float | None = None) -> ModelCard:
    """Return the card of a GPT model; `read` and `write` are cache prices relative to input."""
    read_price, write_price = (None if factor is None else _round(dollars[0] * factor) for factor in (read, write))
    return replace(_GPT, name=name, prices=Prices(*dollars, read_price, write_price, write_price))


def _cache_prices(cost_in: float) -> tuple[float, float, float]:
    """Prices of a cache read, a write for 5 minutes and a write for 1 hour, relative to input as Anthropic sets them."""
    return _round(cost_in * 0.1), _round(cost_in * 1.25), _round(cost_in * 2)


def _round(dollars: float) -> float:
    return round(dollars, 6)


_MILLION = 1_000_000
_CHAT_REPLY = 16_384

CARDS: tuple[ModelCard, ...] = (
    _claude("claude-3-5-sonnet", (3, 15), 8_192, api_name="claude-3-5-sonnet-20241022", thinking=False),
    _claude("claude-3-5-haiku", (0.8, 4), 8_192, cache_minimum=2048, api_name="claude-3-5-haiku-20241022", thinking=False),
    _claude("claude-3-7-sonnet", (3, 15), 64_000, api_name="claude-3-7-sonnet-20250219"),
    _claude("claude-sonnet-4", (3, 15), 64_000, api_name="claude-sonnet-4-20250514"),
    _claude("claude-sonnet-4-5", (3, 15), 64_000),
    _claude("claude-sonnet-4-6", (3, 15), 64_000),
    _claude("claude-sonnet-5", (2, 10), 128_000, window=_MILLION, system_messages=True),
    _claude("claude-sonnet-5-5", (2, 10), 128_000, window=_MILLION, system_messages=True),
    _claude("claude-opus-4", (15, 75), 32_000, api_name="claude-opus-4-20250514"),
    _claude("claude-opus-4-1", (15, 75), 32_000),
    _claude("claude-opus-4-5", (5, 25), 64_000, cache_minimum=4096),
    _claude("claude-opus-4-6", (5, 25), 128_000, cache_minimum=4096),
    _claude("claude-opus-4-7", (5, 25), 128_000, cache_minimum=2048),
    _claude("claude-opus-4-8", (5, 25), 128_000, system_messages=True),
    _claude("claude-opus-5", (5, 25), 128_000, cache_minimum=512, window=_MILLION, system_messages=True),
    _claude("claude-fable-5", (10, 50), 128_000, cache_minimum=512, window=_MILLION, system_messages=True),
    _claude("claude-haiku-4-5", (1, 5), 64_000, cache_minimum=4096),
    _gpt("gpt-5", (1.25, 10)),
    _gpt("gpt-5-mini", (0.25, 2)),
    _gpt("gpt-5-nano", (0.05, 0.4)),
    _gpt("gpt-5-pro", (15, 120), read=None),
    _gpt("gpt-5-codex", (1.25, 10)),
    _gpt("gpt-5.1", (1.25, 10)),
    _gpt("gpt-5.1-codex", (1.25, 10)),
    _gpt("gpt-5.1-codex-max", (1.25, 10)),
    _gpt("gpt-5.1-codex-mini", (0.25, 2)),
    _gpt("gpt-5.2", (1.75, 14)),
    _gpt("gpt-5.2-codex", (1.75, 14)),
    _gpt("gpt-5.2-pro", (21, 168), read=None),
    _gpt("gpt-5.3-codex", (1.75, 14)),
    _gpt("gpt-5.4", (2.5, 15)),
    _gpt("gpt-5.4-mini", (0.75, 4.5)),
    _gpt("gpt-5.4-nano", (0.2, 1.25)),
    _gpt("gpt-5.4-pro", (30, 180), read=None),
    _gpt("gpt-5.5", (5, 30)),
    _gpt("gpt-5.5-pro", (30, 180), read=None),
    _gpt("gpt-5.6-sol", (4, 20)),
    _gpt("gpt-5.6-terra", (2, 12)),
    _gpt("gpt-5.6-luna", (0.2, 1.2)),
    _gpt("gpt-6-sol", (2, 10), write=1.25),
    _gpt("gpt-6-luna", (0.1, 0.5), write=1.25),
)


# Models with a surcharge for the long window; later models have one price for all sizes.
_LONG_SONNET = LongPrices(200_000, 6, 22.5, *_cache_prices(6))
_LONG_PRICES = {"claude-sonnet-4": _LONG_SONNET, "claude-sonnet-4-5": _LONG_SONNET}


def card(name: str, cards: Iterable[ModelCard] = CARDS, *, window: int | None = None) -> ModelCard:
    """The card of a model by name, dated name or alias; `window` overrides the window. Raises `BadInput` if it is unknown."""
    known = tuple(cards)
    found = find_card(name, known)
    if found is None:
        names = ", ".join(model.name for model in known)
        raise BadInput(f"no card is known for the model {name!r}; known are {names}, openai-compatible/NAME and local/NAME", where="model")
    return found if window is None else resized(found, window)


def find_card(name: str, cards: Iterable[ModelCard] = CARDS) -> ModelCard | None:
    """The card of a model by name, dated name or alias; `None` if it has none."""
    known = {model.name: model for model in cards}
    return known.get(name) or _generic(name) or _alias(name, known)


def recorded_card(name: str, cards: Iterable[ModelCard] = CARDS) -> ModelCard:
    """The card of a model that a log names. An unknown one gets the facts of its stand-in, but no prices."""
    known = tuple(cards)
    found = find_card(name, known)
    if found is not None:
        return found
    other = stand_in(name, known)
    api_name = name if is_generic(other) else parse_model_name(name).api_name or parse_model_name(name).card
    return replace(other, name=name, api_name=api_name, prices=Prices())


def has_card(name: str, cards: Iterable[ModelCard] = CARDS) -> bool:
    """Whether a model has a card of its own."""
    return find_card(name, cards) is not None


def stand_in(name: str, cards: Iterable[ModelCard] = CARDS) -> ModelCard:
    """The card that stands in for a model without one: that whose name begins with most of the same words.

    Of several it is the one with the shortest name, and of those the last, which is the newest. If no name begins with the same word, it
    is the card of an OpenAI-compatible server.
    """
    wanted = parse_model_name(name).card
    alike = [model for model in cards if model.name.partition("-")[0] == wanted.partition("-")[0]]
    nearest = max(reversed(alike), key=lambda model: (_shared_words(model.name, wanted), -len(model.name)), default=None)
    return nearest or _generic(f"openai-compatible/{name}") or _GENERIC_CARDS["openai-compatible"]


def _shared_words(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one.split("-"), other.split("-"), strict=False)))


def stand_in_note(name: str, cards: Iterable[ModelCard] = CARDS) -> str:
    """A line that says which card stands in for a model that a log names; empty if the model has one of its own."""
    known = tuple(cards)
    if has_card(name, known):
        return ""
    found = stand_in(name, known)
    model = "an OpenAI-compatible server" if is_generic(found) else found.name
    facts = f"wire {found.wire}, window {found.window:,} tokens, price unknown"
    return f"no card is known for the model {name!r}; that of {model} stands in: {facts}"


def is_generic(model: ModelCard) -> bool:
    """Whether a card is the generic one of its provider."""
    return model.provider in _GENERIC_CARDS


def resized(model: ModelCard, window: int) -> ModelCard:
    """The card with another window; the reply limit becomes at most half of it."""
    limit = None if model.input_limit is None else min(model.input_limit, window)
    return replace(model, window=window, reply=min(model.reply, max(1, window // 2)), input_limit=limit)


def _generic(name: str) -> ModelCard | None:
    provider, _, model = name.partition("/")
    if not model or provider not in _GENERIC_CARDS:
        return None
    found = replace(_GENERIC_CARDS[provider], name=name, api_name=model)
    # Mistral refuses a system message after a reply or a result.
    is_mistral = provider == "openai-compatible" and _MISTRAL.search(model.lower())
    return replace(found, call_ids="mistral", system_messages=False) if is_mistral else found


def _alias(name: str, known: dict[str, ModelCard]) -> ModelCard | None:
    name_parts = parse_model_name(name)
    found = known.get(name_parts.card)
    if found is None:
        return None
    found = replace(found, api_name=name_parts.api_name or found.api_name or found.name)
    if "-chat" in found.api_name:
        # The models of the chat application write less, and refuse a higher limit.
        found = replace(found, reply=min(found.reply, _CHAT_REPLY))
    if not name_parts.long:
        return found
    if found.family != "claude":
        return None
    prices = replace(found.prices, long=found.prices.long or _LONG_PRICES.get(found.name))
    # A separate name, so that a resumed session finds the same window and prices.
    return replace(found, name=found.name + _LONG_SUFFIX, window=_MILLION, prices=prices)
