"""Differences of two snapshots: the files, what is not known to differ, and a diff that stays within its size."""

import os
from pathlib import Path

import pytest

from palimpsest.core.errors import BadInput, StoreError
from palimpsest.stores.shadow_git import Shadow
from palimpsest.stores.snapshots import ChangedFile, Patch, SnapshotLimits, changed_files, patch_between, take_snapshot

pytestmark = pytest.mark.machine

LIMITS = SnapshotLimits(largest=1_000)


@pytest.fixture
def shadow(tmp_path: Path) -> Shadow:
    (tmp_path / "project").mkdir()
    return Shadow(tmp_path / "home", tmp_path / "project")


def kept(shadow: Shadow) -> str:
    with shadow.locked():
        return take_snapshot(shadow, LIMITS).id


def sections(patch: Patch) -> list[str]:
    return [line.split()[2] for line in patch.data.decode().splitlines() if line.startswith("diff --git ")]


def test_text_binary_large_and_linked_files_are_named_with_what_happened(shadow: Shadow) -> None:
    root = shadow.root
    (root / "a.txt").write_text("1\n2\n")
    (root / "gone.txt").write_text("1\n")
    (root / "large").write_bytes(b"x" * 2_000)
    (root / "link").symlink_to("a.txt")
    (root / "same").write_text("s\n")
    before = kept(shadow)
    (root / "a.txt").write_text("1\n3\n4\n")
    (root / "gone.txt").unlink()
    (root / "large").write_bytes(b"x" * 2_001)
    (root / "link").unlink()
    (root / "link").write_text("a file now\n")
    (root / "new.bin").write_bytes(b"a\0b")
    after = kept(shadow)
    assert changed_files(shadow, before, after) == (
        ChangedFile("a.txt", "changed", 2, 1),
        ChangedFile("gone.txt", "deleted", 0, 1),
        ChangedFile("large", "changed"),
        ChangedFile("link", "changed", 1, 1),
        ChangedFile("new.bin", "created"),
    )
    assert (changed_files(shadow, after, after), patch_between(shadow, after, after)) == ((), Patch())


@pytest.mark.parametrize("name", ["secret", "se cret", 'a"b', "a\\b", "a\tb\nc", "a\x01\x7f", "é", os.fsdecode(b"a\xff"), "d/e"])
def test_a_file_that_is_ignored_in_one_snapshot_is_not_said_to_differ(shadow: Shadow, name: str) -> None:
    (shadow.root / name).parent.mkdir(exist_ok=True)
    (shadow.root / name).write_text("1\n")
    (shadow.root / "z").write_text("1\n")
    before = kept(shadow)
    (shadow.root / ".gitignore").write_text("*\n!.gitignore\n!z\n")
    (shadow.root / "z").write_text("2\n")
    after = kept(shadow)
    assert changed_files(shadow, before, after) == (ChangedFile(".gitignore", "created", 3, 0), ChangedFile("z", "changed", 1, 1))
    assert sections(patch_between(shadow, before, after)) == ["a/.gitignore", "a/z"]
    assert sections(patch_between(shadow, after, before)) == ["a/.gitignore", "a/z"]


def test_a_diff_has_whole_files_up_to_its_size_and_counts_the_others(shadow: Shadow) -> None:
    before = kept(shadow)
    for name in ("a", "b", "c"):
        (shadow.root / name).write_text(f"{name}\n" * 50)
    after = kept(shadow)
    whole = patch_between(shadow, before, after)
    assert (sections(whole), whole.left_out) == (["a/a", "a/b", "a/c"], 0)
    assert patch_between(shadow, before, after, len(whole.data)) == whole
    first = whole.data[: whole.data.index(b"diff --git a/b")]
    assert patch_between(shadow, before, after, len(whole.data) - 1) == Patch(whole.data[: whole.data.index(b"diff --git a/c")], 1)
    assert patch_between(shadow, before, after, len(first)) == Patch(first, 2)
    assert patch_between(shadow, before, after, 0) == Patch(b"", 3)
    with pytest.raises(BadInput, match="cannot be -1 bytes"):
        patch_between(shadow, before, after, -1)


def test_a_snapshot_that_is_missing_is_an_error(shadow: Shadow) -> None:
    here = kept(shadow)
    with pytest.raises(StoreError):
        changed_files(shadow, here, "0" * 40)
    with pytest.raises(StoreError):
        patch_between(shadow, here, "0" * 40)


def test_an_object_that_is_missing_or_a_pipe_is_said_and_not_waited_for(shadow: Shadow) -> None:
    (shadow.root / "a.txt").write_text("1\n")
    before = kept(shadow)
    (shadow.root / "a.txt").write_text("2\n")
    after = kept(shadow)
    objects = [path for path in (shadow.folder / "objects").glob("??/*") if path.is_file()]
    assert len(objects) >= 6
    for path in objects:
        data = path.read_bytes()
        path.unlink()
        with pytest.raises(StoreError):
            [changed_files(shadow, before, after), patch_between(shadow, before, after)]
        path.write_bytes(data)
    objects[0].unlink()
    os.mkfifo(objects[0])
    with pytest.raises(StoreError, match="this is no file, so that the snapshot cannot be read"):
        changed_files(shadow, before, after)
