"""What the strict double knows of each model by its name: a table of its own, which shares nothing with the cards."""

import re
from typing import Final, Literal, NamedTuple

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
