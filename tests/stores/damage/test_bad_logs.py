import re
from collections.abc import Callable
from pathlib import Path

import pytest

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import Body, CallStarted, ModelReplied, SessionOpened, ToolReturned, UserSaid
from palimpsest.core.items import Image, Text, ToolCall, ToolResult
from palimpsest.core.lines import decode_line, digest_of, encode_body, encode_line, link_of
from palimpsest.core.log import Log
from palimpsest.core.verify import verify
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs
from palimpsest.stores.repair import RepairReport, repair
from palimpsest.stores.sessions import BlobFolder, JsonlSessions

LogFile = list[bytes]


def session(folder: Path, *more: Body) -> Path:
    with Log.create(JsonlSessions(folder), SessionOpened("s"), FixedClock(1, 1)) as log:
        log.append(UserSaid((Text("fix the test"),)))
        log.append(ModelReplied((ToolCall("c1", "read", '{"path":"a.py"}'),)))
        log.append(ToolReturned(ToolResult("c1", (Text("assert False"),))))
        for body in more:
            log.append(body)
    (folder / "s.checkpoint").unlink()
    return folder / "s.jsonl"


def relinked(line: bytes, **changes: int) -> bytes:
    event = decode_line(line, "test")
    seq, parent = changes.get("seq", event.seq), changes.get("parent", event.parent)
    return encode_line(seq, parent, event.at, event.prev, encode_body(event.body))


DAMAGES: list[tuple[str, Callable[[LogFile], LogFile], str, str]] = [
    ("garbage line", lambda x: [*x[:2], b"garbage\n", *x[3:]], r"byte \d+: the line is not an event \(JSON is malformed", "log"),
    ("half a line", lambda x: [*x[:2], x[2][:40] + b"\n", *x[3:]], r"byte \d+: the line is not an event \(", "log"),
    ("empty object", lambda x: [*x[:2], b"{}\n", *x[3:]], r"byte \d+: the line is not an event \(Object missing required field", "log"),
    ("invalid UTF-8", lambda x: [*x[:3], x[3].replace(b"assert", b"\xff\xfe")], r"byte \d+: event 3 \(tool_returned\) is not UTF-8", "log"),
    ("malformed body", lambda x: [x[0], x[1].replace(b"[{", b"[1,{"), *x[2:]], r"byte \d+: event 1 \(user_said\) is malformed", "log"),
    (
        "newer format",
        lambda x: [*x[:3], x[3].replace(b',"body"', b',"v":9,"body"')],
        r"event 3 has format 9, this version reads up to 1",
        "version",
    ),
    ("duplicate event", lambda x: [*x[:3], x[2], *x[3:]], r"event 2 occurs twice", "order"),
    ("missing event", lambda x: [*x[:2], *x[3:]], r"event 3 stands where event 2 should be", "order"),
    ("missing parent", lambda x: [*x[:3], relinked(x[3], parent=-7)], r"event 3 follows event -7, which does not exist", "parent"),
    ("parent in the future", lambda x: [*x[:3], relinked(x[3], parent=9)], r"event 3 follows event 9, which comes later", "parent"),
    ("no opening", lambda x: x[1:], r"byte 0: the first line does not open a session", "order"),
]


@pytest.mark.parametrize(("name", "damage", "message", "kind"), DAMAGES, ids=[case[0] for case in DAMAGES])
def test_a_damaged_log_gets_one_line_that_names_file_and_place_and_is_left_as_it_is(
    tmp_path: Path, name: str, damage: Callable[[LogFile], LogFile], message: str, kind: str
) -> None:
    path = session(tmp_path)
    path.write_bytes(b"".join(damage(path.read_bytes().splitlines(keepends=True))))
    damaged = path.read_bytes()
    with pytest.raises(PalimpsestError) as caught:
        Log.open(JsonlSessions(tmp_path), "s", FixedClock(1, 1), write=True)
    assert re.search(message, str(caught.value)), str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert kind in {finding.kind for finding in verify(JsonlSessions(tmp_path), "s", MemoryBlobs()).findings}
    assert path.read_bytes() == damaged


@pytest.mark.parametrize(("name", "damage", "message", "kind"), DAMAGES[:-1], ids=[case[0] for case in DAMAGES[:-1]])
def test_a_repaired_log_verifies_and_opens_and_the_damaged_file_is_kept(
    tmp_path: Path, name: str, damage: Callable[[LogFile], LogFile], message: str, kind: str
) -> None:
    path = session(tmp_path)
    path.write_bytes(b"".join(damage(path.read_bytes().splitlines(keepends=True))))
    damaged = path.read_bytes()
    store = JsonlSessions(tmp_path)
    if kind == "version":
        with pytest.raises(PalimpsestError, match="update palimpsest"):
            repair(store, "s")
        assert path.read_bytes() == damaged
        return
    done = repair(store, "s")
    assert Path(done.copy).read_bytes() == damaged
    assert len(done.changes) >= 1
    assert {finding.kind for finding in verify(store, "s", MemoryBlobs()).findings} <= {"pair"}
    assert Log.open(store, "s", FixedClock(1, 1)).tip == 3
    assert repair(store, "s").changes == ()


def test_a_changed_body_breaks_the_chain_and_verify_names_the_event(tmp_path: Path) -> None:
    path = session(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"fix the test", b"fix the best"))
    verdict = verify(JsonlSessions(tmp_path), "s", MemoryBlobs())
    assert [(finding.kind, finding.message) for finding in verdict.findings] == [
        ("hash", "event 2 does not continue the chain: it or the event before was changed")
    ]


def test_a_changed_last_line_is_refused_and_found_by_the_checkpoint_after_it_until_it_is_repaired(tmp_path: Path) -> None:
    store = JsonlSessions(tmp_path)
    with Log.create(store, SessionOpened("s"), FixedClock(1, 1)) as log:
        log.append(UserSaid((Text("fix the test"),)))
    path = tmp_path / "s.jsonl"
    path.write_bytes(path.read_bytes().replace(b"fix the test", b"fix the best"))
    changed = "event 1 is not the one that the checkpoint was made after: it was changed"
    for write in (False, True):
        with pytest.raises(PalimpsestError, match=f"byte 86: {changed}; see `pal verify`"):
            Log.open(store, "s", FixedClock(1, 1), write=write)
    assert [(finding.kind, finding.message) for finding in verify(store, "s", MemoryBlobs()).findings] == [("hash", changed)]
    assert repair(store, "s") == RepairReport("", ("the checkpoint did not match the log and was dropped",))
    assert verify(store, "s", MemoryBlobs()).ok
    assert Log.open(store, "s", FixedClock(1, 1)).tip == 1


@pytest.mark.parametrize("kept", ["an older copy of the log", "another log"])
def test_a_checkpoint_of_an_older_copy_or_of_another_log_is_not_used(tmp_path: Path, kept: str) -> None:
    store = JsonlSessions(tmp_path)
    with Log.create(store, SessionOpened("s"), FixedClock(1, 1)) as log:
        log.append(UserSaid((Text("one"),)))
        older = (tmp_path / "s.jsonl").read_bytes()
        log.append(UserSaid((Text("two"),)))
    with Log.create(store, SessionOpened("t"), FixedClock(1, 1)) as log:
        log.extend([UserSaid((Text(f"message {number}"),)) for number in range(9)])
    (tmp_path / "s.jsonl").write_bytes(older if kept.startswith("an older") else (tmp_path / "t.jsonl").read_bytes())
    assert Log.open(store, "s", FixedClock(1, 1), whole=True).tip == (1 if kept.startswith("an older") else 9)


def test_a_redacted_line_still_verifies_and_is_named(tmp_path: Path) -> None:
    path = session(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    event = decode_line(lines[1], "test")
    digest = digest_of(encode_body(event.body))
    lines[1] = encode_line(event.seq, event.parent, event.at, event.prev, encode_body(UserSaid((Text("[REDACTED]"),))), digest=digest)
    path.write_bytes(b"".join(lines))
    verdict = verify(JsonlSessions(tmp_path), "s", MemoryBlobs())
    assert (verdict.ok, verdict.redacted) == (True, (1,))
    assert link_of(event.prev, 1, 0, event.at, digest) == decode_line(lines[2], "test").prev


def test_an_unknown_event_is_kept_and_the_log_goes_on(tmp_path: Path) -> None:
    path = session(tmp_path)
    with Log.open(JsonlSessions(tmp_path), "s", FixedClock(1, 1)) as log:
        place = log.place_of(log.tip)
    body = b'{"type":"hologram_shown","depth":3}'
    path.write_bytes(path.read_bytes() + encode_line(4, 3, 99, place.link, body))
    with Log.open(JsonlSessions(tmp_path), "s", FixedClock(1, 1), write=True) as log:
        assert encode_body(log.event(4).body) == body
        log.append(UserSaid((Text("on"),)))
    assert verify(JsonlSessions(tmp_path), "s", MemoryBlobs()).findings == ()


def test_a_line_of_a_hundred_megabytes_is_named_and_not_read_whole_into_an_event(tmp_path: Path) -> None:
    path = session(tmp_path)
    start = path.stat().st_size
    with path.open("ab") as file:
        for _ in range(100):
            file.write(b"x" * 1024 * 1024)
        file.write(b"\n" + b"{}\n")
    with pytest.raises(PalimpsestError, match=f"byte {start}: a line is longer than 67,108,864 bytes"):
        Log.open(JsonlSessions(tmp_path), "s", FixedClock(1, 1))


def test_a_missing_blob_is_a_finding_that_names_event_and_address(tmp_path: Path) -> None:
    address = digest_of(b"a picture")
    session(tmp_path, UserSaid((Image("image/png", blob=address),)), CallStarted("m", "chat", tools=digest_of(b"[]")))
    blobs = BlobFolder(tmp_path / "blobs")
    messages = [finding.message for finding in verify(JsonlSessions(tmp_path), "s", blobs).findings]
    assert messages == [f"event 4 needs blob {address}, which is missing", f"event 5 needs blob {digest_of(b'[]')}, which is missing"]
    blobs.put(b"a picture")
    blobs.put(b"[]")
    assert verify(JsonlSessions(tmp_path), "s", blobs).ok


def test_a_result_without_a_call_is_a_finding(tmp_path: Path) -> None:
    session(tmp_path, ToolReturned(ToolResult("c9", (Text("hello"),))))
    messages = [finding.message for finding in verify(JsonlSessions(tmp_path), "s", MemoryBlobs()).findings]
    assert messages == ["event 4 answers call c9, which was never made"]


def test_an_empty_file_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_bytes(b"")
    with pytest.raises(PalimpsestError, match="the log is empty"):
        Log.open(JsonlSessions(tmp_path), "s", FixedClock(1, 1))
    assert [finding.kind for finding in verify(JsonlSessions(tmp_path), "s", MemoryBlobs()).findings][:1] == ["empty"]


def test_a_torn_last_line_is_a_finding_for_a_reader_and_gone_after_the_next_writer(tmp_path: Path) -> None:
    path = session(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"seq":4,"par')
    store = JsonlSessions(tmp_path)
    assert Log.open(store, "s", FixedClock(1, 1)).tip == 3
    assert [finding.kind for finding in verify(store, "s", MemoryBlobs()).findings] == ["torn"]
    Log.open(store, "s", FixedClock(1, 1), write=True).close()
    assert verify(store, "s", MemoryBlobs()).ok
    assert ((tmp_path / "s.torn-1").read_bytes(), path.read_bytes()) == (b'{"seq":4,"par', whole)
