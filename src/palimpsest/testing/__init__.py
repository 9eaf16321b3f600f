"""Contract tests for authors of profiles, policies, stores, providers and readers, and a strict double of the providers."""

from palimpsest.testing.laws import BlobsContract, ContractBroken, HomeContract, ProviderContract, ReaderContract, StoreContract, check
from palimpsest.testing.profiles import PolicyContract, ProfileContract
from palimpsest.testing.strict.answers import ScriptedFailure, ScriptedReply, StrictRecord, StrictRequest
from palimpsest.testing.strict.binding import BindingWords
from palimpsest.testing.strict.provider import StrictProvider, calls, says, thinks

__all__ = [
    "BindingWords",
    "BlobsContract",
    "ContractBroken",
    "HomeContract",
    "PolicyContract",
    "ProfileContract",
    "ProviderContract",
    "ReaderContract",
    "ScriptedFailure",
    "ScriptedReply",
    "StoreContract",
    "StrictProvider",
    "StrictRecord",
    "StrictRequest",
    "calls",
    "check",
    "says",
    "thinks",
]
