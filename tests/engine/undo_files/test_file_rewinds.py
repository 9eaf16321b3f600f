"""Rewinds with files: under the rules of other agents, with what snapshots leave out, after turns that were cut off, and forward again."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from file_turns import Sessions
from git_projects import Project

from palimpsest.coding.file_undo import FileConflict
from palimpsest.core.errors import BadInput
from palimpsest.core.events import FilesSnapshotted, TurnStarted, ViewEdited

pytestmark = pytest.mark.machine


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Sessions]:
    return lambda profile="palimpsest": Sessions(tmp_path, profile)


@pytest.mark.states("CX-68")
def test_undo_restores_the_newest_snapshot_keeps_index_and_untracked_files_and_survives_a_fold(make: Callable[..., Sessions]) -> None:
    work = make("codex")
    work.project.git("init", "-q")
    work.project.commit("one", {"tracked.py": "1\n", "staged.py": "1\n"})
    work.project.put({"staged.py": "staged\n", "untracked.txt": "mine\n"})
    work.project.git("add", "staged.py")
    before, index = work.files(), (work.root / ".git/index").read_bytes()
    work.shell("echo 2 > tracked.py; echo 2 > staged.py; echo 2 > untracked.txt; echo new > new.txt; mkdir d; echo x > d/e", fold=True)
    with work.home.open(work.session, write=False) as log:
        assert any(isinstance(event.body, ViewEdited) for event in log.events())
    assert [file.path for file in work.back().files] == ["d/e", "new.txt", "staged.py", "tracked.py", "untracked.txt"]
    assert (work.files(), (work.root / ".git/index").read_bytes()) == (before, index)
    assert not (work.root / "d").exists()


@pytest.mark.states("OC-47")
def test_revert_restores_each_file_once_and_unrevert_restores_the_state_before_it(make: Callable[..., Sessions]) -> None:
    work = make("opencode")
    work.project.put({"a.py": "0\n", "gone.py": "0\n"})
    before = work.files()
    work.shell("echo 1 > a.py; echo 1 > made.py")
    work.shell("echo 2 > a.py; rm gone.py; echo 2 > made.py")
    after = work.files()
    tip_items = work.home.open(work.session, write=False).view.items
    plan = work.back(2)
    assert [file.path for file in plan.files] == ["a.py", "gone.py", "made.py"]
    assert work.files() == before
    assert work.home.open(work.session, write=False).view.items == ()
    work.rewind(None)
    assert work.files() == after
    with work.home.open(work.session, write=False) as log:
        assert log.view.items == tip_items
    work.back(2)
    # The next prompt deletes nothing: the events of the other branch are still there.
    count = work.home.open(work.session, write=False).tip
    work.turn()
    with work.home.open(work.session, write=False) as log:
        assert sum(isinstance(event.body, TurnStarted) for event in log.reader.run(0, count)) == 2


def test_the_branch_that_was_left_can_be_made_again_with_its_files(make: Callable[..., Sessions]) -> None:
    work = make()
    work.shell("echo 1 > a.py")
    work.shell("echo 2 > a.py; mkdir d; echo 2 > d/b.py")
    with work.home.open(work.session, write=False) as log:
        tip = log.tip
    work.back(2)
    assert work.files() == {}
    work.shell("echo other > c.py")
    work.rewind(tip)
    assert work.files() == {"a.py": "2\n", "d/b.py": "2\n"}


def test_changes_of_the_user_are_merged_or_shown_and_never_overwritten(make: Callable[..., Sessions]) -> None:
    work = make()
    work.project.put({"far.py": "".join(f"{n}\n" for n in range(9)), "near.py": "1\n", "mine.py": "mine\n"})
    work.shell("sed -i 's/^0$/turn/' far.py; echo turn > near.py; echo turn > made.py")
    work.project.put(
        {"far.py": (work.root / "far.py").read_text().replace("8\n", "user\n"), "near.py": "user\n", "mine.py": "still mine\n"}
    )
    now = work.files()
    with pytest.raises(BadInput, match=r"nothing was changed, because of near.py; --partial restores the other files"):
        work.back()
    assert work.files() == now
    plan = work.back(partial=True)
    assert plan.conflicts == (FileConflict("near.py", "you changed it since"),)
    far = "".join(f"{n}\n" for n in range(8)) + "user\n"
    assert work.files() == {"far.py": far, "near.py": "user\n", "mine.py": "still mine\n"}


def test_what_a_snapshot_left_out_is_neither_deleted_nor_guessed(make: Callable[..., Sessions]) -> None:
    work = make()
    work.project.put({".gitignore": "*.log\n", "a.log": "mine", "large": "x" * 2_000, "shrunk": "y" * 2_000, "grown": "small"})
    Project(work.root / "nested").put({"inner.py": "mine"})
    Project(work.root / "nested").git("init", "-q")
    large = work.files()
    work.shell("rm .gitignore; rm -r nested/.git; echo s > shrunk; head -c 2000 /dev/zero > grown; rm large; echo n > new")
    plan = work.back(partial=True)
    assert {conflict.path: conflict.why for conflict in plan.conflicts} == {
        "large": "its content was too large for the snapshot",
        "shrunk": "its content was too large for the snapshot",
    }
    expected = {**large, "shrunk": "s\n"}
    del expected["large"]
    assert work.files() == expected


def test_a_link_in_the_place_of_a_folder_leads_nothing_outside(make: Callable[..., Sessions], tmp_path: Path) -> None:
    work = make()
    (tmp_path / "outside").mkdir()
    work.project.put({"d/a.py": "1\n"})
    work.shell("echo 2 > d/a.py")
    (work.root / "d/a.py").unlink()
    (work.root / "d").rmdir()
    (work.root / "d").symlink_to(tmp_path / "outside")
    (tmp_path / "outside/a.py").write_text("2\n")
    assert work.back(partial=True).conflicts == (FileConflict("d/a.py", "you deleted it since"),)
    assert (tmp_path / "outside/a.py").read_text() == "2\n"


def test_folders_that_a_turn_made_or_removed_come_and_go_with_it(make: Callable[..., Sessions]) -> None:
    work = make()
    for name in ("kept/empty", "filled", "gone/inner"):
        (work.root / name).mkdir(parents=True)
    work.shell("echo x > filled/x; mkdir -p made/deep; echo y > made/deep/y; mkdir bare; rm -r gone")
    work.back()
    assert sorted(str(path.relative_to(work.root)) for path in work.root.rglob("*")) == ["filled", "gone", "kept", "kept/empty"]


def test_an_executable_bit_and_private_permissions_stay(make: Callable[..., Sessions]) -> None:
    work = make()
    work.project.put({"run.sh*": "1\n", "private": "1\n"})
    (work.root / "private").chmod(0o600)
    work.shell("echo 2 > run.sh; chmod -x run.sh; echo 2 > private")
    work.back()
    assert [(work.root / name).stat().st_mode & 0o777 for name in ("run.sh", "private")] == [0o755, 0o600]
    assert work.files() == {"run.sh": "1\n", "private": "1\n"}


def test_after_a_turn_that_was_cut_off_the_user_decides(make: Callable[..., Sessions]) -> None:
    work = make()
    work.shell("echo 1 > a.py")
    with work.home.open(work.session) as log:
        [_, after] = [event.body for event in log.events() if isinstance(event.body, FilesSnapshotted)]
        # A turn whose process was killed: it has a snapshot before, and none after.
        log.extend((TurnStarted(), FilesSnapshotted(after.snapshot, moment="before", root=str(work.root))))
    (work.root / "b.py").write_text("turn or user")
    with pytest.raises(BadInput, match=r"because of b\.py"):
        work.back()
    work.back(unsure=True)
    assert work.files() == {"a.py": "1\n"}


def test_a_rewind_into_the_middle_of_a_turn_names_its_ends(make: Callable[..., Sessions]) -> None:
    work = make()
    work.shell("echo 1 > a.py")
    with work.home.open(work.session, write=False) as log:
        first, last = (event.seq for event in log.events() if isinstance(event.body, FilesSnapshotted))
    with pytest.raises(
        BadInput, match=f"event {first + 1} is in the middle of a turn that changed files; go back to event {first - 1} or to {last}"
    ):
        work.rewind(first + 1)


def test_a_fork_goes_back_beyond_its_base(make: Callable[..., Sessions]) -> None:
    work = make()
    work.shell("echo 1 > a.py")
    with work.home.open(work.session) as log, work.home.fork(log) as forked:
        work.session = forked.session
    work.shell("echo 2 > a.py")
    work.back(2)
    assert work.files() == {}


PROGRAM = next(Path(__file__).parents[2].glob("support/programs/killed_rewind.py"))


def test_a_rewind_that_is_killed_anywhere_is_finished_by_repeating_it(make: Callable[..., Sessions], tmp_path: Path) -> None:
    work = make()
    work.project.put({"a.py": "1\n", "b.py": "1\n", "old/c.py": "1\n", "link@": "a.py"})
    before = work.files()
    work.shell("echo 2 > a.py; rm b.py; mkdir b.py; echo x > b.py/x; rm -r old; echo n > new; rm link; ln -s b.py link")
    after = work.files()
    session, environment = work.session, {"PAL_HOME": str(tmp_path / "home"), "PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"}
    killed = 0
    # Every third operation, to save time: a process and two rewinds for each.
    for number in range(1, 30, 3):
        words = ("rewind", session, str(work.starts()[-1] - 1), "--files")
        command = [sys.executable, str(PROGRAM), str(work.root), str(number), *words]
        done = subprocess.run(command, env=environment, cwd=work.root, capture_output=True, check=False, timeout=120)
        if done.returncode == 0:
            break
        killed += 1
        assert (done.returncode, done.stderr) == (-9, b"")
        work.back()
        assert work.files() == before
        work.rewind(None)
        assert work.files() == after
    assert killed > 2


def test_a_disk_that_fills_up_in_the_middle_is_an_error_that_repeating_mends(make: Callable[..., Sessions], tmp_path: Path) -> None:
    work = make()
    work.largest = 10_000_000
    work.project.put({"a.py": "1\n", "large": "x" * 2_000_000, "z.py": "1\n"})
    before = work.files()
    work.shell("echo 2 > a.py; echo 2 > large; echo 2 > z.py")
    # The limit of file sizes stands for a full disk: the second file cannot be written.
    to = work.starts()[-1] - 1
    words = f"ulimit -f 1000; exec {sys.executable} -m pal.cli rewind {work.session} {to} --files"
    environment = {"PAL_HOME": str(tmp_path / "home"), "PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"}
    failed = subprocess.run(["bash", "-c", words], env=environment, cwd=work.root, capture_output=True, text=True, check=False, timeout=120)
    assert (failed.returncode, failed.stderr) == (
        2,
        "pal: large: it cannot be written: File too large; repeat the command when that is mended\n",
    )
    assert (work.root / "a.py").read_text() == "1\n"
    assert (work.root / "z.py").read_text() == "2\n"
    work.back()
    assert work.files() == before
