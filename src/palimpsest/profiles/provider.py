"""The profile `provider`: the provider compacts, on demand or at a threshold, and what it hides is recorded and can be undone."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from palimpsest.policies.clear.dead import ClearDead
from palimpsest.policies.fold.fold import FoldFromLog
from palimpsest.policies.fold.narrate import Narrate
from palimpsest.policies.provider_compact import ProviderCompact, RecordCompaction
from palimpsest.profiles.palimpsest import ThriftNumbers, with_numbers
from palimpsest.profiles.profile import Profile
from palimpsest.profiles.settings import strict_number
from palimpsest.wire.request import Params

# A fold is due only when the window is nearly full, as with the programs that leave it to the provider.
_NEVER: Final = 10**11


def provider(settings: Mapping[str, str]) -> Profile:
    """Leave compaction to the provider; a fold from the log follows where it cannot or does not.

    `compaction.trigger` are the input tokens from which on the provider compacts by itself; without it, it is asked when a fold is due.
    The settings of `palimpsest` hold too; those about what a fold keeps are for the fold from the log.
    """
    ours = with_numbers(ThriftNumbers(early_at=_NEVER, cold_at=_NEVER), settings, reminds=True)
    fold = next(policy for policy in ours.policies if isinstance(policy, FoldFromLog))
    trigger = strict_number(settings, "compaction.trigger", wanted="a number of tokens")
    compacting = (*((RecordCompaction(),) if trigger is not None else ()), ProviderCompact(fold))
    kept = tuple(policy for policy in ours.policies if not isinstance(policy, ClearDead | Narrate))
    params = Params(dialect="openai", compact_at=trigger)
    return replace(ours, name="provider", policies=(*compacting, *kept), params=params, strictness="lenient")
