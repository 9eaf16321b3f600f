"""A session of OpenCode that is read again: its rows change in place, and only what is new or changed is told."""

import sqlite3
from pathlib import Path

import pytest
from every_case import every_case
from opencode_session import GOLDEN_DATABASE, Home, Row, Talk, begun, call, sources, view_of, words

from palimpsest.core.events import ForeignNoted, Rewound, TaskChanged, Titled, ToolReturned, UserSaid

SESSIONS = [source.session for source in sources(GOLDEN_DATABASE)]


def rewinds(home: Home) -> int:
    return sum(isinstance(body, Rewound) for body in home.bodies())


@every_case("session", SESSIONS)
@every_case("marked", [True, False])
def test_importing_twice_changes_nothing(session: str, *, marked: bool) -> None:
    home = Home()
    home.take(GOLDEN_DATABASE, session)
    before = home.bytes_of(session)
    again = home.take(GOLDEN_DATABASE, session, marked=marked)
    assert (again.counts.events, home.bytes_of(session)) == (0, before)


def long_talk() -> Talk:
    talk = Talk()
    for turn in range(4):
        talk.user(f"question {turn}")
        talk.assistant("looks", call("bash", f"output {turn}", call_id=f"c{turn}"), finish="tool-calls")
        talk.assistant(f"answer {turn}")
    talk.part(1, 1)["state"]["time"]["compacted"] = talk.now
    talk.at(talk.now + 10)
    request = talk.user({"type": "compaction", "auto": False})
    talk.assistant("SUMMARY", summary=True, parentID=request)
    talk.user("more")
    talk.assistant("yes")
    return talk


@pytest.mark.parametrize("half", range(1, 16))
def test_importing_in_two_halves_gives_the_log_of_the_whole(half: int, tmp_path: Path) -> None:
    talk, home, whole = long_talk(), Home(), Home()
    rows, talk.rows = talk.rows, talk.rows[:half]
    # What was cleared later had not been cleared yet.
    cleared = rows[1][1][1]["state"]["time"].pop("compacted")
    home.take(talk.database(tmp_path))
    rows[1][1][1]["state"]["time"]["compacted"] = cleared
    talk.rows = rows
    home.take(talk.database(tmp_path))
    whole.take(talk.database(tmp_path))
    assert words(home.log().view) == words(whole.log().view)
    if half <= 12:
        # After that the clearing is found out later than it happened.
        assert home.bytes_of() == whole.bytes_of()


def test_a_tool_that_was_running_and_has_ended_is_read_on_a_branch(tmp_path: Path) -> None:
    talk, home = begun(), Home()
    talk.assistant("runs", call("bash", status="running", time={"start": 1}), finish=None, time={"created": talk.now + 10})
    home.take(talk.database(tmp_path))
    assert words(home.log().view)[2:] == [("call", 'bash {"command":"bash"}'), ("result", "[Tool execution was interrupted]")]
    assert home.take(talk.database(tmp_path)).counts.events == 0
    talk.part(1, 1)["state"] |= {"status": "completed", "output": "DONE", "time": {"start": 1, "end": 9}}
    talk.rows[1][0].update({"finish": "tool-calls", "time": {"created": talk.now, "completed": talk.now + 1}})
    talk.at(talk.now + 100).assistant("fine")
    home.take(talk.database(tmp_path))
    assert words(home.log().view) == words(view_of(talk.database(tmp_path)))
    assert words(home.log().view)[2:] == [("call", 'bash {"command":"bash"}'), ("result", "DONE"), ("assistant", "fine")]
    assert rewinds(home) == 1
    assert home.take(talk.database(tmp_path)).counts.events == 0


def test_what_was_typed_during_a_reply_is_read_again_after_the_complete_reply(tmp_path: Path) -> None:
    talk, home = begun(), Home()
    started = talk.now + 10
    talk.assistant("par", finish=None, time={"created": started})
    talk.user("wait, two")
    home.take(talk.database(tmp_path))
    assert words(home.log().view) == [("user", "one"), ("assistant", "par"), ("user", "wait, two")]
    talk.part(1, 0)["text"] = "partial no more"
    talk.rows[1][0].update({"finish": "stop", "time": {"created": started, "completed": talk.now + 50}})
    home.take(talk.database(tmp_path))
    assert words(home.log().view) == [("user", "one"), ("assistant", "partial no more"), ("steering", "wait, two")]
    assert home.take(talk.database(tmp_path)).counts.events == 0


def test_a_result_that_was_cleared_since_is_masked_without_reading_anything_else(tmp_path: Path) -> None:
    talk, home = long_talk(), Home()
    home.take(talk.database(tmp_path))
    talk.part(4, 1)["state"]["time"]["compacted"] = talk.now + 5
    done = home.take(talk.database(tmp_path))
    assert (done.counts.events, done.counts.masks, rewinds(home)) == (1, 1, 0)


def test_a_row_that_changed_beside_what_a_model_sees_is_noted_and_nothing_more(tmp_path: Path) -> None:
    talk, home = long_talk(), Home()
    home.take(talk.database(tmp_path))
    before = home.log().view.items
    talk.rows[0][0]["summary"] = {"diffs": [{"file": "a.py"}]}
    talk.info["time"]["updated"] += 5
    home.take(talk.database(tmp_path))
    log = home.log()
    noted = [body.keys for body in home.bodies() if isinstance(body, ForeignNoted)]
    assert (sorted(noted), log.view.items == before, rewinds(home)) == ([(talk.rows[0][0]["id"],), ("ses_test",)], True, 0)
    assert home.take(talk.database(tmp_path)).counts.events == 0


def test_a_new_title_is_an_event(tmp_path: Path) -> None:
    talk, home = long_talk(), Home()
    home.take(talk.database(tmp_path))
    talk.info["title"] = "Another"
    home.take(talk.database(tmp_path))
    titles = [body.title for body in home.bodies() if isinstance(body, Titled)]
    assert titles == ["A talk", "Another"]


def test_going_back_and_taking_it_back_moves_the_tip_and_loses_nothing(tmp_path: Path) -> None:
    talk, home = begun(), Home()
    talk.assistant("first")
    boundary = talk.user("two")
    home.take(talk.database(tmp_path))
    seen = []
    for revert in ({"messageID": boundary}, None, {"messageID": boundary}):
        talk.info["revert"] = revert
        home.take(talk.database(tmp_path))
        assert home.take(talk.database(tmp_path)).counts.events == 0
        seen.append([text for _, text in words(home.log().view)])
    assert seen == [["one", "first"], ["one", "first", "two"], ["one", "first"]]


def test_what_the_program_deleted_after_going_back_stays_on_a_branch(tmp_path: Path) -> None:
    talk, home = begun(), Home()
    talk.assistant("first", call("read", "R"))
    boundary = talk.user("two")
    talk.assistant("second")
    talk.part(1, 1)["state"]["time"]["compacted"] = talk.now
    talk.info["revert"] = {"messageID": boundary}
    home.take(talk.database(tmp_path))
    talk.info["revert"] = None
    talk.rows = talk.rows[:2]
    talk.user("other")
    home.take(talk.database(tmp_path))
    log = home.log()
    assert words(log.view) == words(view_of(talk.database(tmp_path)))
    # Going back did not bring the cleared result back.
    assert [text for _, text in words(log.view)][-2:] == ["[Old tool result content cleared]", "other"]
    said = [body.parts for body in home.bodies() if isinstance(body, UserSaid)]
    assert len(said) == 3
    assert home.take(talk.database(tmp_path)).counts.events == 0


def test_the_todo_list_is_an_event_when_it_changed(tmp_path: Path) -> None:
    talk, home = begun(), Home()
    path = talk.database(tmp_path)
    for status in ("pending", "done", "done"):
        with sqlite3.connect(path) as connection:
            connection.execute("DELETE FROM todo")
            connection.execute("INSERT INTO todo VALUES ('ses_test', 'write tests', ?, 'high', 0, 5, 6)", (status,))
        connection.close()
        home.take(path)
    states = [bytes(body.state) for body in home.bodies() if isinstance(body, TaskChanged)]
    assert states == [b'[{"content":"write tests","status":"%s","priority":"high"}]' % word for word in (b"pending", b"done")]


def test_the_position_of_another_format_is_ignored(tmp_path: Path) -> None:
    talk, home = long_talk(), Home()
    home.take(talk.database(tmp_path))
    mark = home.positions["ses_test"]
    assert mark is not None
    home.positions["ses_test"] = type(mark)(7, type(mark.state)(b'["what"]'))
    assert home.take(talk.database(tmp_path)).counts.events == 0


def test_no_result_is_read_twice_when_a_session_grows_row_by_row(tmp_path: Path) -> None:
    talk, home = long_talk(), Home()
    rows: list[tuple[Row, list[Row]]] = talk.rows
    for count in range(1, len(rows) + 1):
        talk.rows = rows[:count]
        home.take(talk.database(tmp_path))
    results = [body.result.call_id for body in home.bodies() if isinstance(body, ToolReturned)]
    assert results == ["c0", "c1", "c2", "c3"]


@pytest.mark.parametrize("marked", [True, False])
def test_a_complete_reply_replaces_the_incomplete_one_with_a_position_or_without(tmp_path: Path, *, marked: bool) -> None:
    talk, home = begun(), Home()
    started = talk.now + 10
    talk.assistant("par", finish=None, time={"created": started})
    half = talk.export(tmp_path).read_bytes()
    home.take(talk.export(tmp_path))
    talk.part(1, 0)["text"] = "partial no more"
    talk.rows[1][0].update({"finish": "stop", "time": {"created": started, "completed": started + 50}})
    home.take(talk.export(tmp_path), marked=marked)
    assert words(home.log().view) == [("user", "one"), ("assistant", "partial no more")]
    # An older copy brings nothing back.
    (tmp_path / "export.json").write_bytes(half)
    assert home.take(tmp_path / "export.json", marked=False).counts.events == 0
