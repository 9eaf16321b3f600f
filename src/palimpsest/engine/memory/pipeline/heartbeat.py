"""Keeps a claim alive while its work waits for a model: renews the lease from a thread, and says whether it was lost."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from palimpsest.core.errors import PalimpsestError, StoreError
from palimpsest.stores.notes.claims import Claim, JobClaims


class Ownership:
    """Whether a claim is still held."""

    def __init__(self, claims: JobClaims, claim: Claim) -> None:
        self._claims = claims
        self._claim = claim
        self._is_lost = Event()

    def renew(self) -> bool:
        """Begin the lease again. Returns whether the claim is still held."""
        if not self._is_lost.is_set() and not self._claims.extend(self._claim):
            self._is_lost.set()
        return not self._is_lost.is_set()

    def prove(self) -> None:
        """Renew the lease before something is replaced. Raises `StoreError` if the job was taken over."""
        if not self.renew():
            raise StoreError("another process took over this job, so that nothing is replaced", where=self._claim.key)


@contextmanager
def kept_alive(claims: JobClaims, claim: Claim, seconds: float) -> Iterator[Ownership]:
    """Renew a claim every so many seconds until the block ends; 0 renews it only when it is proved."""
    ownership, is_over = Ownership(claims, claim), Event()

    def renew() -> None:
        while not is_over.wait(seconds):
            try:
                if not ownership.renew():
                    return
            except PalimpsestError:
                # A database that cannot be used now may be later; the lease is longer than several renewals.
                continue

    thread = Thread(target=renew, daemon=True, name="memory-heartbeat")
    if seconds > 0:
        thread.start()
    try:
        yield ownership
    finally:
        is_over.set()
        if thread.is_alive():
            thread.join()
