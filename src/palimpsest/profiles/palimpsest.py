"""Our own profile, the default: clear what is dead, fold from the log, check everything."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from msgspec import structs

from palimpsest.core.errors import BadInput
from palimpsest.core.tokens.budget import Budget
from palimpsest.core.tokens.truncate import PREVIEW_ABOVE
from palimpsest.policies.budgets import palimpsest_budget
from palimpsest.policies.clear.dead import ClearDead
from palimpsest.policies.fold.fold import FoldFromLog, Narrative, rung
from palimpsest.policies.fold.narrate import Narrate
from palimpsest.policies.notices import Warn, WatchCache
from palimpsest.policies.offload import OffloadPreview
from palimpsest.profiles.numbers import number, said, whole
from palimpsest.profiles.profile import Profile, for_all
from palimpsest.profiles.thrift import NUMBERS, Numbers
from palimpsest.wire.models.cards import ModelCard

# Providers refuse requests of more than 32 MB; pictures and documents reach that long before the tokens do.
BYTES_AT: Final = 24_000_000
_SWITCH: Final = {"on": True, "1": True, "true": True, "yes": True, "off": False, "0": False, "false": False, "no": False}
_NARRATIVES: Final[dict[str, Narrative]] = {"off": "off", "auto": "auto", "asked": "asked"}


def palimpsest(environment: Mapping[str, str]) -> Profile:
    """Ours, with its settings from the environment.

    `PAL_COMPACT_AT` is where a fold is due at the latest, in tokens or in percent of the window (`120000`, `60%`); `PAL_AUTO_COMPACT=off`
    folds only when asked or when a request was too long. `PAL_THRIFT` is careful, balanced or thrifty; `PAL_NARRATIVE` is off, asked or
    auto. `PAL_TAIL`, `PAL_MESSAGES` and `PAL_RESULTS` are how many tokens a fold keeps of the newest items, of the user's messages and of
    results in use. `PAL_PREVIEW_ABOVE` is the largest result that is shown whole.
    """
    return with_numbers(NUMBERS[_one_of(environment, "PAL_THRIFT", "balanced", NUMBERS)], environment)


def with_numbers(numbers: Numbers, environment: Mapping[str, str]) -> Profile:
    """Ours with any numbers, where the environment says nothing else."""
    auto = _SWITCH[_one_of(environment, "PAL_AUTO_COMPACT", "on", _SWITCH)]
    bounds = replace(
        numbers.bounds,
        tail=_number(environment, "PAL_TAIL", numbers.bounds.tail),
        messages=_number(environment, "PAL_MESSAGES", numbers.bounds.messages),
        results=_number(environment, "PAL_RESULTS", numbers.bounds.results),
    )
    narrative = _NARRATIVES[_one_of(environment, "PAL_NARRATIVE", "off", _NARRATIVES)]
    fold = FoldFromLog(bounds=bounds, cover=numbers.cover, shrink=numbers.shrink, auto=auto, narrative=narrative)
    compact_at = _level(environment)

    def budget(card: ModelCard) -> Budget:
        made = palimpsest_budget(card.window, card.reply, BYTES_AT, input_limit=card.input_limit)
        return _moved(made, compact_at) if auto else structs.replace(made, compact_at=None, buffer=0)

    return Profile(
        "palimpsest",
        (ClearDead(cover=numbers.cover, gain=numbers.gain, patience=numbers.patience), Narrate(fold), fold, Warn(), WatchCache()),
        budget,
        rung=rung(),
        strictness="full",
        parts=bounds.usual,
        arrival=for_all(OffloadPreview(above=_number(environment, "PAL_PREVIEW_ABOVE", PREVIEW_ABOVE))),
    )


def _moved(budget: Budget, level: str) -> Budget:
    """The budget with another place to fold at, never behind the one that can no more be sent."""
    if not level:
        return budget
    tokens = budget.window * int(level[:-1]) // 100 if level.endswith("%") else int(level)
    tokens = max(1, min(tokens, budget.block_at or tokens))
    warn_at = max(1, tokens - min(20_000, budget.window // 10))
    return structs.replace(budget, compact_at=tokens, warn_at=warn_at, buffer=budget.window - tokens)


def _level(environment: Mapping[str, str]) -> str:
    text = environment.get("PAL_COMPACT_AT", "").strip()
    digits = text.removesuffix("%")
    found = whole(digits)
    if text and (found is None or (digits != text and found > 100)):
        raise BadInput(f"PAL_COMPACT_AT is {said(text)}; give a number of tokens, or a share of the window such as 60%", where="profile")
    return text


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    found = number(environment, name, least=0, wanted="a number of tokens")
    return default if found is None else found


def _one_of(environment: Mapping[str, str], name: str, default: str, known: Mapping[str, object]) -> str:
    text = environment.get(name, "").strip().lower() or default
    if text not in known:
        raise BadInput(f"{name} is {said(text)}; it can be {', '.join(known)}", where="profile")
    return text
