import sqlite3

from pal_runs import BEGAN, SMALL, Pal, small

from palimpsest.core.events import SessionOpened, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.log.log import Log
from palimpsest.stores.ephemeral import FixedClock


def test_a_session_is_deleted_only_when_one_says_so(pal: Pal) -> None:
    small(pal.home)
    asked = pal("delete", SMALL)
    assert (asked.exit_code, asked.stderr.endswith("would be deleted for good; use --yes to confirm\n")) == (2, True)
    assert pal.home.store.sessions() == [SMALL]
    assert pal.json("delete", SMALL, "--yes") == {"session": SMALL, "deleted": True}
    assert pal.home.store.sessions() == []


def test_a_session_that_a_fork_reads_is_kept(pal: Pal) -> None:
    small(pal.home)
    fork = pal("fork", SMALL).stdout.strip()
    refused = pal("delete", SMALL, "--yes")
    assert (refused.exit_code, refused.stderr) == (2, f"pal: session {SMALL} is read by its forks {fork}; delete those first\n")
    assert pal.home.store.sessions() == sorted([SMALL, fork])


def test_no_word_of_a_deleted_session_stays_in_the_index_file(pal: Pal) -> None:
    small(pal.home)
    with Log.create(pal.home.store, SessionOpened("other"), FixedClock(BEGAN)) as log:
        log.append(UserSaid((Text("the wombatsecretword is here"),)))
    assert len(pal.json("search", "wombatsecretword")) == 1
    assert b"wombatsecretword" in _bytes(pal)

    assert pal("delete", "other", "--yes").stdout == "deleted other\n"
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
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, f"deleted {SMALL}\n", 1)
    assert b"seconds" in _bytes(pal)
    assert pal("index").exit_code == 0
    assert b"seconds" not in _bytes(pal)


def _bytes(pal: Pal) -> bytes:
    return b"".join(path.read_bytes() for path in pal.home.folder.glob("index.sqlite*"))
