"""The contracts that are shipped: ours keep them, and what breaks a law is found."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from store_kinds import BLOBS, STORES
from tiny_format import Tiny, written

from palimpsest.core.deltas import Delta, TextDelta
from palimpsest.core.errors import Locked
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Mask, Text
from palimpsest.core.plans import Moment, Plan, Policy, Proposal, Situation
from palimpsest.core.ports import BlobStore, Provider, Sendable, SessionStore
from palimpsest.exchange.transcript import Format
from palimpsest.policies.named import PROFILES, profile
from palimpsest.policies.profile import Profile
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.in_memory import MemoryFile, MemorySessions
from palimpsest.testing.laws import BlobsContract, ContractBroken, ProviderContract, ReaderContract, StoreContract, check
from palimpsest.testing.profiles import PolicyContract, ProfileContract


class OfProfile(ProfileContract):
    def __init__(self, name: str) -> None:
        self._name = name

    def make(self) -> Profile:
        return profile(self._name)


@pytest.mark.parametrize("name", [name for name in PROFILES if name in ("none", "classroom")])
def test_profiles_of_ours_keep_the_shipped_laws(name: str) -> None:
    assert len(check(OfProfile(name))) == 7


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in PROFILES if name not in ("none", "classroom")])
def test_the_larger_profiles_of_ours_keep_the_shipped_laws(name: str) -> None:
    assert len(check(OfProfile(name))) == 7


class HidesAnything:
    """A policy that breaks laws: it masks pinned results too, and one more each time it is run."""

    name = "hides_anything"
    moments: frozenset[Moment] = frozenset({"before_call"})
    shrinks = True

    def plan(self, situation: Situation) -> Plan:
        items = [item for item in situation.view.items if item.kind == "result" and item.mask is None]
        large = [item.id for item in items if situation.tokens.item(item) > 100]
        return Proposal((Mask((large[0],), "[gone]"),), "one more") if large else ()


class OfPolicy(PolicyContract):
    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def make_policy(self) -> Policy:
        return self._policy


class TestAPolicyThatBreaksLaws(PolicyContract):
    def make_policy(self) -> Policy:
        return HidesAnything()

    def test_a_shrinking_policy_never_grows_the_view_and_a_second_look_rests(self) -> None:
        with pytest.raises(ContractBroken, match="edits again when it is run twice at before_call"):
            super().test_a_shrinking_policy_never_grows_the_view_and_a_second_look_rests()

    def test_no_proposal_is_refused(self) -> None:
        class Separates(HidesAnything):
            def plan(self, situation: Situation) -> Plan:
                return Proposal((Mask((next(item.id for item in situation.view.items if item.kind == "result"),)),), "half of a pair")

        with pytest.raises(ContractBroken, match="would be separated from its call or result"):
            OfPolicy(Separates()).test_no_proposal_is_refused()


def test_a_plan_that_differs_from_time_to_time_is_found() -> None:
    class Counts(HidesAnything):
        runs = 0

        def plan(self, situation: Situation) -> Plan:
            Counts.runs += 1
            return Proposal((Mask((situation.view.items[0].id,)),), f"run {Counts.runs}")

    with pytest.raises(ContractBroken, match="two plans of hides_anything at before_call"):
        OfPolicy(Counts()).test_the_same_situation_gives_the_same_plan()


class OfStore(StoreContract):
    def __init__(self, make: Callable[[Path], SessionStore], folder: Path) -> None:
        self._make, self._folder, self._count = make, folder, 0

    def make(self) -> SessionStore:
        self._count += 1
        return self._make(self._folder / str(self._count))


@pytest.mark.parametrize("kind", STORES)
def test_every_store_of_ours_keeps_the_shipped_laws(kind: str, tmp_path: Path) -> None:
    assert len(check(OfStore(STORES[kind], tmp_path))) == 7


def test_a_store_that_lets_two_write_is_found() -> None:
    class Careless(MemorySessions):
        def open(self, session: str, *, write: bool = False) -> MemoryFile:
            try:
                return super().open(session, write=write)
            except Locked:
                return super().open(session)

    with pytest.raises(ContractBroken, match="a second writer: returned"):
        OfStore(lambda _: Careless(), Path()).test_one_writes_and_many_read()


class OfBlobs(BlobsContract):
    def __init__(self, make: Callable[[Path], BlobStore], folder: Path) -> None:
        self._make, self._folder, self._count = make, folder, 0

    def make(self) -> BlobStore:
        self._count += 1
        return self._make(self._folder / str(self._count))


@pytest.mark.parametrize("kind", BLOBS)
def test_every_blob_store_of_ours_keeps_the_shipped_laws(kind: str, tmp_path: Path) -> None:
    assert len(check(OfBlobs(BLOBS[kind], tmp_path))) == 2


class TestScripted(ProviderContract):
    def make(self) -> Provider:
        return Scripted("Hello, you.", "Hello again.")


def test_a_provider_whose_deltas_say_something_else_is_found() -> None:
    class Mumbles:
        async def stream(self, request: Sendable) -> AsyncIterator[Delta | ModelReplied]:
            yield TextDelta("hm")
            yield ModelReplied((Text("Hello", "assistant"),))

    class Contract(ProviderContract):
        def make(self) -> Provider:
            return Mumbles()

    with pytest.raises(ContractBroken, match="the deltas give 'hm', the reply 'Hello'"):
        check(Contract())


class TestTiny(ReaderContract):
    def make(self) -> Format:
        return Tiny()

    def write_session(self, folder: Path) -> Path:
        lines = ({"kind": "user", "text": "hello", "id": "a"}, {"kind": "reply", "text": "hi", "id": "b"})
        return written(folder / "one.tiny", *lines)


def test_a_reader_that_brings_new_events_each_time_is_found() -> None:
    class Forgetful(TestTiny):
        def write_session(self, folder: Path) -> Path:
            path = super().write_session(folder)
            path.write_text("not a line of this program\n")
            return path

    with pytest.raises(ContractBroken, match="problems"):
        Forgetful().test_a_session_is_found_and_read_into_a_log_that_verifies()


def test_the_contracts_need_no_pytest() -> None:
    program = "import sys, palimpsest.testing; print([name for name in ('pytest', 'hypothesis') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=dict(os.environ))
    assert done.stdout == "[]\n"
