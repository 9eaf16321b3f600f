"""One session of OpenCode in each of the shapes in which it keeps them."""

import hashlib
import json
import sqlite3
from operator import methodcaller
from pathlib import Path

import pytest
from corpus import GOLDEN, WITHOUT, corpus
from opencode_session import GOLDEN_DATABASE, PIXEL, Home, Row, Talk, begun, call, sources, view_of, words

from palimpsest.exchange.files import query
from palimpsest.exchange.opencode.reader import TABLES, OpencodeFormat
from palimpsest.exchange.transcript import ReadProblem, TranscriptSource

GOLDEN_DUMP = GOLDEN / "opencode" / "export.json"
EXPORTS = corpus("opencode-export/*.json")
SESSIONS = [source.session for source in sources(GOLDEN_DATABASE)]


def tables() -> dict[str, list[Row]]:
    """The golden dump, read without any code of ours."""
    found: dict[str, list[Row]] = json.loads(GOLDEN_DUMP.read_text())
    return found


def as_tree(folder: Path) -> Path:
    """The rows of the golden dump as the program kept them before it had a database."""
    dump, storage = tables(), folder / "storage"
    files: dict[Path, object] = {}
    for row in dump["session"]:
        time = {"created": row["time_created"], "updated": row["time_updated"]}
        info = {"id": row["id"], "projectID": row["project_id"], "directory": row["directory"], "title": row["title"], "time": time}
        parent = {"parentID": row["parent_id"]} if row["parent_id"] else {}
        files[storage / "session" / row["project_id"] / f"{row['id']}.json"] = {**info, **parent, "version": row["version"]}
    for row in dump["message"]:
        data = {"id": row["id"], "sessionID": row["session_id"], **row["data"]}
        files[storage / "message" / row["session_id"] / f"{row['id']}.json"] = data
    for row in dump["part"]:
        owner = {"sessionID": row["session_id"], "messageID": row["message_id"]}
        files[storage / "part" / row["message_id"] / f"{row['id']}.json"] = {"id": row["id"], **owner, **row["data"]}
    for row in dump["todo"]:
        todo = {name: row[name] for name in ("content", "status", "priority")}
        files[storage / "todo" / f"{row['session_id']}.json"] = [{"id": str(row["position"]), **todo}]
    for path, value in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))
    return folder


def as_export(folder: Path, session: str) -> Path:
    """One session of the golden dump as `opencode export` prints it."""
    dump = tables()
    row = next(row for row in dump["session"] if row["id"] == session)
    info = {"id": session, "directory": row["directory"], "title": row["title"], "time": {"created": row["time_created"]}}
    messages = [
        {
            "info": {"id": message["id"], "sessionID": session, **message["data"]},
            "parts": [{"id": part["id"], **part["data"]} for part in dump["part"] if part["message_id"] == message["id"]],
        }
        for message in dump["message"]
        if message["session_id"] == session
    ]
    path = folder / f"{session}.jsonl"
    path.write_text(f"Exporting session: {session}\n" + json.dumps({"info": info, "messages": messages}, indent=2) + "\n")
    return path


@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.states("OC-42")
def test_a_tree_of_files_and_the_database_give_equal_views(session: str, tmp_path: Path) -> None:
    assert view_of(as_tree(tmp_path), session) == view_of(GOLDEN_DATABASE, session)


@pytest.mark.parametrize("session", SESSIONS)
def test_an_export_with_a_banner_and_the_database_give_equal_views(session: str, tmp_path: Path) -> None:
    assert words(view_of(as_export(tmp_path, session))) == words(view_of(GOLDEN_DATABASE, session))


@pytest.mark.parametrize("session", SESSIONS)
def test_the_golden_database_and_the_golden_dump_give_equal_logs(session: str) -> None:
    first, second = Home(), Home()
    first.take(GOLDEN_DATABASE, session)
    second.take(GOLDEN_DUMP, session)
    assert first.bytes_of(session) == second.bytes_of(session)


def test_three_shapes_of_one_session_give_equal_logs(tmp_path: Path) -> None:
    talk = Talk()
    talk.user("look", {"type": "file", "mime": "image/png", "filename": "p.png", "url": f"data:image/png;base64,{PIXEL}"})
    talk.assistant({"type": "reasoning", "text": "hm"}, "I look.", call("bash", "files"), finish="tool-calls")
    talk.assistant("Done.")
    logs = []
    for path in (talk.database(tmp_path), talk.export(tmp_path), talk.tree(tmp_path / "old")):
        home = Home()
        home.take(path)
        logs.append(home.bytes_of())
    assert logs[0] == logs[1] == logs[2]


@pytest.mark.skipif(not EXPORTS, reason=WITHOUT)
@pytest.mark.parametrize("path", EXPORTS, ids=lambda path: path.stem[-12:])
@pytest.mark.states("OC-42")
def test_a_public_export_gives_equal_views_as_a_database_and_as_a_tree(path: Path, tmp_path: Path) -> None:
    export = json.loads(path.read_text())
    talk = Talk()
    talk.info = export["info"]
    talk.rows = [(message["info"], message["parts"]) for message in export["messages"]]
    expected = view_of(path)
    assert view_of(talk.database(tmp_path)) == expected
    assert view_of(talk.tree(tmp_path / "old")) == expected


@pytest.mark.skipif(not EXPORTS, reason=WITHOUT)
@pytest.mark.parametrize("path", EXPORTS[:2], ids=lambda path: path.stem[-12:])
def test_a_public_session_that_grows_gives_the_log_of_the_whole(path: Path, tmp_path: Path) -> None:
    export = json.loads(path.read_text())
    session = export["info"]["id"]
    home, whole = Home(), Home()
    grown = tmp_path / "grown.json"
    for count in (0, 1, 2, 7, 20, len(export["messages"])):
        grown.write_text(json.dumps({**export, "messages": export["messages"][:count]}))
        home.take(grown)
    whole.take(path)
    assert home.bytes_of(session) == whole.bytes_of(session)


def test_sessions_that_moved_into_the_database_are_not_taken_from_the_old_files_too(tmp_path: Path) -> None:
    folder = tmp_path / "opencode"
    folder.mkdir()
    moved, left = Talk("ses_moved"), Talk("ses_left")
    moved.user("one")
    left.user("two")
    path = moved.database(folder)
    moved.tree(folder)
    left.tree(folder)
    assert [(source.session, source.path) for source in sources(folder)] == [
        ("ses_moved", str(path)),
        ("ses_left", str(folder / "storage" / "session" / "global" / "ses_left.json")),
    ]


@pytest.mark.states("OC-43")
def test_a_session_across_the_turn_of_the_ids_keeps_its_order(tmp_path: Path) -> None:
    # The hexadecimal part of an id began again from zero at this moment.
    turn = 26 * 2**36
    talk = Talk(start=turn - 45)
    talk.user("before")
    talk.assistant("first", "second", "third")
    talk.user("after")
    ids = [info["id"] for info, _ in talk.rows]
    parts = [part["id"] for part in talk.rows[1][1]]
    assert ids != sorted(ids)
    assert parts != sorted(parts)
    expected = [("user", "before"), ("assistant", "first"), ("assistant", "second"), ("assistant", "third"), ("user", "after")]
    for path in (talk.database(tmp_path), talk.export(tmp_path), talk.tree(tmp_path / "old")):
        assert words(view_of(path)) == expected


@pytest.mark.states("OC-43")
def test_the_ids_turned_on_14_august_2026(tmp_path: Path) -> None:
    talk = Talk(start=1_786_706_395_000 - 40)
    talk.user("before")
    talk.assistant("answer")
    talk.at(1_786_706_395_000 + 2_000)
    talk.user("after")
    assert words(view_of(talk.database(tmp_path))) == [("user", "before"), ("assistant", "answer"), ("user", "after")]


@pytest.mark.states("OC-45")
def test_the_tables_with_accounts_cannot_be_read_and_the_database_stays_as_it_is(tmp_path: Path) -> None:
    talk = begun("hello")
    path = talk.database(tmp_path)
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    for table in ("account", "control_account", "credential", "session_share"):
        with pytest.raises(sqlite3.DatabaseError, match="prohibited"):
            query(path, TABLES, methodcaller("execute", f"SELECT * FROM {table}"))  # noqa: S608 - the names above
    with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
        query(path, TABLES, lambda connection: connection.execute("DELETE FROM part"))
    assert words(view_of(path)) == [("user", "hello")]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert [each.name for each in tmp_path.iterdir()] == ["opencode.db"]


@pytest.mark.states("OC-45")
def test_a_database_that_logs_its_writes_is_read_without_leaving_a_file_behind(tmp_path: Path) -> None:
    talk = begun("hello")
    path = talk.database(tmp_path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    tmp_path.chmod(0o500)
    assert words(view_of(path)) == [("user", "hello")]
    assert [each.name for each in tmp_path.iterdir()] == ["opencode.db"]


@pytest.mark.states("OC-45")
def test_what_a_writer_left_when_it_died_is_read_from_a_copy(tmp_path: Path) -> None:
    talk = begun()
    path = talk.database(tmp_path)
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    talk.assistant("two")
    talk.insert(writer)
    left = tmp_path / "left"
    left.mkdir()
    for name in ("opencode.db", "opencode.db-wal"):
        (left / name).write_bytes((tmp_path / name).read_bytes())
    writer.close()
    assert words(view_of(left / "opencode.db")) == [("user", "one"), ("assistant", "two")]
    assert sorted(each.name for each in left.iterdir()) == ["opencode.db", "opencode.db-wal"]


def test_a_database_that_is_being_written_is_read_as_it_was_committed(tmp_path: Path) -> None:
    talk = begun()
    path = talk.database(tmp_path)
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    talk.assistant("two")
    writer.execute("BEGIN")
    talk.insert(writer)
    assert words(view_of(path)) == [("user", "one")]
    writer.execute("COMMIT")
    assert words(view_of(path)) == [("user", "one"), ("assistant", "two")]
    writer.close()


def test_the_default_places_are_those_of_the_environment_and_of_custom() -> None:
    form = OpencodeFormat()
    assert form.default_paths(Path("/home/u"), {}) == (Path("/home/u/.local/share/opencode"),)
    assert form.default_paths(Path("/home/u"), {"XDG_DATA_HOME": "/data"}) == (
        Path("/data/opencode"),
        Path("/home/u/.local/share/opencode"),
    )


def test_files_of_other_programs_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "claude.jsonl").write_text('{"type":"user","uuid":"1"}\n{"type":"assistant"}\n')
    (tmp_path / "api.json").write_text('{"info":{"title":"an interface"},"paths":{}}')
    (tmp_path / "list.json").write_text('{"messages":["hello"]}')
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE session (id text)")
    connection.close()
    (tmp_path / "loop").symlink_to(tmp_path)
    assert sources(tmp_path) == []


def test_what_cannot_be_read_is_one_line_each_and_the_rest_goes_on(tmp_path: Path) -> None:
    talk = begun("fine")
    whole = talk.export(tmp_path).read_bytes()
    (tmp_path / "cut.json").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "opencode.db").mkdir()
    broken = tmp_path / "broken" / "opencode.db"
    broken.parent.mkdir()
    broken.write_bytes(b"SQLite format 3\x00" + b"garbage" * 200)
    found = list(OpencodeFormat().sources(tmp_path))
    assert [each.session for each in found if isinstance(each, TranscriptSource)] == ["ses_test"]
    assert sorted(each.where for each in found if isinstance(each, ReadProblem)) == [str(broken), str(tmp_path / "cut.json")]


def test_a_bad_row_is_named_and_the_other_rows_are_read(tmp_path: Path) -> None:
    talk = begun()
    talk.user("two")
    talk.user("three")
    path = talk.database(tmp_path)
    bad = [talk.rows[0][1][0]["id"], talk.rows[1][1][0]["id"]]
    with sqlite3.connect(path) as connection:
        connection.execute('UPDATE part SET data = \'{"type": "text", \' WHERE id = ?', (bad[0],))
        connection.execute("UPDATE part SET data = CAST(? AS TEXT) WHERE id = ?", (b'{"type":"text","text":"\xff"}', bad[1]))
    connection.close()
    home = Home()
    done = home.take(path)
    assert [line.where for line in done.problems] == [f"{path}:part/{key}" for key in bad]
    assert words(home.log().view) == [("user", "three")]


def test_a_half_of_a_character_does_not_make_a_row_unreadable(tmp_path: Path) -> None:
    talk = Talk()
    talk.user("cut here: \ud83d", "whole: \U0001f600 and \\ud83d")
    path = tmp_path / "export.json"
    messages = [{"info": info, "parts": parts} for info, parts in talk.rows]
    path.write_text(json.dumps({"info": talk.info, "messages": messages}))
    assert words(view_of(path)) == [("user", "cut here: \ufffd"), ("user", "whole: \U0001f600 and \\ud83d")]


def test_an_export_that_a_shell_wrote_in_two_bytes_a_letter_is_read(tmp_path: Path) -> None:
    talk = begun("grüße")
    path = talk.export(tmp_path)
    path.write_text(path.read_text(), encoding="utf-16")
    assert words(view_of(path)) == [("user", "grüße")]
