"""What `pal verify` proves: blobs by their digests, the link that stands for a log, and forks as far as their base reaches."""

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


def test_a_link_that_was_kept_shows_a_chain_that_was_computed_again(pal: Pal) -> None:
    small(pal.home)
    path, kept = pal.home.store.path_of(SMALL), pal.json("verify", SMALL)["link"]
    with Log.open(pal.home.store, SMALL, FixedClock(BEGAN), write=True) as log:
        log.append(UserSaid((Text("and then?"),)))
    assert pal.json("show", SMALL)["events"][14]["prev"] == kept

    whole = path.read_bytes()
    path.with_suffix(".checkpoint").unlink()
    path.write_bytes(rechained(whole, b"What is in a.py?", b"What is in b.py?"))
    assert pal("verify", SMALL).exit_code == 0
    assert pal.json("show", SMALL)["events"][14]["prev"] != kept


def test_the_options_that_kept_and_compared_links_say_what_does_it_now(pal: Pal) -> None:
    small(pal.home)
    noted, compared = pal("verify", SMALL, "--note"), pal("verify", SMALL, "--against", "links.txt")
    advice = "`pal verify ID` prints the link; keep it with `git notes --ref=palimpsest append"
    assert (noted.exit_code, noted.stdout, noted.stderr.startswith(f"pal: nothing was noted: {advice}")) == (
        0,
        pal("verify", SMALL).stdout,
        True,
    )
    # A comparison that is not made must not look like one that holds.
    assert (compared.exit_code, compared.stdout, f"--against is gone: {advice}" in compared.stderr) == (2, "", True)


@pytest.mark.parametrize("command", [("verify", SMALL), ("export", SMALL, "--to", "markdown"), ("config",)], ids=lambda words: words[0])
def test_a_configuration_with_the_setting_of_notes_in_git_is_as_good_as_before(pal: Pal, command: tuple[str, ...]) -> None:
    small(pal.home)
    (pal.home.folder / "config.toml").write_text("[files]\ngit_notes = true\nlargest_mb = 7\n")
    result = pal(*command)
    assert (result.exit_code, result.stderr) == (0, "")


def test_an_export_prints_the_link(pal: Pal, tmp_path: Path) -> None:
    small(pal.home)
    result = pal("export", SMALL, "--to", "markdown", "--out", str(tmp_path / "out.md"))
    assert result.stderr.endswith(f"14 events, link 13:{pal.json('verify', SMALL)['link']}\n")


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
