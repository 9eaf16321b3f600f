"""A log that several threads use, and one whose projections are interrupted: no event is lost, and the file is whole."""

import sys
from collections.abc import Iterator
from threading import Barrier, RLock, Thread
from typing import ClassVar

import pytest

from palimpsest.core.events import CallStarted, Event, ModelReplied, SessionOpened, UserSaid, UserTyped
from palimpsest.core.items import Text
from palimpsest.core.log import CHECKPOINT_EVERY, Log
from palimpsest.core.verify import verify
from palimpsest.core.view import Projection, Scope
from palimpsest.core.view_projection import ViewProjection
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions


def new_log(store: MemorySessions) -> Log:
    return Log.create(store, SessionOpened("s"), FixedClock(1, 1))


def rebuilt(store: MemorySessions) -> Log:
    """The log as its lines alone give it."""
    copied = MemorySessions()
    lines = b"".join(chunk for _, chunk in store.open("s").chunks())
    copied.create("s", lines).close()
    return Log.open(copied, "s", FixedClock(1, 1), whole=True)


@pytest.fixture
def eager_switching() -> Iterator[None]:
    """Threads take turns as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_switching")
def test_no_input_from_another_thread_is_lost_during_turns() -> None:
    store = MemorySessions()
    log = new_log(store)
    log.share(RLock())
    started = Barrier(3)

    def type_much() -> None:
        started.wait()
        for number in range(300):
            log.append(UserTyped((Text(f"typed {number}"),)))

    def read_much() -> None:
        started.wait()
        for _ in range(300):
            assert log.view.seq <= log.tip
            assert len(log.inbox) <= 300

    threads = [Thread(target=type_much), Thread(target=read_much)]
    for thread in threads:
        thread.start()
    started.wait()
    for number in range(100):
        call = log.append(CallStarted("m", "chat")).seq
        log.append(ModelReplied((Text(f"reply {number}", "assistant"),), call))
        log.sync()
    for thread in threads:
        thread.join()
    log.close()
    again = rebuilt(store)
    assert (again.tip, again.view, again.inbox) == (500, log.view, log.inbox)
    assert len(log.inbox) == 300
    assert verify(store, "s", MemoryBlobs()).findings == ()


class Interrupting:
    """A projection that is interrupted when it takes its second event, so many times."""

    name: ClassVar = "interrupting"
    watches: ClassVar = None
    version: ClassVar = 1
    scope: ClassVar[Scope] = "path"

    def __init__(self, times: int) -> None:
        self.taken: list[int] = []
        self.due = times

    def attach(self, _: ViewProjection) -> tuple[Projection, ...]:
        return (self,)

    def take(self, event: Event) -> None:
        if self.due and event.seq == 2:
            self.due -= 1
            raise KeyboardInterrupt
        self.taken.append(event.seq)

    def snapshot(self) -> bytes:
        return b"[]"

    def restore(self, data: bytes) -> None:
        self.taken = list(data[:0])

    def reset(self) -> None:
        self.taken = []


@pytest.mark.parametrize("times", [1, 2, 3])
def test_an_interrupt_while_projections_are_updated_loses_no_event(times: int) -> None:
    store = MemorySessions()
    log = new_log(store)
    interrupting = Interrupting(times)
    log.register(interrupting)
    for text in ("one", "two", "three"):
        log.append(UserSaid((Text(text),)))
    # The second interrupt and those after it come while all projections are rebuilt.
    for _ in range(times):
        with pytest.raises(KeyboardInterrupt):
            log.catch_up()
    log.append(UserSaid((Text("four"),)))
    assert log.view.ids == ("1.0", "2.0", "3.0", "4.0")
    assert interrupting.taken == [0, 1, 2, 3, 4]
    log.close()
    assert (rebuilt(store).view, rebuilt(store).ledger) == (log.view, log.ledger)


def test_in_a_shared_log_sync_saves_the_checkpoint_and_append_does_not() -> None:
    store = MemorySessions()
    log = new_log(store)
    log.share(RLock())
    for number in range(CHECKPOINT_EVERY + 1):
        log.append(UserSaid((Text(f"message {number}"),)))
    assert store.open("s").load_checkpoint() is None
    log.sync()
    assert store.open("s").load_checkpoint() is not None
