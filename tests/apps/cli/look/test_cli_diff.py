"""`pal diff`: what turns changed in files, as people, pipes and programs read it."""

import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from file_turns import Sessions
from pal_runs import SMALL, Pal, small

from palimpsest.core.events import EventRef, Failed, FilesSnapshotted, SessionOpened, TurnStarted
from palimpsest.core.log import Log

pytestmark = pytest.mark.machine


@pytest.fixture
def work(tmp_path: Path) -> Sessions:
    """Two turns, and changes of the user between and after them."""
    found = Sessions(tmp_path)
    found.project.put({"a.py": "1\n2\n", "gone.py": "1\n", "mine.txt": "old\n"})
    found.shell("echo new > a.py; rm gone.py; printf 'a\\0b' > logo.png")
    (found.root / "mine.txt").write_text("mine\n")
    found.shell("echo more >> a.py")
    (found.root / "a.py").write_text("later\n")
    return found


FIRST = """\
diff --git a/a.py b/a.py
--- a/a.py
+++ b/a.py
@@ -1,2 +1 @@
-1
-2
+new
diff --git a/gone.py b/gone.py
deleted file mode 100644
--- a/gone.py
+++ /dev/null
@@ -1 +0,0 @@
-1
diff --git a/logo.png b/logo.png
new file mode 100644
Binary files /dev/null and b/logo.png differ
"""
SECOND = """\
diff --git a/a.py b/a.py
--- a/a.py
+++ b/a.py
@@ -1 +1,2 @@
 new
+more
"""


def without_ids(text: str) -> str:
    """A diff without the lines that have ids of contents."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("index "))


def test_each_turn_has_a_diff_without_the_changes_of_the_user(pal: Pal, work: Sessions) -> None:
    shown = pal("diff", work.session)
    snapshots = [value["events"][0] for value in pal.json("diff", work.session)]
    first, second = (f"# turn {turn}, event {seq} in {work.root}\n" for turn, seq in enumerate(snapshots, 1))
    assert (without_ids(shown.stdout), shown.stderr) == (first + FIRST + second + SECOND, "")
    assert without_ids(pal("diff", work.session, "--turn", "2").stdout) == second + SECOND
    assert pal("diff", work.session, "--turn", "-1").stdout == pal("diff", work.session, "--turn", "2").stdout


def test_programs_get_files_and_the_diff(pal: Pal, work: Sessions) -> None:
    first, second = pal.json("diff", work.session)
    assert {**first, "events": [], "diff": without_ids(first["diff"])} == {
        "turn": 1,
        "events": [],
        "folder": str(work.root),
        "certain": True,
        "problem": "",
        "files": [
            {"path": "a.py", "action": "changed", "added": 1, "removed": 2},
            {"path": "gone.py", "action": "deleted", "added": 0, "removed": 1},
            {"path": "logo.png", "action": "created", "added": None, "removed": None},
        ],
        "diff": FIRST,
        "left_out": 0,
    }
    assert without_ids(second["diff"]) == SECOND
    (stat,) = pal.json("diff", work.session, "--turn", "2", "--stat")
    assert stat == {name: value for name, value in second.items() if name not in {"diff", "left_out"}}


def test_the_files_are_listed_with_their_lines(pal: Pal, work: Sessions) -> None:
    assert pal("diff", work.session, "--stat", "--turn", "1").stdout.splitlines()[1:] == [
        "  changed   a.py  +1 -2",
        "  deleted   gone.py  +0 -1",
        "  created   logo.png  binary or large",
        "  3 files, +1 -3",
    ]


def test_a_piped_diff_is_a_patch_that_takes_the_turn_back(pal: Pal, work: Sessions) -> None:
    (work.root / "a.py").write_text("new\nmore\n")
    patch = pal("diff", work.session, "--turn", "-1").stdout
    subprocess.run(["git", "apply", "-R"], cwd=work.root, input=patch.encode(), check=True)
    assert (work.root / "a.py").read_text() == "new\n"


def test_a_large_diff_leaves_files_out_and_says_so(pal: Pal, tmp_path: Path) -> None:
    work = Sessions(tmp_path)
    work.largest = 4 * 1024 * 1024
    work.project.put({"a.txt": "1\n"})
    work.shell("echo 2 > a.txt; seq 300000 > b.txt; echo 3 > c.txt")
    shown = pal("diff", work.session)
    assert without_ids(shown.stdout).splitlines()[1:] == [
        *("diff --git a/a.txt b/a.txt", "--- a/a.txt", "+++ b/a.txt", "@@ -1 +1 @@", "-1", "+2")
    ]
    assert shown.stderr == "pal: 2 more files of turn 1 are not shown; --stat lists all\n"
    assert pal("diff", work.session, "--stat").stdout.splitlines()[-1] == "  3 files, +300,002 -1"


def test_a_session_without_snapshots_says_why(pal: Pal, work: Sessions) -> None:
    small(pal.home)
    reason = "no snapshots of files: no tool that may change files ran, or snapshots were off (files.snapshots)\n"
    shown = pal("diff", SMALL)
    assert (shown.exit_code, shown.stdout, shown.stderr) == (0, "", f"this session has {reason}")
    assert pal.json("diff", SMALL) == []
    Log.create(pal.home.store, SessionOpened("child", opener=EventRef(work.session, 4)), pal.home.clock).close()
    assert pal("diff", "child").stderr == (
        f"this session has no snapshots of files: those of a sub-agent are in the session of its parent, {work.session}\n"
    )
    wrong = pal("diff", work.session, "--turn", "3")
    assert (wrong.exit_code, wrong.stderr) == (2, f"pal: {work.session}: there is no turn 3; this session has 2\n")


def test_a_diff_that_lacks_an_object_of_a_snapshot_says_so_and_fails(pal: Pal, work: Sessions) -> None:
    assert pal.home.folder is not None
    for path in (pal.home.folder / "snapshots").rglob("objects/??/*"):
        path.chmod(0o600)
        path.unlink()
    shown = pal("diff", work.session)
    assert (shown.exit_code, shown.stdout, shown.stderr.count("\n")) == (1, "", 2)
    assert [bool(value["problem"]) for value in pal.json("diff", work.session, code=1)] == [True, True]


def test_turns_that_were_cut_off_or_could_not_be_kept_are_named(pal: Pal, work: Sessions) -> None:
    with Log.open(pal.home.store, work.session, pal.home.clock, write=True) as log:
        known = next(event.body for event in log.events() if isinstance(event.body, FilesSnapshotted))
        log.append(TurnStarted())
        failed = log.append(Failed("file snapshot", "store", "no space left"))
        log.append(TurnStarted())
        cut = log.append(FilesSnapshotted(known.snapshot, moment="before", root=known.root))
    assert pal("diff", work.session, "--turn", "3").stderr == f"# turn 3, event {failed.seq}: no space left\n"
    assert pal("diff", work.session, "--turn", "4").stderr == (
        f"# turn 4, event {cut.seq} in {work.root}: the turn was cut off before its second snapshot\n"
    )
    (value,) = pal.json("diff", work.session, "--turn", "4", code=1)
    assert (value["certain"], value["files"], value["problem"]) == (False, [], "the turn was cut off before its second snapshot")


def test_snapshots_that_were_deleted_are_named(pal: Pal, work: Sessions) -> None:
    assert pal.home.folder is not None
    (pal.home.folder / "snapshots").rename(pal.home.folder / "elsewhere")
    lines = pal("diff", work.session).stderr.splitlines()
    assert [line.rpartition(": ")[2] for line in lines] == ["its snapshots have been deleted"] * 2
    # Reading makes no repository.
    assert not (pal.home.folder / "snapshots").exists()


def test_on_a_terminal_lines_have_colours_and_no_control_characters_of_the_files(work: Sessions) -> None:
    work.shell("printf 'red \\033[31m\\n' > evil.txt")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "pal.cli", "diff", work.session, "--turn", "-1"]
    env = {**os.environ, "PAL_HOME": str(work.home.folder), "TERM": "xterm", "COLUMNS": "200"}
    env.pop("NO_COLOR", None)
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, env=env) as process:
        os.close(theirs)
        shown = b""
        with os.fdopen(ours, "rb", buffering=0) as terminal, suppress(OSError):
            # A terminal ends with an error once no process holds its other end.
            while piece := terminal.read(65_536):
                shown += piece
    assert process.returncode == 0
    assert "\x1b[32m+red ␛[31m" in shown.decode()
