import resource
import sqlite3
from pathlib import Path

import pytest
from pal_runs import BEGAN, LONG, SMALL, Pal, long, small

from palimpsest.core.events import SessionOpened, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.log import Log
from palimpsest.core.text import iso_time
from palimpsest.stores.in_memory import FixedClock

_NAMES = ["python", "packages", "home", "disk", "sqlite", "index", "locks", "remains", "logs", "secrets", "cards", "rules"]


def _states(pal: Pal, code: int) -> dict[str, str]:
    return {check["name"]: check["state"] for check in pal.json("doctor", code=code)["checks"]}


def test_a_home_in_order_has_no_findings(pal: Pal) -> None:
    small(pal.home)
    assert pal("sessions").exit_code == 0

    assert _states(pal, 0) == dict.fromkeys(_NAMES, "ok")
    assert pal.json("doctor")["ok"] is True
    assert [line.split()[:2] for line in pal("doctor").stdout.splitlines()] == [["ok", name] for name in _NAMES]


def test_a_home_that_is_not_there_yet_is_no_finding_and_is_not_made(pal: Pal) -> None:
    assert _states(pal, 0) == dict.fromkeys(_NAMES, "ok")
    assert not pal.home.folder.exists()


def test_a_torn_line_and_what_a_crash_left_are_warnings_with_advice(pal: Pal) -> None:
    small(pal.home)
    path = pal.home.store.path_of(SMALL)
    with path.open("ab") as file:
        file.write(b'{"seq":14')
    path.with_suffix(".torn-1").write_bytes(b"{")
    (path.parent / ".locks" / "gone").touch()

    states = _states(pal, 1)
    advice = [line for line in pal("doctor").stdout.splitlines() if "→" in line]

    assert {name for name, state in states.items() if state == "warn"} == {"logs", "remains", "locks"}
    assert len(advice) == 3


def test_a_log_that_cannot_be_read_and_a_broken_card_file_are_bad(pal: Pal) -> None:
    small(pal.home)
    pal.home.store.path_of("noise").write_bytes(b"noise\n")
    pal.home.cards_path.write_text("cards = 3")

    assert {name for name, state in _states(pal, 1).items() if state == "bad"} == {"logs", "cards"}


@pytest.mark.parametrize("end", [b"garbage here\n", b"garbage here\n\n", b'{"seq":14}\n', b"x" * 200_000 + b"\n"])
def test_a_log_whose_last_line_is_no_event_is_bad(pal: Pal, end: bytes) -> None:
    small(pal.home)
    with pal.home.store.path_of(SMALL).open("ab") as file:
        file.write(end)

    assert {name for name, state in _states(pal, 1).items() if state == "bad"} == {"logs"}


def test_a_session_that_is_being_written_is_named_and_is_no_finding(pal: Pal) -> None:
    small(pal.home)
    with Log.open(pal.home.store, SMALL, FixedClock(BEGAN), write=True):
        locks = next(check for check in pal.json("doctor")["checks"] if check["name"] == "locks")

    assert locks["state"] == "ok"
    assert locks["message"].startswith("1 held: process ")


def test_a_home_that_is_a_file_is_bad(pal: Pal) -> None:
    pal.home.folder.write_text("")

    assert _states(pal, 1)["home"] == "bad"


def test_a_session_is_deleted_only_when_one_says_so(pal: Pal) -> None:
    small(pal.home)
    asked = pal("delete", SMALL)
    assert (asked.exit_code, asked.stderr.endswith("would be deleted for good; use --yes to confirm\n")) == (2, True)
    assert pal.home.store.sessions() == [SMALL]
    path = pal.home.store.path_of(SMALL)
    size = sum(file.stat().st_size for file in path.parent.glob(f"{SMALL}.*"))
    assert size > path.stat().st_size
    assert pal.json("delete", SMALL, "--yes") == {"session": SMALL, "deleted": True, "freed": size}
    assert pal.home.store.sessions() == []


def test_a_session_that_a_fork_reads_is_kept(pal: Pal) -> None:
    small(pal.home)
    fork = pal("fork", SMALL).stdout.strip()
    refused = pal("delete", SMALL, "--yes")
    assert (refused.exit_code, refused.stderr) == (2, f"pal: session {SMALL} is read by its forks {fork}; delete those first\n")
    assert pal.home.store.sessions() == sorted([SMALL, fork])


def test_a_session_whose_words_stay_in_the_index_for_want_of_room_is_not_said_to_be_gone_for_good(pal: Pal) -> None:
    small(pal.home)
    pal("sessions")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, hard))
    try:
        deleted = pal("delete", SMALL, "--yes")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    words = pal.home.index_path.read_bytes().count(b"What is in a.py")

    assert (deleted.exit_code, words > 0) == (1, True)
    assert deleted.stderr.endswith("copied from the file each time; `pal index` removes the deleted session from it\n")
    assert (pal("index").exit_code, pal.home.index_path.read_bytes().count(b"What is in a.py")) == (0, 0)


def test_several_sessions_are_deleted_after_one_question_forks_first(pal: Pal) -> None:
    small(pal.home)
    fork = pal("fork", SMALL).stdout.strip()
    with Log.create(pal.home.store, SessionOpened("kept", cwd="elsewhere"), FixedClock(BEGAN)):
        pass
    asked = pal("delete", SMALL, fork)
    assert (asked.exit_code, " 2 sessions (" in asked.stderr, "use --yes to confirm" in asked.stderr) == (2, True, True)

    deleted = pal.json("delete", SMALL, fork, "--yes")
    assert [(each["session"], each["deleted"]) for each in deleted["sessions"]] == [(fork, True), (SMALL, True)]
    assert deleted["freed"] == sum(each["freed"] for each in deleted["sessions"]) > 0
    assert pal.home.store.sessions() == ["kept"]


def test_sessions_are_deleted_by_what_they_have_in_common(pal: Pal) -> None:
    small(pal.home)
    for number in range(3):
        Log.create(pal.home.store, SessionOpened(f"codex-{number}", origin="codex"), FixedClock(BEGAN)).close()

    assert pal("delete", "--yes").exit_code == 2
    assert pal("delete", "--origin", "nothing", "--yes").exit_code == 1
    assert pal.json("delete", SMALL, "--origin", "codex", "--yes", code=1) == {"sessions": [], "freed": 0}
    assert [each["session"] for each in pal.json("delete", "codex-0", SMALL, "--origin", "codex", "--yes")["sessions"]] == ["codex-0"]
    assert pal("delete", "--origin", "codex", "--yes").stdout.startswith("deleted 2 sessions, ")
    assert pal.home.store.sessions() == [SMALL]


def test_sessions_in_which_nothing_happened_since_a_date_are_deleted_with_before(pal: Pal) -> None:
    day = 86_400_000
    for number in range(3):
        Log.create(pal.home.store, SessionOpened(f"day-{number}"), FixedClock(BEGAN + number * day)).close()

    deleted = pal.json("delete", "--before", iso_time(BEGAN + day), "--yes")

    assert [(each["session"], each["deleted"]) for each in deleted["sessions"]] == [("day-0", True)]
    assert sorted(pal.home.store.sessions()) == ["day-1", "day-2"]
    assert pal("delete", "--before", "yesterday", "--yes").exit_code == 2


def test_a_session_that_is_being_written_stays_and_the_others_go(pal: Pal) -> None:
    small(pal.home)
    small(pal.home, "free")
    with Log.open(pal.home.store, SMALL, FixedClock(BEGAN), write=True):
        result = pal("delete", SMALL, "free", "--yes")

    assert (result.exit_code, result.stdout.startswith("deleted free, "), pal.home.store.sessions()) == (1, True, [SMALL])


def test_no_word_of_a_deleted_session_stays_in_the_index_file(pal: Pal) -> None:
    small(pal.home)
    with Log.create(pal.home.store, SessionOpened("other"), FixedClock(BEGAN)) as log:
        log.append(UserSaid((Text("the wombatsecretword is here"),)))
    assert len(pal.json("search", "wombatsecretword")) == 1
    assert b"wombatsecretword" in _bytes(pal)

    assert pal("delete", "other", "--yes").stdout.startswith("deleted other, ")
    assert b"wombat" not in _bytes(pal)
    assert [row["id"] for row in pal.json("sessions")] == [SMALL]
    assert len(pal.json("search", "timeout")) == 2


def test_a_busy_index_is_reported_and_cleaned_later(pal: Pal) -> None:
    small(pal.home)
    pal("sessions")
    other = sqlite3.connect(pal.home.index_path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        result = pal("delete", SMALL, "--yes")
    finally:
        other.close()
    assert (result.exit_code, result.stdout.startswith(f"deleted {SMALL}, "), result.stderr.count("\n")) == (1, True, 1)
    assert b"seconds" in _bytes(pal)
    assert pal("index").exit_code == 0
    assert b"seconds" not in _bytes(pal)


def _bytes(pal: Pal) -> bytes:
    return b"".join(path.read_bytes() for path in pal.home.folder.glob("index.sqlite*"))


def _damage(pal: Pal, old: bytes, new: bytes) -> Path:
    path = pal.home.store.path_of(SMALL)
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    return path


def test_a_whole_log_is_verified(pal: Pal) -> None:
    small(pal.home)

    found = pal.json("verify", SMALL)
    assert found == {
        "ok": True,
        "events": 14,
        "errors": [],
        "repaired": False,
        "session": SMALL,
        "redacted": [],
        "last": 13,
        "link": found["link"],
    }
    assert pal("verify", SMALL).stdout == f"ok    {SMALL}  14 events  13:{found['link']}\n"


def test_a_changed_word_is_found_and_named(pal: Pal) -> None:
    small(pal.home)
    path = _damage(pal, b"What is in a.py?", b"What is in b.py?")
    found = pal.json("verify", str(path), code=1)

    assert (found["ok"], found["events"], found["repaired"]) == (False, 14, False)
    assert [error["kind"] for error in found["errors"]] == ["hash"]
    assert found["errors"][0]["where"].startswith(f"{path}, byte ")


def test_a_repair_keeps_the_damaged_file_and_leaves_a_log_that_verifies(pal: Pal) -> None:
    small(pal.home)
    path = _damage(pal, b'"type":"tool_started"', b'"type":"tool_st\xffrted"')
    damaged = path.read_bytes()
    repaired = pal.json("verify", SMALL, "--repair")

    assert (repaired["ok"], repaired["repaired"]) == (True, True)
    assert Path(repaired["copy"]).read_bytes() == damaged
    assert pal("verify", SMALL).exit_code == 0
    assert pal("show", SMALL).exit_code == 0


def test_a_torn_last_line_is_a_finding_until_it_is_repaired(pal: Pal) -> None:
    small(pal.home)
    path = pal.home.store.path_of(SMALL)
    with path.open("ab") as file:
        file.write(b'{"seq":14,"parent":13,"at"')

    assert [error["kind"] for error in pal.json("verify", SMALL, code=1)["errors"]] == ["torn"]
    assert pal("verify", SMALL, "--repair").exit_code == 0
    assert pal.json("verify", SMALL)["ok"] is True


def test_all_sessions_are_verified_when_none_is_named(pal: Pal) -> None:
    small(pal.home)
    long(pal.home, events=60)
    _damage(pal, b"Be brief.", b"Be grief.")
    found = pal.json("verify", code=1)

    assert (found["ok"], found["events"]) == (False, 75)
    assert [(each["session"], each["ok"]) for each in found["sessions"]] == [(SMALL, False), (LONG, True)]
    assert pal.json("verify", str(pal.home.store.folder), code=1) == found


def test_a_repair_needs_a_session_or_all(pal: Pal) -> None:
    small(pal.home)
    result = pal("verify", "--repair")

    assert result.exit_code == 2
    assert result.stderr == "pal: verify: --repair needs a session, or --all; see `pal verify --help`\n"


def test_a_missing_blob_is_found_and_no_repair_claims_to_mend_it(pal: Pal) -> None:
    small(pal.home)
    for address in list(pal.home.blobs.addresses()):
        pal.home.blobs.path(address).unlink()
    for words in (("verify", SMALL), ("verify", SMALL, "--repair")):
        result = pal(*words)
        assert result.exit_code == 1
        assert "a blob cannot be made from the log" in result.stdout
        assert "--repair" not in result.stdout


def test_something_that_is_no_log_at_all_is_a_finding_and_no_crash(pal: Pal) -> None:
    small(pal.home)
    pal.home.store.path_of("noise").write_bytes(bytes(range(256)) * 40)
    pal.home.store.path_of("empty").write_bytes(b"")

    assert pal("verify", "noise").exit_code == 1
    assert [error["kind"] for error in pal.json("verify", "empty", code=1)["errors"]][:1] == ["empty"]
    assert pal("verify", "--all").exit_code == 1


def test_an_empty_home_has_nothing_to_verify(pal: Pal) -> None:
    assert pal("verify").stdout == "no sessions to verify\n"
