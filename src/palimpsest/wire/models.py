"""Model cards with windows, limits and prices, and the dollars of calls, where an unknown price is `None`."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from operator import add
from typing import Final, NamedTuple, Self

from msgspec.structs import asdict, astuple, replace

from palimpsest.core.errors import BadInput
from palimpsest.core.events import Usage
from palimpsest.core.items import Value
from palimpsest.core.plans import LONG_SUFFIX
from palimpsest.core.plans import LongPrices as LongPrices
from palimpsest.core.plans import ModelCard as ModelCard
from palimpsest.core.plans import Prices as Prices
from palimpsest.core.plans import ThinkingMode as ThinkingMode
from palimpsest.core.plans import WireName as WireName
from palimpsest.core.spending import Ledger, Spending
from palimpsest.core.text import lazy_pattern

# Modules that stood below this one in 0.2 are found by `palimpsest.old_names`.
__path__: list[str] = []

DEFAULT_MODEL: Final = "claude-sonnet-4-6"
"""Model of a new session if none is named anywhere."""

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
    "gpt-5.6": "gpt-5.6-sol",
    "grok-build-latest": "grok-4.5",
    "deepseek-flash": "deepseek-v4-flash",
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
    full_name = name.removesuffix(LONG_SUFFIX)
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


_MILLION: Final = 1_000_000
_CHAT_REPLY: Final = 16_384
_CLAUDE = ModelCard(
    "",
    "anthropic",
    "anthropic",
    200_000,
    0,
    family="claude",
    documents=True,
    thinking="budget",
    cache="breakpoints",
    cache_edits=True,
    call_ids="claude",
    diagnoses_cache=True,
)
_CLAUDE_4_6 = replace(_CLAUDE, window=_MILLION, reply=128_000, thinking="adaptive", prefill=False, compaction="demand")
_CLAUDE_4_7 = replace(_CLAUDE_4_6, sampling=False)
_CLAUDE_5 = replace(_CLAUDE_4_7, thinks_unasked=True, default_effort="high", cache_minimum=512, system_messages=True)
_BOUND = replace(_CLAUDE_5, binds_thinking=True)
# Older models reject more than this window.
_GPT = ModelCard(
    "", "responses", "openai", 272_000, 128_000, family="gpt", input_limit=272_000, documents=True, thinking="adaptive", cache="automatic"
)
_GPT_STEP: Final = 272_000
_GPT_5_4 = replace(_GPT, chat_tools="unthinking")
_GPT_LONG = replace(_GPT_5_4, window=1_050_000, input_limit=None)
_GPT_6 = replace(_GPT_5_4, window=1_050_000, input_limit=922_000, compaction="demand", drops_reasoning=True, diagnoses_cache=True)
_GROK = ModelCard("", "responses", "xai", 500_000, 64_000, family="grok", thinking="adaptive", cache="automatic")
_CHAT = ModelCard("", "chat", "", _MILLION, 128_000, thinking="adaptive", images=False, cache="automatic")
_GENERIC_CARDS: Mapping[str, ModelCard] = {
    "openai-compatible": ModelCard("", "chat", "openai-compatible", 128_000, 8_192, images=False, cache="automatic"),
    # The chat templates of many local models reject a system message that is not the first.
    "local": ModelCard("", "chat", "local", 8_192, 2_048, images=False, cache="automatic", cache_minimum=1, system_messages=False),
}
_MISTRAL = lazy_pattern(r"(?:mi|dev|code|mag|mini)stral")


def _claude(of: ModelCard, name: str, dollars: tuple[float, float], *, read: float = 0.1, **changes: object) -> ModelCard:
    """The card of a Claude model that differs by `changes` from another; `read` is the price of a cache read relative to input."""
    return replace(of, name=name, prices=_claude_prices(*dollars, read), **changes)


def _claude_prices(cost_in: float, cost_out: float, read: float = 0.1) -> Prices:
    return Prices(cost_in, cost_out, *_cache_prices(cost_in, read))


def _gpt(
    name: str,
    dollars: tuple[float, float],
    of: ModelCard = _GPT,
    *,
    read: float | None = 0.1,
    writes: bool = False,
    **changes: object,
) -> ModelCard:
    """The card of a GPT model; `read` is the price of a cache read relative to input, and `writes` whether cache writes are billed.

    A write costs 1.25 times the input for 30 minutes, and 2.5 times for 12 hours. Models with a window above the step cost more there:
    twice as much for input and cache, and one and a half times for output.
    """
    cost_in, cost_out = dollars
    read_price = None if read is None else _round(cost_in * read)
    short, long = (_round(cost_in * 1.25), _round(cost_in * 2.5)) if writes else (None, None)
    prices = Prices(cost_in, cost_out, read_price, short, long)
    if of.window > _GPT_STEP:
        prices = replace(prices, long=_long(prices, _GPT_STEP, 2, 1.5))
    return replace(of, name=name, prices=prices, **changes)


def _chat(
    provider: str,
    name: str,
    prices: Prices,
    window: int = _MILLION,
    reply: int = 128_000,
    **changes: object,
) -> ModelCard:
    return replace(_CHAT, name=name, provider=provider, prices=prices, window=window, reply=reply, **changes)


def _long(prices: Prices, above: int, times_in: float, times_out: float) -> LongPrices:
    """Prices of long prompts as multiples of the usual ones."""
    cache = (prices.cache_read, prices.cache_write, prices.cache_write_long)
    raised = (None if price is None else _round(price * times_in) for price in cache)
    return LongPrices(above, _round(prices.input * times_in), _round(prices.output * times_out), *raised)


def _with_long(prices: Prices, above: int, times_in: float, times_out: float) -> Prices:
    return replace(prices, long=_long(prices, above, times_in, times_out))


def _cache_prices(cost_in: float, read: float = 0.1) -> tuple[float, float, float]:
    """Prices of a cache read, a write for 5 minutes and a write for 1 hour, relative to input as Anthropic sets them."""
    return _round(cost_in * read), _round(cost_in * 1.25), _round(cost_in * 2)


def _round(dollars: float) -> float:
    return round(dollars, 6)


_UNFORCED = replace(_BOUND, forced_tools=False)
_ALWAYS = replace(_CLAUDE_5, thinking="always")
_ALWAYS_BOUND = replace(_UNFORCED, thinking="always")
# Thinking of other models that a bound model reads, as far as it is known.
_OLDER_THINKING: Final = (
    *("claude-sonnet-4", "claude-sonnet-4-5", "claude-sonnet-4-6", "claude-haiku-4-5"),
    *("claude-opus-4", "claude-opus-4-1", "claude-opus-4-5", "claude-opus-4-6", "claude-opus-4-7", "claude-opus-4-8"),
)

CARDS: tuple[ModelCard, ...] = (
    _claude(_CLAUDE, "claude-3-5-sonnet", (3, 15), reply=8_192, cache_edits=False, api_name="claude-3-5-sonnet-20241022", thinking="none"),
    _claude(
        _CLAUDE,
        "claude-3-5-haiku",
        (0.8, 4),
        reply=8_192,
        cache_edits=False,
        cache_minimum=2048,
        api_name="claude-3-5-haiku-20241022",
        thinking="none",
    ),
    _claude(_CLAUDE, "claude-3-7-sonnet", (3, 15), reply=64_000, cache_edits=False, api_name="claude-3-7-sonnet-20250219"),
    _claude(_CLAUDE, "claude-sonnet-4", (3, 15), reply=64_000, api_name="claude-sonnet-4-20250514"),
    _claude(_CLAUDE, "claude-sonnet-4-5", (3, 15), reply=64_000),
    _claude(_CLAUDE_4_6, "claude-sonnet-4-6", (3, 15)),
    _claude(_CLAUDE_5, "claude-sonnet-5", (2, 10), cache_minimum=1024, system_messages=False),
    replace(
        _UNFORCED,
        name="claude-sonnet-5-5",
        prices=replace(_claude_prices(2, 10, 0.05), since="2026-10-07", before=_claude_prices(2, 10)),
        thinking_off="between_tools",
        reads_thinking=("claude-sonnet-5", *_OLDER_THINKING),
    ),
    _claude(_CLAUDE, "claude-opus-4", (15, 75), reply=32_000, api_name="claude-opus-4-20250514"),
    _claude(_CLAUDE, "claude-opus-4-1", (15, 75), reply=32_000),
    _claude(_CLAUDE, "claude-opus-4-5", (5, 25), reply=64_000, cache_minimum=4096),
    _claude(_CLAUDE_4_6, "claude-opus-4-6", (5, 25), cache_minimum=4096),
    _claude(_CLAUDE_4_7, "claude-opus-4-7", (5, 25), cache_minimum=2048),
    _claude(_CLAUDE_4_7, "claude-opus-4-8", (5, 25), system_messages=True),
    _claude(_CLAUDE_5, "claude-opus-5", (5, 25)),
    _claude(
        _ALWAYS_BOUND,
        "claude-opus-5-5",
        (4, 20),
        read=0.05,
        default_effort="medium",
        reads_thinking=("claude-opus-5", "claude-sonnet-5-5", *_OLDER_THINKING),
    ),
    _claude(_ALWAYS, "claude-fable-5", (10, 50)),
    _claude(
        _ALWAYS_BOUND,
        "claude-fable-5-1",
        (10, 50),
        read=0.025,
        reads_thinking=("claude-opus-5", "claude-opus-5-5", *_OLDER_THINKING),
    ),
    _claude(_ALWAYS_BOUND, "claude-fable-5-2", (8, 40), read=0.025),
    _claude(_ALWAYS, "claude-mythos-5", (10, 50)),
    _claude(_ALWAYS_BOUND, "claude-mythos-5-1", (10, 50), read=0.025),
    _claude(_ALWAYS_BOUND, "claude-mythos-5-2", (8, 40), read=0.025, reads_thinking=("claude-fable-5-2",)),
    _claude(_CLAUDE, "claude-haiku-4-5", (1, 5), reply=64_000, cache_minimum=4096),
    replace(
        _BOUND,
        name="claude-haiku-5-5",
        prices=_with_long(_claude_prices(0.1, 0.5), 100_000, 5, 5),
        default_effort="medium",
    ),
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
    _gpt("gpt-5.4", (2.5, 15), _GPT_LONG),
    _gpt("gpt-5.4-mini", (0.75, 4.5), _GPT_5_4),
    _gpt("gpt-5.4-nano", (0.2, 1.25), _GPT_5_4),
    _gpt("gpt-5.4-pro", (30, 180), _GPT_5_4, read=None),
    _gpt("gpt-5.5", (5, 30), _GPT_LONG),
    _gpt("gpt-5.5-pro", (30, 180), _GPT_5_4, read=None),
    _gpt("gpt-5.6-sol", (4, 20), _GPT_6, writes=True, drops_reasoning=False),
    _gpt("gpt-5.6-terra", (2, 12), _GPT_6, writes=True, drops_reasoning=False),
    _gpt("gpt-5.6-luna", (0.2, 1.2), _GPT_6, writes=True, drops_reasoning=False),
    _gpt("gpt-6-astra", (10, 50), _GPT_6, writes=True, sampling=False, default_effort="low", least_effort="low", chat_tools="never"),
    _gpt("gpt-6-sol", (2, 10), _GPT_6, writes=True),
    _gpt("gpt-6-luna", (0.1, 0.5), _GPT_6, writes=True),
    _gpt("gpt-6.1-sol", (2, 10), _GPT_6, writes=True, read=0.05),
    _gpt("gpt-6.1-terra", (1, 5), _GPT_6, writes=True, read=0.05),
    replace(_GROK, name="grok-4.5", prices=_with_long(Prices(2, 6, 0.3), 200_000, 2, 2)),
    replace(_GROK, name="grok-4.6", prices=_with_long(Prices(2, 6, 0.5), 200_000, 2, 2)),
    replace(_GROK, name="grok-4.7", prices=_with_long(Prices(2, 6, 0.5), 200_000, 2, 2)),
    _chat("google", "gemini-3.1-pro-preview", _with_long(Prices(2, 12, 0.2), 200_000, 2, 1.5), 1_048_576, 65_536, images=True),
    _chat(
        "google",
        "gemini-3.8-flash",
        Prices(1.5, 7.5, 0.15, since="2027-01-01", before=Prices(0.75, 3.75, 0.075)),
        1_048_576,
        65_536,
        images=True,
    ),
    _chat(
        "google",
        "gemini-4-argon",
        Prices(4, 20, 0.2, since="2026-12-01", before=Prices(2, 10, 0.1)),
        1_048_576,
        65_536,
        images=True,
    ),
    # Those of the peak, 01-04 and 06-10 UTC; half of it at other hours.
    _chat("deepseek", "deepseek-v4-pro", Prices(1.32, 3.96, 0.044), reply=393_216),
    _chat("deepseek", "deepseek-v4-flash", Prices(0.3, 1.2, 0.006), reply=393_216),
    _chat("moonshot", "kimi-k2.7-code", Prices(0.95, 4, 0.19), 262_144),
    _chat("moonshot", "kimi-k3", Prices(3, 15, 0.3, 3, 6), 1_048_576, images=True),
    _chat("moonshot", "kimi-k3.1-pro", Prices(2, 10, 0.2, 2, 4), 1_048_576, images=True),
    _chat("zai", "glm-5.3", Prices(1.4, 4.4, 0.26)),
    _chat("zai", "glm-5.3-flash", Prices(0.15, 0.5, 0.03)),
    _chat("alibaba", "qwen3.8-max", Prices(2, 6, 0.25), 991_808, 131_072),
    _chat("alibaba", "qwen3.8-flash", Prices(0.15, 0.47, 0.016), 991_808, 131_072),
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
    parsed = parse_model_name(name)
    other = replace(other, name=name, api_name=name if is_generic(other) else parsed.api_name or parsed.card, prices=Prices())
    if other.family != "claude" or not _may_be_newer(parsed.card):
        return other
    # Only what every model accepts is sent to one that is newer than its stand-in.
    return replace(
        other,
        thinking="always",
        thinks_unasked=True,
        forced_tools=False,
        sampling=False,
        prefill=False,
        system_messages=False,
        compaction="none",
        binds_thinking=True,
        reads_thinking=(),
    )


def has_card(name: str, cards: Iterable[ModelCard] = CARDS) -> bool:
    """Whether a model has a card of its own."""
    return find_card(name, cards) is not None


def stand_in(name: str, cards: Iterable[ModelCard] = CARDS) -> ModelCard:
    """The card that stands in for a model without one: the newest of the same line that is not newer than the model, else the oldest.

    A line follows from the words of the name, such as `claude` and `haiku`. Without a card of the first word it is the card of an
    OpenAI-compatible server.
    """
    wanted = _version_and_words(parse_model_name(name).card)
    alike = [(model, _version_and_words(model.name)) for model in cards]
    alike = [(model, parts) for model, parts in alike if wanted.words[:1] and parts.words[:1] == wanted.words[:1]]
    nearest = max(reversed(alike), key=lambda pair: _likeness(pair[1], wanted), default=None)
    return nearest[0] if nearest is not None else _generic(f"openai-compatible/{name}") or _GENERIC_CARDS["openai-compatible"]


class _NameParts(NamedTuple):
    version: tuple[int, ...]
    words: tuple[str, ...]


_WORD_OR_NUMBER = lazy_pattern(r"[a-z]+|\d+")


def _version_and_words(name: str) -> _NameParts:
    """The numbers and the words of a model name, each in their order: `claude-opus-4-8` has the version 4.8."""
    tokens = _WORD_OR_NUMBER.findall(name.lower())
    numbers = [int(token) for token in tokens if token.isdigit()]
    words = tuple(token for token in tokens if not token.isdigit())
    return _NameParts((*numbers, 0, 0)[:3] if numbers else (), words)


def _likeness(found: _NameParts, wanted: _NameParts) -> tuple[int, bool, tuple[int, ...], int]:
    """How well a card fits a model: by shared words, then by age, then by words that the model does not have."""
    shared = len(set(found.words) & set(wanted.words))
    other_words = len(set(found.words) - set(wanted.words))
    is_older = not wanted.version or found.version <= wanted.version
    age = found.version if is_older else tuple(-number for number in found.version)
    return shared, is_older, age, -other_words


# The newest Claude models whose thinking is not bound to its prefix.
_LAST_UNBOUND: Final = (5, 0, 0)


def _may_be_newer(name: str) -> bool:
    """Whether a Claude model without a card may be one of those that bind their thinking: by its version, or as the first of a new line."""
    version, words = _version_and_words(name)
    lines = {word for model in CARDS if model.family == "claude" for word in _version_and_words(model.name).words[1:]}
    return not version or version > _LAST_UNBOUND or (len(words) > 1 and lines.isdisjoint(words))


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
    return replace(found, name=found.name + LONG_SUFFIX, window=_MILLION, prices=prices)


_PER: Final = 1_000_000
_DAY_SECONDS: Final = 86_400
# The day before the year 10000; a clock that runs wild must not make a session unreadable.
_LAST_DAY: Final = 2_932_896


class Cost(Value, frozen=True):
    """Dollars by part of `Usage`; reasoning counts as output."""

    input: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0
    cache_write_long: float = 0.0
    output: float = 0.0

    @property
    def total(self) -> float:
        """The sum of all parts."""
        return self.input + self.cache_read + self.cache_write + self.cache_write_long + self.output

    def __add__(self, other: Self) -> Self:
        return type(self)(*map(add, astuple(self), astuple(other)))

    def parts(self) -> dict[str, float]:
        """The parts by name."""
        return asdict(self)


FREE: Final = Cost()


class Tariff(Value, frozen=True):
    """The known prices of a model on one day."""

    prices: Prices

    @classmethod
    def of(cls, card: ModelCard | None, day: str = "") -> Self | None:
        """The tariff of a model on a day (ISO 8601; default: as the card has it); `None` if its prices are not known."""
        prices = None if card is None else card.prices.on(day) if day else card.prices
        return cls(prices) if prices is not None and prices.are_known else None

    def bill(self, usage: Usage, prompt: int | None = None) -> Cost:
        """What one call costs, or several whose prompts are all as long as `prompt` to `PRICE_STEPS` (default: that of the usage)."""
        listed = self.prices
        size = usage.prompt if prompt is None else prompt
        prices = listed.long if listed.long is not None and size > listed.long.above else listed
        write = prices.input if prices.cache_write is None else prices.cache_write
        return Cost(
            usage.input * prices.input / _PER,
            usage.cache_read * (prices.input if prices.cache_read is None else prices.cache_read) / _PER,
            usage.cache_write * write / _PER,
            usage.cache_write_long * (write if prices.cache_write_long is None else prices.cache_write_long) / _PER,
            usage.output * prices.output / _PER,
        )

    def usd(self, input_tokens: float) -> float:
        """Dollars of an amount in input tokens, the unit in which edits are weighed."""
        return input_tokens * self.prices.input / _PER

    def input_tokens(self, usd: float) -> float:
        """How many input tokens cost so many dollars. Raises `ZeroDivisionError` for a free model."""
        return usd * _PER / self.prices.input


def cost(usage: Usage, model: ModelCard | Prices) -> Cost | None:
    """The cost of one call at the newest prices of a model; `None` if they are not known."""
    prices = model if isinstance(model, Prices) else model.prices
    return Tariff(prices).bill(usage) if prices.are_known else None


def simulated_cost(usage: Usage, model: ModelCard | Prices) -> Cost:
    """The cost of a simulated call, which is nothing without known prices: for callers that have looked whether there are any."""
    return Tariff(model if isinstance(model, Prices) else model.prices).bill(usage)


def priced_card(model: str, asked: str, cards: tuple[ModelCard, ...]) -> ModelCard | None:
    """The card that a call is billed by: that of the model that replied, or of the asked one if the reply is its or names no known one.

    Prices that the user wrote for the asked model hold whatever model a proxy names.
    """
    called = find_card(asked, cards) if asked else None
    if called is not None and model in ("", asked, called.api_name):
        return called
    if called is not None and Tariff.of(called) is not None:
        prices = called.prices.later or called.prices
        if not any(_is_listed(prices, known.prices) for known in CARDS):
            return called
    if called is not None and parse_model_name(model).card == parse_model_name(called.api_name or called.name).card:
        return called
    replied = find_card(model, cards) if model else None
    return called if called is not None and Tariff.of(replied) is None else replied


def _is_listed(prices: Prices, listed: Prices | None) -> bool:
    """Whether prices are those of a card, or were so before a change."""
    while listed is not None and listed != prices:
        listed = listed.before
    return listed is not None


class PriceBook:
    """The tariffs of all known models, each looked up once."""

    def __init__(self, cards: Iterable[ModelCard] = CARDS) -> None:
        self._cards = tuple(cards)
        self._known: dict[tuple[str, str, int], Tariff | None] = {}

    def ledger_usd(self, ledger: Ledger) -> float | None:
        """Dollars of a whole log; also `None` if it has replies and none of them reports usage, as in files of some programs."""
        return None if ledger.calls and not ledger.usage.total else self.usd(ledger.spendings)

    def usd(self, spendings: Iterable[Spending]) -> float | None:
        """Dollars of calls as a ledger has them, each at its own price; `None` if the price or the usage of one of them is unknown."""
        bills = map(self.bill, spendings)
        return total_usd(None if bill is None else bill.total for bill in bills)

    def bill(self, spending: Spending) -> Cost | None:
        """What calls that one price holds for cost; `None` if their price or the usage of one of them is unknown."""
        if spending.unmeasured:
            return None
        if not spending.usage.total:
            # Lines of other programs that are no calls, such as their own error messages.
            return FREE
        tariff = self._tariff(spending.model, spending.asked, spending.day)
        return None if tariff is None else tariff.bill(spending.usage, spending.above + 1)

    def _tariff(self, model: str, asked: str, day: int) -> Tariff | None:
        key = (model, asked, day)
        if key not in self._known:
            self._known[key] = Tariff.of(priced_card(model, asked, self._cards), _iso_day(day))
        return self._known[key]


def price_day(now: int) -> str:
    """The UTC day whose prices hold at a time in milliseconds, as ISO 8601."""
    return _iso_day(now // (1_000 * _DAY_SECONDS))


def _iso_day(day: int) -> str:
    return datetime.fromtimestamp(max(0, min(day, _LAST_DAY)) * _DAY_SECONDS, UTC).date().isoformat()


def at_prices_of(card: ModelCard, day: str) -> ModelCard:
    """The card with the prices of a day (ISO 8601) and, for the calls of other days, all others."""
    newest = card.prices.later or card.prices
    found = newest.on(day)
    return card if found is card.prices else replace(card, prices=found if found is newest else replace(found, later=newest))


def total_usd(parts: Iterable[float | None]) -> float | None:
    """The sum of amounts; `None` if one of them is unknown."""
    total = 0.0
    for part in parts:
        if part is None:
            return None
        total += part
    return total
