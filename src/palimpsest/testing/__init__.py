"""Contract tests for authors of profiles, policies, stores, providers and readers, as classes that pytest collects or `check` runs."""

from palimpsest.testing.laws import ContractBroken, check
from palimpsest.testing.profiles import PolicyContract, ProfileContract
from palimpsest.testing.providers import ProviderContract
from palimpsest.testing.readers import ReaderContract
from palimpsest.testing.stores import BlobsContract, StoreContract

__all__ = [
    "BlobsContract",
    "ContractBroken",
    "PolicyContract",
    "ProfileContract",
    "ProviderContract",
    "ReaderContract",
    "StoreContract",
    "check",
]
