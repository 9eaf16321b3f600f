"""Our own profiles `palimpsest`, `lossless`, `gateway` and `gateway-thrifty`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Final

from msgspec import structs
from msgspec.structs import replace as lossless_replace

from palimpsest.core.budget import Budget
from palimpsest.core.errors import BadInput
from palimpsest.core.plans import Policy
from palimpsest.core.truncate import PREVIEW_ABOVE
from palimpsest.policies.budgets import palimpsest_budget
from palimpsest.policies.clear import ClearDead, HideRepeats
from palimpsest.policies.fold import FoldFromLog, Narrate, Narrative, model_free_fallback
from palimpsest.policies.fold_parts import Bounds
from palimpsest.policies.limits import PreviewLimiter
from palimpsest.policies.notices import RemindOpen, Warn, WatchCache
from palimpsest.policies.profile import (
    Profile,
    cache_settings,
    for_any_model,
    one_of,
    parse_number,
    quoted,
    strict_number,
    thinking_rethought,
)
from palimpsest.sources.sets import our_skills, palimpsest_sources
from palimpsest.wire.models import ModelCard
from palimpsest.wire.request import Params

# Providers reject requests of more than 32 MB; images and documents reach that long before the window is full.
BYTES_AT: Final = 24_000_000
_SWITCH: Final = {"on": True, "1": True, "true": True, "yes": True, "off": False, "0": False, "false": False, "no": False}
_NARRATIVES: Final[dict[str, Narrative]] = {"off": "off", "auto": "auto", "asked": "asked"}
_COMPACTIONS: Final = ("ours", "provider", "auto")


@dataclass(frozen=True, slots=True)
class ThriftNumbers:
    """The numbers that trade money for results that have to be read again.

    cover: how many times the rent must cover the price of an edit.
    gain: least tokens that a clear frees.
    patience: factor on the age at which a result counts as dead; `reads` is that of files that were read, `None` the same.
    usual: most tokens of a result that lives as long as the table says; larger ones live shorter, and those below half of it longer.
    shrink: how many times smaller a fold must make the view.
    in_use: most tokens of results in use that such a fold hides.
    early_at, cold_at: least tokens of a view that is folded before its window is full, and of one of which nothing is cached.
    bounds: what a fold keeps.
    """

    cover: float = 1.0
    gain: int = 2_000
    patience: float = 1.0
    reads: float | None = None
    usual: int = 1_400
    shrink: float = 1.7
    early_at: int = 130_000
    cold_at: int = 60_000
    in_use: int = 60_000
    bounds: Bounds = field(default_factory=Bounds)


# Cleared eagerly and folded rarely. The ages are those of the specification. `pal bench --choose` chose the two levels of `balanced` among
# their neighbours on public sessions, and tells what levels chosen on one half of those do on the other; the rest was found by hand.
_KEPT: Final = Bounds(results=10_000, tail=5_000)
THRIFT: Final[dict[str, ThriftNumbers]] = {
    "careful": ThriftNumbers(early_at=145_000, cold_at=95_000, in_use=45_000, bounds=replace(_KEPT, calls=8_000)),
    "balanced": ThriftNumbers(bounds=_KEPT),
    "thrifty": ThriftNumbers(
        patience=0.5, early_at=90_000, cold_at=45_000, in_use=50_000, bounds=replace(_KEPT, results=9_000, calls=4_000)
    ),
}
# The bounds of each part that a fold can leave out.
_PARTS: Final = {"dialogue": ("said",), "evidence": ("evidence", "commands"), "work": ("results",), "calls": ("calls",)}


def palimpsest(environment: Mapping[str, str]) -> Profile:
    """Return the profile with its settings from the environment; raise `BadInput` for a setting that cannot be read.

    `PAL_COMPACT_AT` is the level at which a fold is due at the latest, in tokens or in percent of the window (`120000`, `60%`).
    `PAL_AUTO_COMPACT=off` folds only when asked or when a request was too long. `PAL_THRIFT` is careful, balanced or thrifty.
    `PAL_COMPACTION` is ours, provider or auto: who folds, or that price and loss decide it. `PAL_NARRATIVE` is off, asked or auto.
    `PAL_TAIL`, `PAL_MESSAGES` and `PAL_RESULTS` are the tokens that a fold keeps of the newest
    items, of the user's messages and of the working set. `PAL_WITHOUT` names parts that a fold leaves out, to see what they are worth
    (dialogue, evidence, work, calls, with `+` between them), and `PAL_NAMES` are the tokens of one that it leaves out by default: names
    that the model used itself. `PAL_PREVIEW_ABOVE` is the size in tokens above which a result is cut. `PAL_INSTRUCTIONS` is a list of
    further instruction files, patterns and URLs. `PAL_CACHE_TTL` is the lifetime of cache entries: auto, 5m or 1h; `PAL_KEEP_ALIVE=on`
    keeps the cache alive in pauses. `PAL_THINKING_RETHOUGHT` is the percentage of lost reasoning that an edit is charged for.
    """
    ours = with_numbers(THRIFT[_one_of(environment, "PAL_THRIFT", "balanced", THRIFT)], environment, reminds=True)
    choice = one_of(environment, "PAL_COMPACTION", _COMPACTIONS)
    return ours if choice == "ours" else _with_provider(ours, weighs=choice == "auto")


def _with_provider(ours: Profile, *, weighs: bool) -> Profile:
    """Return the profile with the provider's compaction before its own fold; with `weighs` price and loss decide between the two."""
    # Imported on use: it is off by default, and a start is measured in milliseconds.
    compacting = import_module("palimpsest.policies.provider_compact")
    fold = next(policy for policy in ours.policies if isinstance(policy, FoldFromLog))
    policy: Policy = compacting.ProviderCompact(fold, keeps_request=True)
    if weighs:
        policy = import_module("palimpsest.policies.provider_compact").CheaperCompaction(policy)
    place = next(place for place, each in enumerate(ours.policies) if isinstance(each, Narrate))
    return replace(ours, policies=(*ours.policies[:place], policy, *ours.policies[place:]), params=Params(dialect="openai"))


def with_numbers(numbers: ThriftNumbers, environment: Mapping[str, str], *, auto_compact: str = "on", reminds: bool = False) -> Profile:
    """Return the profile with the given numbers; settings in the environment override them and `auto_compact`.

    With `reminds` the model is reminded of open steps in its todo list.
    """
    auto = _SWITCH[_one_of(environment, "PAL_AUTO_COMPACT", auto_compact, _SWITCH)]
    bounds = replace(
        numbers.bounds,
        tail=_number(environment, "PAL_TAIL", numbers.bounds.tail),
        messages=_number(environment, "PAL_MESSAGES", numbers.bounds.messages),
        results=_number(environment, "PAL_RESULTS", numbers.bounds.results),
        names=_number(environment, "PAL_NAMES", numbers.bounds.names),
    )
    without: dict[str, Any] = {bound: 0 for part in _parts_left_out(environment) for bound in _PARTS[part]}
    bounds = replace(bounds, **without)
    narrative = _NARRATIVES[_one_of(environment, "PAL_NARRATIVE", "off", _NARRATIVES)]
    fold = FoldFromLog(
        bounds=bounds,
        cover=numbers.cover,
        shrink=numbers.shrink,
        early_at=numbers.early_at,
        cold_at=numbers.cold_at,
        in_use=numbers.in_use,
        auto=auto,
        narrative=narrative,
    )
    narrate = Narrate(fold)
    if narrative != "auto":
        # Neither does anything then, and a session without such a policy need not notice that the user is away.
        fold = replace(fold, moments=fold.moments - {"idle"})
        narrate = replace(narrate, moments=narrate.moments - {"idle"})
    clear = ClearDead(cover=numbers.cover, gain=numbers.gain, patience=numbers.patience, reads=numbers.reads, usual=numbers.usual)
    compact_at = _compact_at(environment)
    cache, jobs = cache_settings(environment)

    def budget(card: ModelCard) -> Budget:
        default = palimpsest_budget(card.window, card.reply, BYTES_AT, input_limit=card.input_limit, working=card.working_window)
        return _with_compact_at(default, compact_at) if auto else structs.replace(default, compact_at=None, buffer=0)

    return Profile(
        "palimpsest",
        (clear, narrate, fold, *((RemindOpen(),) if reminds else ()), Warn(), WatchCache()),
        budget,
        fallback=model_free_fallback(),
        strictness="full",
        parts=bounds.usual,
        limiter=for_any_model(PreviewLimiter(above=_number(environment, "PAL_PREVIEW_ABOVE", PREVIEW_ABOVE))),
        sources=palimpsest_sources(environment),
        mentioned_skills=our_skills,
        cache=cache,
        thinking_rethought=thinking_rethought(environment),
        jobs=jobs,
    )


def _with_compact_at(budget: Budget, level: str) -> Budget:
    """Return the budget with another fold level, at most the level at which requests are blocked."""
    if not level:
        return budget
    tokens = budget.window * int(level[:-1]) // 100 if level.endswith("%") else int(level)
    tokens = max(1, min(tokens, budget.block_at or tokens))
    # A user who asks for more than the working window takes its price.
    window = max(tokens, budget.window)
    warn_at = max(1, tokens - min(20_000, window // 10))
    return structs.replace(budget, window=window, compact_at=tokens, warn_at=warn_at, buffer=window - tokens)


def _compact_at(environment: Mapping[str, str]) -> str:
    text = environment.get("PAL_COMPACT_AT", "").strip()
    digits = text.removesuffix("%")
    found = parse_number(digits)
    if text and (found is None or (digits != text and found > 100)):
        raise BadInput(f"PAL_COMPACT_AT is {quoted(text)}; give a number of tokens, or a share of the window such as 60%", where="profile")
    return text


def _parts_left_out(environment: Mapping[str, str]) -> list[str]:
    parts = environment.get("PAL_WITHOUT", "").lower().replace("+", " ").split()
    unknown = [part for part in parts if part not in _PARTS]
    if unknown:
        raise BadInput(f"PAL_WITHOUT has {quoted(unknown[0])}; it can have {', '.join(_PARTS)}, with `+` between them", where="profile")
    return parts


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    found = strict_number(environment, name, least=0, wanted="a number of tokens")
    return default if found is None else found


def _one_of(environment: Mapping[str, str], name: str, default: str, known: Mapping[str, object]) -> str:
    text = environment.get(name, "").strip().lower() or default
    if text not in known:
        raise BadInput(f"{name} is {quoted(text)}; it can be {', '.join(known)}", where="profile")
    return text


def lossless(environment: Mapping[str, str]) -> Profile:
    """Return the profile with its settings from the environment; raise `BadInput` for a setting that cannot be read.

    It never folds by itself: a session ends where its window does. `PAL_CACHE_TTL` is the lifetime of cache entries: auto, 5m or 1h.
    `PAL_KEEP_ALIVE=on` keeps the cache alive in pauses. `PAL_INSTRUCTIONS` is a list of further instruction files, patterns and URLs.
    """
    cache, jobs = cache_settings(environment)
    return Profile(
        "lossless",
        (HideRepeats(), Warn(), WatchCache()),
        lambda card: lossless_replace(palimpsest_budget(card.window, card.reply, input_limit=card.input_limit), compact_at=None, buffer=0),
        fallback=model_free_fallback(),
        strictness="full",
        overflow="stop",
        sources=palimpsest_sources(environment),
        mentioned_skills=our_skills,
        cache=cache,
        jobs=jobs,
    )


# The output of a command or a search is dead once a call has passed that did not name it, so that it is cleared near the end of the
# conversation, where that breaks little of the cache. A file that was read lives as long as everywhere else, because it is often edited
# much later. Chosen by replaying public sessions of Claude Code behind a gateway, see docs/gateway.md.
_EAGER: Final = replace(THRIFT["balanced"], patience=0.0, reads=1.0)
_THRIFTY: Final = replace(THRIFT["thrifty"], patience=0.0, cover=0.3)


def gateway(environment: Mapping[str, str]) -> Profile:
    """Return the profile, which clears eagerly; the settings are those of `palimpsest`, of which `PAL_AUTO_COMPACT` is off by default."""
    return replace(with_numbers(_EAGER, environment, auto_compact="off"), name="gateway")


def gateway_thrifty(environment: Mapping[str, str]) -> Profile:
    """Return the profile that clears all that is dead without waiting, for the smallest bill."""
    return replace(with_numbers(_THRIFTY, environment, auto_compact="off"), name="gateway-thrifty")
