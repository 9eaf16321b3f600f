"""What `pal verify` proves: blobs by their digests, links that were kept elsewhere, and forks as far as their base reaches."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pal_runs import BEGAN, SMALL, Pal, small

from palimpsest.core.events import UserSaid
from palimpsest.core.items import Image, Text
from palimpsest.core.lines import body_bytes, decode_line, digest_of, encode_line, link_of
from palimpsest.core.log import Log
from palimpsest.stores.in_memory import FixedClock

FORK = "20310401-100000-fork"


def rechained(data: bytes, old: bytes, new: bytes) -> bytes:
    """A log with other words in it and a chain that was computed again, as any program that can write the file may do."""
    lines, link = [], ""
    for line in data.splitlines(keepends=True):
        event, body = decode_line(line, ""), body_bytes(line).replace(old, new)
        lines.append(encode_line(event.seq, event.parent, event.at, link, body))
        link = link_of(link, event.seq, event.parent, event.at, digest_of(body))
    return b"".join(lines)


def forked(pal: Pal) -> None:
    """A fork of the small session with a message of its own."""
    small(pal.home)
    with Log.open(pal.home.store, SMALL, FixedClock(BEGAN)) as log, log.fork(pal.home.store, FORK) as fork:
        fork.append(UserSaid((Text("and in the fork?"),)))


def test_a_link_that_was_kept_finds_a_chain_that_was_computed_again_and_lines_that_were_cut(pal: Pal, tmp_path: Path) -> None:
    small(pal.home)
    path, kept = pal.home.store.path_of(SMALL), tmp_path / "links.txt"
    kept.write_text(pal("verify", "--all").stdout)
    link = pal.json("verify", SMALL)["link"]
    for word in (link, f"13:{link}", str(kept)):
        assert pal("verify", SMALL, "--against", word).exit_code == 0

    whole = path.read_bytes()
    path.with_suffix(".checkpoint").unlink()
    path.write_bytes(rechained(whole, b"What is in a.py?", b"What is in b.py?"))
    assert pal("verify", SMALL).exit_code == 0
    changed = "event 13 has not the link that was kept: it or an event before it was changed, and the chain computed again"
    assert [error["message"] for error in pal.json("verify", SMALL, "--against", str(kept), code=1)["errors"]] == [changed]
    assert pal("verify", SMALL, "--against", link).exit_code == 1

    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:-2]))
    assert pal("verify", SMALL).exit_code == 0
    cut = "the log ends with event 11, and a link of event 13 was kept: lines were cut from its end"
    found = pal.json("verify", SMALL, "--against", f"13:{link}", code=1)
    assert [(error["kind"], error["message"]) for error in found["errors"]] == [("against", cut)]
    assert "--repair" not in pal("verify", SMALL, "--against", f"13:{link}").stdout


@pytest.mark.parametrize("word", ["nowhere.txt", "12345", "0" * 63])
def test_what_is_no_link_and_no_file_is_refused(pal: Pal, word: str) -> None:
    small(pal.home)
    result = pal("verify", SMALL, "--against", word)
    assert (result.exit_code, result.stderr) == (2, f"pal: {word}: this is neither a link (NUMBER:64 hex digits) nor a file\n")


def test_an_export_prints_the_link(pal: Pal, tmp_path: Path) -> None:
    small(pal.home)
    result = pal("export", SMALL, "--to", "markdown", "--out", str(tmp_path / "out.md"))
    assert result.stderr.endswith(f"14 events, link 13:{pal.json('verify', SMALL)['link']}\n")


def test_links_are_noted_in_git_when_asked_for_and_found_there(pal: Pal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(pal.home)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop").mkdir()
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "tester")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "tester@example.org")
    with Log.open(pal.home.store, SMALL, FixedClock(BEGAN)) as log:
        folder = log.opened.cwd or "."

    def git(*words: str) -> str:
        return subprocess.run(("git", "-C", folder, *words), capture_output=True, text=True, check=True).stdout

    refused = pal("verify", SMALL, "--note")
    assert (refused.exit_code, "was not noted" in refused.stderr) == (0, True)
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "first")
    assert pal("verify", SMALL, "--note").exit_code == 0
    note = git("notes", "--ref=palimpsest", "show", "HEAD")
    assert note == f"pal session {SMALL} 13:{pal.json('verify', SMALL)['link']}\n"
    assert git("notes", "list") == ""
    (tmp_path / "kept.txt").write_text(note)
    assert pal("verify", SMALL, "--against", str(tmp_path / "kept.txt")).exit_code == 0
    assert pal("verify", SMALL, "--note").stderr == ""
    assert git("notes", "--ref=palimpsest", "show", "HEAD") == note

    # A name that stands for a branch, as an archive can bring it.
    head = git("rev-parse", "HEAD")
    git("symbolic-ref", "refs/notes/palimpsest", f"refs/heads/{git('branch', '--show-current').strip()}")
    assert "refs/notes/palimpsest stands for refs/heads/" in pal("verify", SMALL, "--note").stderr
    assert git("rev-parse", "HEAD") == head


@pytest.mark.parametrize("command", [("verify", SMALL), ("export", SMALL, "--to", "markdown")], ids=["verify", "export"])
def test_links_are_noted_in_git_by_a_setting_that_is_off_by_default(
    pal: Pal, command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(pal.home)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop").mkdir()
    assert pal(*command).stderr == ""
    (pal.home.folder / "config.toml").write_text("[files]\ngit_notes = true\n")
    without_git = "pal: 1 session not noted (files.git_notes): no git with a commit there; `pal verify --note` says more\n"
    assert (pal(*command).exit_code, pal(*command).stderr) == (0, without_git)

    identity = ("-c", "user.name=tester", "-c", "user.email=tester@example.org", "-c", "commit.gpgSign=false")
    for words in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "first")):
        subprocess.run(("git", "-C", "shop", *identity, *words), check=True)
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "tester")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "tester@example.org")
    assert pal(*command).stderr.startswith(f"pal: noted in shop: pal session {SMALL} 13:")


def test_a_damaged_blob_is_a_finding_and_the_request_says_what_is_missing(pal: Pal) -> None:
    small(pal.home)
    address = pal.home.blobs.put(b"a picture")
    with Log.open(pal.home.store, SMALL, FixedClock(BEGAN), write=True) as log:
        seq = log.append(UserSaid((Image("image/png", blob=address),))).seq
    assert pal("verify", SMALL).exit_code == 0
    path = pal.home.blobs.path(address)
    path.write_bytes(b"a pictuRe")

    (error,) = pal.json("verify", SMALL, code=1)["errors"]
    assert (error["kind"], error["message"]) == ("blob", f"event {seq} needs blob {address}, which is damaged ({path})")
    for words in (("show", SMALL, "--request", "next"), ("export", SMALL, "--to", "messages")):
        result = pal(*words)
        assert "[image image/png not shown: its bytes are damaged]" in result.stdout
        assert f"{path}: blob {address} is damaged: its 9 bytes have another digest; the request has a text in its place" in result.stderr


def test_a_fork_whose_base_is_gone_is_read_as_far_as_it_goes_and_is_not_written(pal: Pal) -> None:
    forked(pal)
    assert pal("verify", FORK).exit_code == 0
    path = pal.home.store.path_of(SMALL)
    path.rename(path.with_suffix(".away"))

    result = pal("verify", FORK, "--repair")
    assert result.exit_code == 1
    assert f"base: the base of the fork, session {SMALL}, cannot be read" in result.stdout
    assert f"verify {FORK} --repair" not in result.stdout
    for words in (("show", FORK), ("context", FORK), ("show", FORK, "--events"), ("export", FORK, "--to", "markdown"), ("audit", FORK)):
        result = pal(*words)
        assert result.exit_code == 0, result.output
        assert f"the base of the fork, session {SMALL}, does not exist; only its own events, from 14 on, can be read" in result.stderr
    assert "and in the fork?" in pal("show", FORK).stdout
    assert pal("pin", FORK, "15.0").exit_code == 2

    path.with_suffix(".away").rename(path)
    assert pal("show", FORK).stderr == ""


def test_damage_in_the_part_of_a_base_that_a_fork_reads_is_a_finding_of_the_fork(pal: Pal) -> None:
    forked(pal)
    path = pal.home.store.path_of(SMALL)
    path.write_bytes(path.read_bytes().replace(b"What is in a.py?", b"What is in b.py?", 1))
    found = pal.json("verify", FORK, code=1)
    assert [error["kind"] for error in found["errors"]] == ["base"]
    assert f"in its base {SMALL}: event 3 does not continue the chain" in found["errors"][0]["message"]
    assert pal("verify", SMALL, "--repair").exit_code == 0
    assert pal("verify", FORK, "--repair").exit_code == 0
    assert pal("show", FORK).exit_code == 0


def test_a_pipe_in_the_place_of_a_checkpoint_or_a_log_is_not_waited_for(pal: Pal) -> None:
    small(pal.home)
    path = pal.home.store.path_of(SMALL)
    path.with_suffix(".checkpoint").unlink()
    os.mkfifo(path.with_suffix(".checkpoint"))
    assert pal("show", SMALL).exit_code == 0
    os.mkfifo(pal.home.store.path_of("pipe"))
    assert pal("verify", "pipe").exit_code == 2
    assert pal("verify").exit_code == 1


def test_files_of_other_programs_in_a_folder_are_neither_verified_nor_repaired(pal: Pal, tmp_path: Path) -> None:
    small(pal.home)
    other = {"data.jsonl": b'{"a": 1}\n', "notes.jsonl": b"not JSON\n"}
    for name, content in other.items():
        (tmp_path / name).write_bytes(content)
    damaged = (pal.home.folder / "sessions" / f"{SMALL}.jsonl").read_bytes().replace(b"seq", b"num", 1)
    (tmp_path / f"{SMALL}.jsonl").write_bytes(damaged)

    found = pal("verify", str(tmp_path))
    assert (found.exit_code, f"`pal verify {tmp_path / SMALL}.jsonl --repair`" in found.stdout) == (1, True)
    repaired = pal("verify", str(tmp_path), "--repair")

    assert repaired.stderr == (
        f"pal: {tmp_path}/data.jsonl: this names no session: JSON of no known program; it was left out\n"
        f"pal: {tmp_path}/notes.jsonl: this names no session: text of no known program; it was left out\n"
    )
    assert {name: (tmp_path / name).read_bytes() for name in other} == other
    assert (tmp_path / f"{SMALL}.damaged-1").read_bytes() == damaged
    assert pal("verify", str(tmp_path / "data.jsonl"), "--repair").exit_code == 2


def test_all_logs_are_those_of_notes_too_and_a_pipe_in_the_place_of_one_is_not_waited_for(pal: Pal) -> None:
    small(pal.home)
    pal("memory", "add", "The release branch is called stable.")
    [log] = (pal.home.folder / "memory").glob("*/memory.jsonl")
    assert [each["session"] for each in pal.json("verify", "--all")["sessions"]] == [SMALL, str(log)]
    data = bytearray(log.read_bytes())
    data[-20] ^= 1
    log.write_bytes(data)
    found = pal.json("verify", "--all", code=1)
    assert [(each["session"], each["ok"]) for each in found["sessions"]] == [(SMALL, True), (str(log), False)]
    assert pal("verify", "--all", "--repair").exit_code == 0
    assert pal("verify", "--all").exit_code == 0
    log.unlink()
    os.mkfifo(log)
    assert [each["message"] for each in pal.json("verify", "--all", code=1)["errors"]] == ["this is not a file"]


@pytest.mark.parametrize("instead", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to(path.name)], ids=["pipe", "folder", "loop"])
def test_what_has_taken_the_place_of_a_log_is_named_and_hides_no_other_session(pal: Pal, instead: Callable[[Path], None]) -> None:
    small(pal.home)
    log = pal.home.folder / "sessions" / "other.jsonl"
    instead(log)
    found = pal.json("verify", "--all", code=1)
    assert [(each["session"], each["ok"]) for each in found["sessions"]] == [(SMALL, True), ("other", False)]
    assert [each["message"] for each in found["errors"]] == ["this is not a file"]
    assert [each["id"] for each in pal.json("sessions")] == [SMALL]


def test_a_log_of_which_only_the_checkpoint_is_left_is_missed_and_a_deleted_session_is_not(pal: Pal) -> None:
    small(pal.home)
    pal("memory", "add", "The release branch is called stable.")
    [memory] = (pal.home.folder / "memory").glob("*/memory.jsonl")
    for log in (memory, pal.home.store.path_of(SMALL)):
        assert log.with_suffix(".checkpoint").exists()
        log.rename(log.with_suffix(".away"))
        errors = pal.json("verify", "--all", code=1)["errors"]
        assert [(each["kind"], each["where"]) for each in errors] == [("missing", str(log))]
        log.with_suffix(".away").rename(log)
    assert pal("delete", SMALL, "--yes").exit_code == 0
    assert pal("verify", "--all").exit_code == 0


@pytest.mark.parametrize("name", ["cards.toml", "tombstones.jsonl", ".key", ".forgetting"])
def test_a_pipe_in_the_place_of_a_file_of_the_home_is_not_waited_for(pal: Pal, name: str) -> None:
    pal("memory", "add", "The release branch is called stable.")
    [memory] = (pal.home.folder / "memory").glob("*/memory.jsonl")
    place = pal.home.folder / name if name == "cards.toml" else memory.parent / name
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    # In a process that is ended if it waits.
    program = """if True:
        from click.testing import CliRunner
        from pal.cli.main import cli
        forget = ("memory", "forget", "project_the_release_branch_is_called_stable", "--yes")
        for words in (("sessions",), ("memory", "list"), ("memory", "add", "Another one."), forget, ("doctor",)):
            done = CliRunner().invoke(cli, words, catch_exceptions=False)
            print(words, done.exit_code, done.stderr.count("Traceback"))
    """
    environment = {**os.environ, "PAL_HOME": str(pal.home.folder)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr, [line.split()[-1] for line in done.stdout.splitlines()]) == (0, "", ["0"] * 5)


def test_after_the_repair_of_an_emptied_log_all_is_valid_but_forks_that_rest_on_it_and_that_is_said(pal: Pal) -> None:
    small(pal.home)
    log = pal.home.folder / "sessions" / f"{SMALL}.jsonl"
    log.write_bytes(b"")
    assert pal("verify", "--all", "--repair").exit_code == 0
    assert pal("verify", "--all").exit_code == 0
    pal.home.store.remove(SMALL)
    forked(pal)
    log.write_bytes(b"")
    pal("verify", SMALL, "--repair")
    left = pal("verify", "--all")
    assert left.exit_code == 1
    assert "a fork that rests on them can only be deleted" in left.stdout
