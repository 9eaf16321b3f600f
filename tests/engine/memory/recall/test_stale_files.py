"""Cited files of a project, compared with their bytes now."""

import os
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest
from msgspec.structs import replace
from recalling_desk import note

from palimpsest.memory.note_evidence import StaleFiles

pytestmark = pytest.mark.machine

NOTE = note("project_a", "port", "The port is set in app.py.")


def digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:12]


@pytest.mark.states("ME-18")
def test_a_changed_file_is_found_and_one_that_is_changed_back_is_not(tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    file.write_bytes(b"PORT = 1\n")
    files, note = StaleFiles(tmp_path), replace(NOTE, files=(f"app.py@{digest(b'PORT = 1' + bytes([10]))}",))
    assert files.changed(note) == ()
    file.write_bytes(b"PORT = 2\n")
    os.utime(file, ns=(1, 1))
    assert files.changed(note) == ("app.py",)
    file.write_bytes(b"PORT = 1\n")
    os.utime(file, ns=(2, 2))
    assert files.changed(note) == ()
    file.unlink()
    assert files.changed(note) == ("app.py",)


def test_files_outside_of_the_project_count_as_changed(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    secret = tmp_path / "secret"
    secret.write_bytes(b"x")
    (root / "link").symlink_to(secret)
    files = StaleFiles(root)
    cited = tuple(f"{path}@{digest(b'x')}" for path in ("../secret", str(secret), "link", ".", "a\0b"))
    assert files.changed(replace(NOTE, files=cited)) == ("../secret", str(secret), "link", ".", "a\0b")


@pytest.mark.states("ME-18")
def test_a_note_whose_commit_is_gone_is_stale(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_bytes(b"x")
    words = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgSign=false"]
    subprocess.run([*words, "init", "-q"], check=True)
    subprocess.run([*words, "commit", "-q", "--allow-empty", "-m", "one"], check=True)
    head = subprocess.run([*words, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    files = StaleFiles(tmp_path)
    notes = [replace(NOTE, files=(f"app.py@{digest(b'x')}@{commit}",)) for commit in (head, head[:10], "0" * 40, "deadbeef")]
    assert [files.changed(note) for note in notes] == [(), (), ("app.py",), ("app.py",)]


def test_without_a_repository_no_commit_is_missed(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_bytes(b"x")
    assert StaleFiles(tmp_path).changed(replace(NOTE, files=(f"app.py@{digest(b'x')}@deadbeef",))) == ()
