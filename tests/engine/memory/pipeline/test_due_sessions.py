"""Which sessions the pipeline reads."""

from pathlib import Path

import pytest
from finished_sessions import CWD, DAY, HOUR, START, add_session, places_in

from palimpsest.core.errors import BadInput
from palimpsest.core.events import EventRef, Rewound, SessionOpened, Titled, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.log import Log
from palimpsest.memory.pipeline import planned
from palimpsest.memory.work import DueSession, PipelinePlaces, due_sessions, session_events
from palimpsest.stores.home import FolderHome, Home
from palimpsest.stores.in_memory import FixedClock
from palimpsest.stores.memory_config import MemoryConfig


def due(session: str, updated: int = START, origin: str = "palimpsest") -> DueSession:
    return DueSession(session, updated, CWD, origin)


@pytest.mark.states("CX-46")
def test_only_finished_main_sessions_are_due_and_each_other_one_has_its_reason(tmp_path: Path) -> None:
    now = START + DAY
    add_session(tmp_path, "good")
    add_session(tmp_path, "edge-idle", at=now - 6 * HOUR)
    add_session(tmp_path, "edge-old", at=now - 10 * DAY)
    add_session(tmp_path, "fresh", at=now - 6 * HOUR + 1)
    add_session(tmp_path, "stale", at=now - 10 * DAY - 1)
    add_session(tmp_path, "mine")
    add_session(tmp_path, "child", opened=SessionOpened("child", cwd=CWD, opener=EventRef("good", 1)))
    add_session(tmp_path, "typed", opened=SessionOpened("typed", cwd=CWD, origin="codex", meta={"source": "cli"}))
    add_session(tmp_path, "exec", opened=SessionOpened("exec", cwd=CWD, origin="codex", meta={"source": "exec"}))
    add_session(tmp_path, "claude", opened=SessionOpened("claude", cwd=CWD, origin="claude-code"))
    (tmp_path / "sessions" / "broken.jsonl").write_bytes(b"no log\n")
    found = due_sessions(places_in(tmp_path), current="mine")
    assert found.due == (
        due("edge-idle", now - 6 * HOUR),
        due("claude", origin="claude-code"),
        due("good"),
        due("typed", origin="codex"),
        due("edge-old", now - 10 * DAY),
    )
    assert found.not_due == {
        "fresh": "fresh",
        "stale": "too_old",
        "mine": "current",
        "child": "sub_agent",
        "exec": "not_interactive",
        "broken": "unreadable",
    }


@pytest.mark.states("CX-46")
def test_with_everything_age_does_not_count_but_all_else_does(tmp_path: Path) -> None:
    add_session(tmp_path, "fresh", at=START + DAY)
    add_session(tmp_path, "stale", at=START - 100 * DAY)
    add_session(tmp_path, "child", opened=SessionOpened("child", opener=EventRef("fresh", 1)))
    found = due_sessions(places_in(tmp_path), everything=True)
    assert [each.session for each in found.due] == ["fresh", "stale"]
    assert found.not_due == {"child": "sub_agent"}


@pytest.mark.states("CX-46")
def test_a_session_that_is_open_for_writing_is_not_due(tmp_path: Path) -> None:
    add_session(tmp_path, "s")
    with FolderHome(tmp_path).open("s"):
        assert due_sessions(places_in(tmp_path), everything=True).not_due == {"s": "open"}


def test_a_start_reads_at_most_two_sessions_the_newest_first(tmp_path: Path) -> None:
    for hours in (1, 2, 3):
        add_session(tmp_path, f"s{hours}", at=START + hours * HOUR)
    plan = planned(places_in(tmp_path), by_model=False, most=MemoryConfig().sessions_per_start)
    assert [each.session for each in plan.sessions] == ["s3", "s2"]
    assert plan.skipped == {"later": 1}


def test_the_events_of_a_session_are_those_of_its_current_path_and_of_a_fork_its_own(tmp_path: Path) -> None:
    home = FolderHome(tmp_path, FixedClock(START))
    with Log.create(home.store, SessionOpened("s"), home.clock) as log:
        first = log.append(UserSaid((Text("one"),))).seq
        log.append(UserSaid((Text("two"),)))
        log.append(Rewound(first))
        log.append(UserSaid((Text("three"),)))
        with log.fork(home.store, "f") as fork:
            fork.append(Titled("a fork"))
    places = places_in(tmp_path)
    said = [event.body for event in session_events(places, "s") if isinstance(event.body, UserSaid)]
    assert said == [UserSaid((Text("one"),)), UserSaid((Text("three"),))]
    assert [type(event.body) for event in session_events(places, "f")][-1] is Titled
    assert not any(isinstance(event.body, UserSaid) for event in session_events(places, "f"))


def test_a_long_last_line_is_read_whole(tmp_path: Path) -> None:
    add_session(tmp_path, "s", (UserSaid((Text("x" * 300_000),)),))
    assert due_sessions(places_in(tmp_path), everything=True).due == (due("s"),)


@pytest.mark.parametrize("cwd", ["", "C:\\work", "relative/path", "a\0b"])
@pytest.mark.states("ME-17")
def test_a_folder_of_another_system_is_no_folder_of_this_one(tmp_path: Path, cwd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one = places_in(tmp_path).scope_of(cwd)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert places_in(tmp_path).scope_of(cwd) == one
    assert one != places_in(tmp_path).scope_of(str(tmp_path))


def test_a_home_in_memory_has_no_pipeline() -> None:
    with pytest.raises(BadInput):
        PipelinePlaces(Home.in_memory(), MemoryConfig())
