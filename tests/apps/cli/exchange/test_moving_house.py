"""Sessions of another home are taken as what they are."""

import os
from pathlib import Path

import pytest
from corpus import GOLDEN
from pal_runs import SMALL, Pal, small

from palimpsest.core.events import ChildOpened, EventRef, SessionOpened, UserSaid
from palimpsest.core.items import Image, Text
from palimpsest.core.log import Log
from palimpsest.stores.in_memory import FixedClock

CLOCK = FixedClock(1_932_900_000_000, 1_000)


@pytest.fixture
def old(tmp_path: Path) -> Pal:
    """A home with a session, its fork, a sub-agent, a picture, and a session of Claude Code."""
    pal = Pal(tmp_path / "old")
    small(pal.home)
    with pal.home.open(SMALL) as log:
        log.append(ChildOpened(f"{SMALL}.1"))
        log.append(UserSaid((Text("look"), Image("image/png", pal.home.blobs.put(b"a picture")))))
    with Log.create(pal.home.store, SessionOpened(f"{SMALL}.1", opener=EventRef(SMALL, 14)), CLOCK) as log:
        log.append(UserSaid((Text("sub"),)))
    # The name of the fork sorts before that of its base.
    with pal.home.open(SMALL) as log, log.fork(pal.home.store, "a-fork", 8) as fork:
        fork.append(UserSaid((Text("elsewhere"),)))
    pal.json("import", str(GOLDEN / "claude" / "2.1.325"))
    return pal


def logs(pal: Pal) -> dict[str, bytes]:
    return {session: pal.home.store.path_of(session).read_bytes() for session in pal.home.store.sessions()}


def blobs(pal: Pal) -> list[str]:
    return list(pal.home.blobs.addresses())


def skipped(pal: Pal, *words: str) -> list[str]:
    return [each["why"] for each in pal.json("import", *words, code=1)["skipped"]]


@pytest.mark.parametrize("below", ["", "sessions"], ids=["home", "sessions"])
def test_all_sessions_of_another_home_come_with_their_ids_bytes_and_blobs(pal: Pal, old: Pal, below: str) -> None:
    done = pal.json("import", str(old.home.folder / below))

    assert {file["format"] for file in done["files"]} == {"palimpsest"}
    assert (logs(pal), blobs(pal)) == (logs(old), blobs(old))
    assert len(logs(pal)) == 6
    assert all(pal.json("verify", session)["ok"] for session in logs(pal))
    assert pal("import", str(old.home.folder)).stdout == "nothing new in 6 sessions\n"
    (pal.home.folder / "imports.json").unlink()
    assert pal("import", str(old.home.folder)).stdout == "nothing new in 6 sessions\n"


def test_a_log_brings_its_base_and_its_sub_agents_along(pal: Pal, old: Pal) -> None:
    done = pal.json("import", str(old.home.store.path_of("a-fork")))

    assert sorted(file["session"] for file in done["files"]) == [SMALL, f"{SMALL}.1", "a-fork"]
    assert logs(pal) == {session: logs(old)[session] for session in (SMALL, f"{SMALL}.1", "a-fork")}


def test_a_log_under_another_name_is_the_session_it_says(pal: Pal, old: Pal, tmp_path: Path) -> None:
    copy = tmp_path / "backup.jsonl"
    copy.write_bytes(old.home.store.path_of(f"{SMALL}.1").read_bytes())
    pal.json("import", str(copy))

    assert pal.home.store.sessions() == [f"{SMALL}.1"]


def test_only_what_is_new_is_added_and_a_session_that_went_on_in_both_homes_stays(pal: Pal, old: Pal) -> None:
    path = str(old.home.store.path_of(f"{SMALL}.1"))
    pal.json("import", path)
    with old.home.open(f"{SMALL}.1") as log:
        log.append(UserSaid((Text("more"),)))
    assert pal.json("import", path)["events"] == 1
    assert logs(pal)[f"{SMALL}.1"] == logs(old)[f"{SMALL}.1"]
    # A home that is ahead of the other has nothing to take.
    with pal.home.open(f"{SMALL}.1") as log:
        log.append(UserSaid((Text("here"),)))
    os.utime(path)
    assert pal.json("import", path)["events"] == 0
    before = logs(pal)
    with old.home.open(f"{SMALL}.1") as log:
        log.append(UserSaid((Text("there"),)))

    (why,) = skipped(pal, path)
    assert why.startswith(f"session {SMALL}.1 of this home has other events from byte 0 on, so both were continued; `pal delete {SMALL}.1`")
    assert logs(pal) == before


def test_a_damaged_log_and_a_fork_without_its_base_are_not_taken(pal: Pal, old: Pal, tmp_path: Path) -> None:
    alone = tmp_path / "alone" / "a-fork.jsonl"
    alone.parent.mkdir()
    alone.write_bytes(old.home.store.path_of("a-fork").read_bytes())
    assert skipped(pal, str(alone)) == ["it is a fork whose base is not beside it; import both together"]
    path = old.home.store.path_of(f"{SMALL}.1")
    path.write_bytes(path.read_bytes().replace(b'"sub"', b'"bus"') + path.read_bytes().splitlines(keepends=True)[-1])
    (why,) = skipped(pal, str(path))
    assert why.startswith("the log is damaged: ")
    assert pal.home.store.sessions() == []


def test_a_damaged_blob_is_named_and_not_copied(pal: Pal, old: Pal) -> None:
    address = old.home.blobs.put(b"a picture")
    old.home.blobs.path(address).write_bytes(b"something")
    done = pal.json("import", str(old.home.store.path_of(SMALL)), code=1)

    assert [bad["why"] for file in done["files"] for bad in file["bad"]] == [f"blob {address} is damaged and was not copied"]
    assert address not in pal.home.blobs


def test_a_dry_run_writes_nothing_and_redaction_refuses_what_it_would_break(pal: Pal, old: Pal) -> None:
    assert pal.json("import", str(old.home.folder), "--dry-run")["sessions"] == 6
    assert {*skipped(pal, str(old.home.folder), "--redact")} == {
        "a log of this program is copied as it is; import it without --redact, and use `pal export ID --redact` for what leaves"
    }
    assert pal.home.store.sessions() == []


def test_the_home_itself_has_nothing_new(old: Pal) -> None:
    before = logs(old)
    assert old("import", str(old.home.folder)).stdout == "nothing new in 6 sessions\n"
    assert logs(old) == before


def test_a_folder_with_an_older_copy_of_a_log_gives_the_newest(pal: Pal, old: Pal, tmp_path: Path) -> None:
    path = old.home.store.path_of(SMALL)
    backups = tmp_path / "backups"
    for name, count in (("1", 5), ("2", 15), ("3", 9)):
        (backups / name).mkdir(parents=True)
        (backups / name / path.name).write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:count]))
    done = pal.json("import", str(backups))

    assert ([file["events"] for file in done["files"]], done["sessions"]) == ([5, 10, 0], 1)
    assert path.read_bytes().startswith(logs(pal)[SMALL])
