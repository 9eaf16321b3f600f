"""Writes a log in a child, kills the child in mid-write, looks at what is left, again and again; run as a program."""

import os
import random
import signal
import sys
import tempfile
from pathlib import Path

from palimpsest.core.errors import BadInput
from palimpsest.core.events import SessionOpened, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.log import Log
from palimpsest.core.verify import verify
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs
from palimpsest.stores.sessions import JsonlSessions


def write_until_killed(folder: Path, acknowledge: int, seed: int) -> None:
    """Append events of many sizes, some one by one and some in groups, and report each number that a sync has confirmed."""
    chance = random.Random(seed)
    store, clock = JsonlSessions(folder), FixedClock(1, 1)
    try:
        log = Log.open(store, "s", clock, write=True)
    except BadInput:
        log = Log.create(store, SessionOpened("s"), clock)
    while True:
        for _ in range(chance.choice((1, 1, 3))):
            log.append(UserSaid((Text(f"event {log.tip + 1} " + "x" * chance.randrange(20_000)),)))
        log.sync()
        os.write(acknowledge, b"%d\n" % log.tip)


def one_round(folder: Path, seed: int) -> int:
    """Start a writer, kill it after some acknowledged events, and return the last of them."""
    chance = random.Random(seed)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        write_until_killed(folder, writing, seed)
    os.close(writing)
    with os.fdopen(reading, "rb") as acknowledged:
        for _ in range(chance.randrange(1, 12)):
            acknowledged.readline()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        rest = acknowledged.read()
    return int(rest.split(b"\n")[-2]) if rest.count(b"\n") else -1


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = JsonlSessions(folder)
        for seed in range(rounds):
            last = one_round(folder, seed)
            with Log.open(store, "s", FixedClock(1, 1), write=True) as log:
                texts = [event.body.parts[0] for event in log.events() if isinstance(event.body, UserSaid)]
                numbers = [int(part.text.split()[1]) for part in texts if isinstance(part, Text)]
                if log.tip < last or numbers != list(range(1, log.tip + 1)):
                    sys.exit(f"round {seed}: acknowledged up to {last}, found up to {log.tip}")
            verdict = verify(store, "s", MemoryBlobs())
            if not verdict.ok:
                sys.exit(f"round {seed}: {verdict.findings}")
        torn = len(list(folder.glob("*.torn-*")))
        print(f"{rounds} kills, {log.tip} events, {torn} torn lines set aside")


if __name__ == "__main__":
    main(int(sys.argv[1]))
