import json
from pathlib import Path

from codex_homes import CODEX
from readings import Home, called, sources
from readings import said as said_in
from rollouts import THREAD, Line, answered, context, counted, ended, meta, output, said, started, write
from rollouts import called as call

from palimpsest.core.events import ModelReplied, Usage
from palimpsest.core.log import Log
from palimpsest.core.spending import Ledger
from palimpsest.exchange.importing import import_session
from palimpsest.exchange.transcript import ReadPosition
from palimpsest.stores.in_memory import FixedClock

FORK = "01a1ddf6-1c5d-7981-8c3c-46ff52b2b4c8"
PARENT = (
    meta(git={"branch": "main"}),
    started(),
    context(),
    said("a"),
    call("x"),
    counted(1_010, 1_000),
    output("x"),
    answered("b"),
    counted(2_120, 1_100),
    ended(),
)
NEXT = (started(), said("next"), answered("other"), counted(3_330, 1_200), ended())
OWN = (started(), said("c"), answered("d"), counted(3_330, 1_200), ended())


def copied(*lines: Line) -> list[Line]:
    """Lines as a fork writes them again: at its own time, and its beginning without what only the first one knew."""
    again = [{**line, "timestamp": "2026-11-15T09:00:00.000Z"} for line in lines]
    return [meta(FORK, forked_from_id=THREAD), {**again[0], "payload": {"id": THREAD, "cwd": "/repo"}}, *again[1:]]


def ledger(home: Home, thread: str) -> Ledger:
    return Log.open(home.store, f"codex-{thread}", FixedClock(1)).ledger


def test_a_fork_pays_for_its_own_calls_and_not_again_for_those_it_copied(tmp_path: Path) -> None:
    write(tmp_path, *PARENT, *NEXT)
    write(tmp_path, *copied(*PARENT), *OWN, thread=FORK)
    home = Home()
    home.take(CODEX, tmp_path)
    fork = home.bodies(f"codex-{FORK}")
    assert (said_in(fork), called(fork)) == (["a", "c"], ["x"])
    assert [body.usage for body in fork if isinstance(body, ModelReplied)] == [Usage(), Usage(), Usage(1_200, output=10)]
    assert ledger(home, THREAD).usage == Usage(3_300, output=30)
    assert ledger(home, FORK).usage == Usage(1_200, output=10)


def test_a_fork_whose_original_is_missing_counts_the_copied_usage(tmp_path: Path) -> None:
    write(tmp_path, *copied(*PARENT), *OWN, thread=FORK)
    home = Home()
    home.take(CODEX, tmp_path)
    assert ledger(home, FORK).usage == Usage(3_300, output=30)


def test_lines_that_only_look_like_those_of_the_other_rollout_are_no_copies(tmp_path: Path) -> None:
    """The other rollout went on with the same numbers after other words."""
    write(tmp_path, *PARENT, *NEXT, *OWN)
    write(tmp_path, *copied(*PARENT), *OWN, *OWN, thread=FORK)
    home = Home()
    home.take(CODEX, tmp_path)
    assert ledger(home, FORK).usage == Usage(1_200, output=10)


def test_a_fork_that_grows_after_it_was_imported_pays_the_same(tmp_path: Path) -> None:
    write(tmp_path, *PARENT)
    whole = [*copied(*PARENT), *OWN]
    path = write(tmp_path, *whole[:8], thread=FORK)
    home = Home()
    position: ReadPosition | None = None
    for count in (8, 11, len(whole)):
        path.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in whole[:count]))
        (source,) = sources(CODEX, path)
        position = import_session(CODEX, source, home.store, home.blobs, FixedClock(1), position=position).position
    assert ledger(home, FORK).usage == Usage(1_200, output=10)
