"""A process that writes a session as it is told, one command a line; run as a program."""

import sys
from pathlib import Path

from generated import generate

from palimpsest.core.events import SessionOpened, ViewEdited
from palimpsest.core.log import Log
from palimpsest.core.undo import rewind, undo
from palimpsest.stores.in_memory import FixedClock
from palimpsest.stores.sessions import JsonlSessions


def main(folder: Path) -> None:
    log = Log.create(JsonlSessions(folder), SessionOpened("s", model="claude-sonnet-4-5"), FixedClock(1_000, 10))
    print(log.tip, flush=True)
    for line in sys.stdin:
        match line.split():
            case ["append", count]:
                log.extend(generate(len(line), int(count), first=log.tip + 1))
            case ["undo"]:
                undo(log, max(event.seq for event in log.events() if isinstance(event.body, ViewEdited)))
            case ["rewind", to]:
                rewind(log, int(to))
            case ["half"]:
                # What a reader may find while a line is being written.
                with (folder / "s.jsonl").open("ab") as file:
                    file.write(b'{"seq":')
            case _:
                break
        print(log.tip, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
