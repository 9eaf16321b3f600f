"""Snapshots of project folders: what is in them, what is left out and named, and that the user's repository is not touched."""

import os
import select
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from git_projects import Project

from palimpsest.core.errors import BadInput, StoreError
from palimpsest.stores.shadow_git import SavedFile, Shadow, ShadowGit, blob_id, find_git
from palimpsest.stores.snapshots import LIMITS, LeftOut, SnapshotLimits, read_snapshot, take_snapshot

pytestmark = pytest.mark.machine


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def shadow(tmp_path: Path, root: Path) -> Shadow:
    return Shadow(tmp_path / "home", root)


def contents(shadow: Shadow, limits: SnapshotLimits = LIMITS) -> dict[str, bytes]:
    """The contents of a new snapshot by path."""
    files = read_snapshot(shadow, take_snapshot(shadow, limits).id).files
    kept = {path: saved for path, saved in files.items() if saved.is_kept}
    return dict(zip(kept, shadow.contents(tuple(saved.oid for saved in kept.values())), strict=True))


def git_digest(root: Path) -> dict[str, str]:
    """A digest of each file of the user's repository."""
    return {str(path): sha256(path.read_bytes()).hexdigest() for path in sorted((root / ".git").rglob("*")) if path.is_file()}


def repository(root: Path) -> Project:
    project = Project(root)
    project.git("init", "-q", "-b", "main")
    project.git("config", "user.name", "u")
    project.git("config", "user.email", "u@example.com")
    project.git("config", "commit.gpgSign", "false")
    return project


def test_a_folder_without_a_repository_is_kept_with_links_and_executables(shadow: Shadow, root: Path) -> None:
    (root / "a.txt").write_bytes(b"one\r\ntwo\n")
    (root / "sub").mkdir()
    (root / "sub/run.sh").write_bytes(b"#!/bin/sh\n")
    (root / "sub/run.sh").chmod(0o755)
    (root / "outside").symlink_to("/etc/hostname")
    (root / "empty/inner").mkdir(parents=True)
    os.mkfifo(root / "pipe")
    found = read_snapshot(shadow, take_snapshot(shadow).id)
    assert found.files == {
        "a.txt": SavedFile("100644", blob_id(b"one\r\ntwo\n")),
        "sub/run.sh": SavedFile("100755", blob_id(b"#!/bin/sh\n")),
        "outside": SavedFile("120000", blob_id(b"/etc/hostname")),
    }
    assert found.left_out == (LeftOut("folder", "empty/"),)
    assert found.folders == {"sub", "empty"}


def test_an_unchanged_folder_has_the_same_snapshot_and_a_changed_one_another(shadow: Shadow, root: Path) -> None:
    (root / "a.txt").write_text("1")
    first = take_snapshot(shadow).id
    assert take_snapshot(shadow).id == first
    # The same size at nearly the same time: only the content tells them apart.
    (root / "a.txt").write_text("2")
    second = take_snapshot(shadow).id
    (root / "a.txt").write_text("1")
    assert (second == first, take_snapshot(shadow).id == first) == (False, True)


def test_names_with_line_ends_quotes_and_bytes_that_are_no_text_are_kept(shadow: Shadow, root: Path) -> None:
    names = ("new\nline", "quo'te\"s", "ta\tb", "caf\udce9", "-dash", "*.py", ":(top)x", " space ")
    for name in names:
        (root / name).write_text(name.encode("utf-8", "surrogateescape").hex())
    assert sorted(contents(shadow)) == sorted(names)


def test_ignored_large_and_nested_files_are_left_out_and_named(shadow: Shadow, root: Path) -> None:
    project = repository(root)
    project.put({".gitignore": "build/\n*.log\n", "build/out": "x", "x.log": "x", "small": "x", "large": "x" * 21})
    project.put({".git/info/exclude": "private\n", "private": "x", "nested/file": "x", "unborn/file": "x"})
    repository(root / "nested").git("add", "--all")
    Project(root / "nested").git("commit", "-qm", "one")
    repository(root / "unborn")
    found = read_snapshot(shadow, take_snapshot(shadow, SnapshotLimits(largest=20)).id)
    assert found.files == {
        ".gitignore": SavedFile("100644", blob_id(b"build/\n*.log\n")),
        "small": SavedFile("100644", blob_id(b"x")),
        "large": SavedFile("large", f"21-{(root / 'large').stat().st_mtime_ns}"),
    }
    assert {(each.reason, each.path) for each in found.left_out} == {
        ("ignored", "build/"),
        ("ignored", "x.log"),
        ("ignored", "private"),
        ("nested", "nested/"),
        ("nested", "unborn/"),
        ("large", "large"),
    }


def test_submodules_are_named_and_not_entered(tmp_path: Path, shadow: Shadow, root: Path) -> None:
    (tmp_path / "library").mkdir()
    repository(tmp_path / "library").commit("one", {"lib.py": "x"})
    project = repository(root)
    project.commit("one", {"a.py": "a"})
    project.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(tmp_path / "library"), "lib")
    assert sorted(contents(shadow)) == [".gitmodules", "a.py"]
    assert take_snapshot(shadow).left_out == (LeftOut("nested", "lib/"),)


def test_a_file_that_git_tracks_is_kept_although_it_is_ignored(shadow: Shadow, root: Path) -> None:
    project = repository(root)
    project.put({".gitignore": "*.conf\n", "kept.conf": "tracked", "other.conf": "ignored"})
    project.git("add", "--force", "kept.conf")
    assert contents(shadow) == {".gitignore": b"*.conf\n", "kept.conf": b"tracked"}


def test_a_file_stays_kept_when_a_rule_ignores_it_later(shadow: Shadow, root: Path) -> None:
    (root / "a.conf").write_text("1")
    take_snapshot(shadow)
    (root / ".gitignore").write_text("*.conf\n")
    (root / "a.conf").write_text("2")
    assert contents(shadow) == {".gitignore": b"*.conf\n", "a.conf": b"2"}


def test_a_folder_of_a_repository_heeds_the_rules_above_it(tmp_path: Path, root: Path) -> None:
    project = repository(root)
    project.put({".gitignore": "/part/out\n*.log\n", "part/a.py": "a", "part/out": "x", "part/x.log": "x", "b.py": "not in it"})
    shadow = Shadow(tmp_path / "home", root / "part")
    assert contents(shadow) == {"a.py": b"a"}
    assert take_snapshot(shadow).left_out == (LeftOut("ignored", "out"), LeftOut("ignored", "x.log"))


def test_a_folder_that_its_repository_ignores_is_kept_all_the_same(tmp_path: Path, root: Path) -> None:
    repository(root).put({".gitignore": "*\n", "part/a.py": "a", "part/sub/b.py": "b"})
    assert contents(Shadow(tmp_path / "home", root / "part")) == {"a.py": b"a", "sub/b.py": b"b"}
    assert contents(Shadow(tmp_path / "home", root / "part/sub")) == {"b.py": b"b"}


def test_an_empty_folder_of_a_repository_has_an_empty_snapshot(tmp_path: Path, root: Path) -> None:
    repository(root)
    (root / "part").mkdir()
    assert contents(Shadow(tmp_path / "home", root / "part")) == {}


def test_attributes_of_the_project_neither_convert_nor_start_anything(tmp_path: Path, shadow: Shadow, root: Path) -> None:
    project = repository(root)
    project.git("config", "filter.spy.clean", f"touch {tmp_path}/ran; cat")
    project.git("config", "filter.spy.required", "true")
    attributes = "* text=auto eol=lf\n*.sec filter=spy diff=spy\n*.id ident\n*.utf working-tree-encoding=UTF-16 text\n*.lfs filter=lfs\n"
    raw = {"crlf.txt": b"a\r\nb\r\n", "x.sec": b"secret\r\n", "x.id": b"$Id$\n", "x.utf": "\ufeffhä\n".encode("utf-16-le"), "x.lfs": b"big"}
    project.put({".gitattributes": attributes, **raw})
    assert contents(shadow) == {".gitattributes": attributes.encode(), **raw}
    assert not (tmp_path / "ran").exists()


def test_variables_and_settings_of_the_user_do_not_reach_our_git(
    tmp_path: Path, shadow: Shadow, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gitconfig").write_text(
        f"[core]\n\tfsmonitor = touch {tmp_path}/ran\n\texcludesFile = {tmp_path}/rules\n\tautocrlf = true\n"
    )
    (tmp_path / "rules").write_text("*\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", f"touch {tmp_path}/ran")
    (root / "a.txt").write_bytes(b"a\r\n")
    assert contents(shadow) == {"a.txt": b"a\r\n"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gitconfig", "home", "project", "rules"]


def test_a_repository_in_mid_merge_with_hooks_and_a_stash_stays_byte_equal(tmp_path: Path, shadow: Shadow, root: Path) -> None:
    project = repository(root)
    project.commit("one", {"a.py": "1\n", "b.py": "b\n"})
    project.git("checkout", "-qb", "side")
    project.commit("two", {"a.py": "2\n"})
    project.git("checkout", "-q", "main")
    project.commit("three", {"a.py": "3\n"})
    project.put({"b.py": "stashed\n"})
    project.git("stash")
    with pytest.raises(AssertionError, match="CONFLICT"):
        project.git("merge", "side")
    for hook in ("post-index-change", "pre-commit", "post-checkout", "reference-transaction", "pre-auto-gc"):
        project.put({f".git/hooks/{hook}*": f"#!/bin/sh\ntouch {tmp_path}/ran\n"})
    project.put({"new.py": "new\n"})
    before = git_digest(root)
    found = contents(shadow)
    assert found["a.py"].startswith(b"<<<<<<< HEAD\n3\n=======\n2\n>>>>>>> side\n")
    assert (found["b.py"], found["new.py"]) == (b"b\n", b"new\n")
    assert git_digest(root) == before
    assert not (tmp_path / "ran").exists()


def test_a_detached_work_tree_of_another_repository_is_kept(tmp_path: Path, root: Path) -> None:
    project = repository(root)
    project.commit("one", {"a.py": "1\n"})
    project.put({".git/info/exclude": "private\n"})
    project.git("worktree", "add", "-q", "--detach", str(tmp_path / "other"))
    Project(tmp_path / "other").put({"private": "x", "b.py": "b"})
    before = git_digest(root)
    assert contents(Shadow(tmp_path / "home", tmp_path / "other")) == {"a.py": b"1\n", "b.py": b"b"}
    assert git_digest(root) == before


def test_a_home_inside_of_the_project_is_not_in_its_snapshots(root: Path) -> None:
    (root / "a.py").write_text("a")
    shadow = Shadow(root / "my [home]", root)
    take_snapshot(shadow)
    assert contents(shadow) == {"a.py": b"a"}


def test_files_and_folders_that_change_places_are_followed(shadow: Shadow, root: Path) -> None:
    Project(root).put({"one/x": "x", "one/y": "y", "two": "2", "three/x": "x"})
    take_snapshot(shadow)
    (root / "one/x").unlink()
    (root / "one/y").unlink()
    (root / "one").rmdir()
    (root / "two").unlink()
    (root / "three").rename(root / "four")
    Project(root).put({"one": "file", "two/x": "inner", "three@": "four"})
    assert contents(shadow) == {"one": b"file", "two/x": b"inner", "three": b"four", "four/x": b"x"}


def test_a_damaged_index_and_a_lock_of_a_killed_git_are_mended(shadow: Shadow, root: Path) -> None:
    (root / "a.py").write_text("a")
    first = take_snapshot(shadow).id
    (shadow.folder / "index").write_bytes(b"DIRC")
    (shadow.folder / "index.lock").write_bytes(b"")
    assert take_snapshot(shadow).id == first


def test_more_than_two_hundred_new_files_are_packed_and_read_alike(shadow: Shadow, root: Path) -> None:
    files = {f"f{number}": b"%d\n" % number for number in range(300)}
    Project(root).put(files)
    assert contents(shadow) == files
    assert len(list(shadow.folder.glob("objects/pack/*.pack"))) == 1


def test_too_many_files_and_too_many_bytes_are_refused(shadow: Shadow, root: Path) -> None:
    Project(root).put({"a": "12345", "b": "12345", "c": "12345"})
    with pytest.raises(BadInput, match="the folder has more than 2 files for a snapshot"):
        take_snapshot(shadow, SnapshotLimits(files=2))
    with pytest.raises(BadInput, match="the folder has more than 14 bytes of new files"):
        take_snapshot(shadow, SnapshotLimits(total=14))


def test_without_git_and_for_the_whole_home_folder_there_are_no_snapshots(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Project(root).put({"bin/git*": "#!/bin/sh\n"})
    with pytest.raises(BadInput, match="snapshots of files need git, which is not installed"):
        Shadow(tmp_path / "home", root, search_path=f"{root}/bin:bin:.")
    monkeypatch.setenv("HOME", str(root / "user"))
    for folder in (root, root / "user", Path("/")):
        with pytest.raises(BadInput, match="the folder holds the whole home folder"):
            Shadow(tmp_path / "home", folder)


@pytest.mark.parametrize("name", [".gitignore", "src/.gitattributes"])
def test_a_named_pipe_that_git_would_wait_for_is_named(shadow: Shadow, root: Path, name: str) -> None:
    (root / "src").mkdir()
    (root / "src" / "a").write_text("1")
    os.mkfifo(root / name)
    program = find_git(root)
    assert program is not None
    shadow.git = ShadowGit(program, shadow.folder, seconds=6)
    with pytest.raises(StoreError, match=f"failed: {root / name} is a named pipe, which it would wait for; remove it"):
        take_snapshot(shadow)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with the one that started it")
def test_git_ends_when_this_program_is_killed(tmp_path: Path, root: Path) -> None:
    os.mkfifo(root / ".gitignore")
    script = (
        "import sys; from pathlib import Path; from palimpsest.stores.shadow_git import Shadow; "
        "from palimpsest.stores.snapshots import take_snapshot; take_snapshot(Shadow(*map(Path, sys.argv[1:])))"
    )
    with subprocess.Popen([sys.executable, "-c", script, tmp_path / "home", root]) as program:
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children")
        while not (found := children.read_text()) or Path(f"/proc/{int(found)}/comm").read_text() != "git\n":
            os.sched_yield()
        git = os.pidfd_open(int(found))
        program.kill()
        ended = select.poll()
        ended.register(git, select.POLLIN)
        assert ended.poll(10_000) == [(git, select.POLLIN)]
        os.close(git)
