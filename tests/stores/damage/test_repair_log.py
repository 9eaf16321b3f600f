from collections.abc import Callable
from pathlib import Path

import pytest

from palimpsest.core.events import Failed, SessionOpened, UserSaid
from palimpsest.core.items import Text, text_of
from palimpsest.core.log import Log
from palimpsest.core.verify import verify
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs
from palimpsest.stores.repair import repair
from palimpsest.stores.sessions import JsonlSessions

LogFile = list[bytes]


def session(folder: Path) -> Path:
    with Log.create(JsonlSessions(folder), SessionOpened("s", cwd="/repo"), FixedClock(1, 1)) as log:
        for number in range(1, 7):
            log.append(UserSaid((Text(f"message {number}"),)))
    return folder / "s.jsonl"


def texts(folder: Path) -> list[str]:
    log = Log.open(JsonlSessions(folder), "s", FixedClock(1, 1))
    bodies = [event.body for event in log.events()][1:]
    return [text_of(body.parts[0]) if isinstance(body, UserSaid) else type(body).__name__ for body in bodies]


EVERY = [f"message {number}" for number in range(1, 7)]


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda x: [*x[:3], b"junk\n", *x[3:]], EVERY),
        (lambda x: [*x[:3], b"\n", *x[3:]], EVERY),
        (lambda x: [b"\n", *x], EVERY),
        (lambda x: [*x[:3], x[3].replace(b'"seq":3', b'"seq":93'), *x[4:]], EVERY),
        (lambda x: [*x[:6], x[6].replace(b'"seq":6', b'"seq":600000000')], EVERY),
        (lambda x: [*x[:3], x[4], x[3], *x[5:]], EVERY),
        (lambda x: [x[1], x[0], *x[2:]], EVERY),
        (lambda x: [*x[:3], x[3].rstrip(b"\n"), *x[4:]], EVERY),
        (lambda x: [*x[:3], x[3], x[3], *x[4:]], EVERY),
        (lambda x: [*x[:3], *x[4:]], [*EVERY[:2], "Failed", *EVERY[3:]]),
        (lambda x: [*x[:3], x[3].replace(b"message", b"\xff"), *x[4:]], [*EVERY[:2], "Failed", *EVERY[3:]]),
        (lambda x: [b"garbage\n", *x[1:]], EVERY),
        (lambda x: x[1:], EVERY),
    ],
    ids=[
        "junk between",
        "empty line",
        "empty first line",
        "a digit changed",
        "a large number at the end",
        "two lines swapped",
        "the opening swapped",
        "a newline lost",
        "a line twice",
        "a line missing",
        "a line unreadable",
        "the opening unreadable",
        "the opening missing",
    ],
)
def test_every_event_that_can_be_read_stays(tmp_path: Path, damage: Callable[[LogFile], LogFile], expected: list[str]) -> None:
    path = session(tmp_path)
    path.write_bytes(b"".join(damage(path.read_bytes().splitlines(keepends=True))))
    damaged = path.read_bytes()
    done = repair(JsonlSessions(tmp_path), "s")
    assert Path(done.copy).read_bytes() == damaged
    assert texts(tmp_path) == expected
    assert verify(JsonlSessions(tmp_path), "s", MemoryBlobs()).findings == ()
    assert repair(JsonlSessions(tmp_path), "s").changes == ()


def test_a_file_without_a_readable_line_becomes_an_empty_session_and_is_kept(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_bytes(b"nothing\nof ours\n")
    done = repair(JsonlSessions(tmp_path), "s")
    assert (Path(done.copy).read_bytes(), texts(tmp_path)) == (b"nothing\nof ours\n", [])


def test_a_missing_event_is_named_in_its_place(tmp_path: Path) -> None:
    path = session(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], *lines[4:]]))
    repair(JsonlSessions(tmp_path), "s")
    log = Log.open(JsonlSessions(tmp_path), "s", FixedClock(1, 1))
    assert [log.event(number).body for number in (2, 3)] == [
        Failed("read", "missing", "event 2 could not be read"),
        Failed("read", "missing", "event 3 could not be read"),
    ]


def test_a_torn_end_is_reported_though_nothing_else_is_wrong(tmp_path: Path) -> None:
    path = session(tmp_path)
    path.write_bytes(path.read_bytes()[:-10])
    done = repair(JsonlSessions(tmp_path), "s")
    assert (done.copy, len(done.changes)) == ("", 2)
    assert done.changes[0].startswith("the torn end of ")


def test_what_a_repair_leaves_is_for_the_owner_alone(tmp_path: Path) -> None:
    path = session(tmp_path)
    path.write_bytes(b"junk\n" + path.read_bytes() + b"{")
    repair(JsonlSessions(tmp_path), "s")
    assert {oct(each.stat().st_mode & 0o777) for each in tmp_path.glob("s.*")} == {"0o600"}


def test_a_fork_of_a_repaired_base_is_repaired_to_follow_it(tmp_path: Path) -> None:
    path = session(tmp_path)
    store = JsonlSessions(tmp_path)
    with Log.open(store, "s", FixedClock(1, 1)) as log:
        log.fork(store, "f").close()
    path.write_bytes(path.read_bytes().replace(b"message 2", b"massage 2"))
    repair(store, "s")
    assert [finding.kind for finding in verify(store, "f", MemoryBlobs()).findings] == ["relink"]
    assert repair(store, "f").changes[0] == "the base of this fork was repaired; its link was updated"
    assert verify(store, "f", MemoryBlobs()).ok
    assert Log.open(store, "f", FixedClock(1, 1)).view.ids == tuple(f"{number}.0" for number in range(1, 7))
