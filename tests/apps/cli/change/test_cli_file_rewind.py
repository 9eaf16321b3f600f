"""`pal rewind --files`: what it shows, what it changes, and what it refuses."""

from pathlib import Path

import pytest
from file_turns import Sessions
from pal_runs import Pal

pytestmark = pytest.mark.machine


@pytest.fixture
def work(tmp_path: Path) -> Sessions:
    found = Sessions(tmp_path)
    found.project.put({"a.py": "1\n2\n", "gone.py": "1\n"})
    found.shell("echo new > a.py; rm gone.py; echo m > made.py")
    return found


def test_a_rewind_with_files_shows_each_file_and_how_to_take_it_back(pal: Pal, work: Sessions) -> None:
    after = work.files()
    lines = pal("rewind", work.session, "-1", "--files").stdout.splitlines()
    assert lines[0].startswith("now at event ")
    assert lines[3:] == [
        "files: 3 changed",
        "  restored  a.py  +2 -1",
        "  created   gone.py  +1 -0",
        "  deleted   made.py  +0 -1",
        f"`pal rewind {work.session} --undo` brings the files back as they were",
    ]
    assert work.files() == {"a.py": "1\n2\n", "gone.py": "1\n"}
    assert pal("rewind", work.session, "--undo").exit_code == 0
    assert work.files() == after


def test_a_dry_run_changes_neither_files_nor_the_log(pal: Pal, work: Sessions) -> None:
    files, log = work.files(), work.home.store.path_of(work.session).read_bytes()
    shown = pal("rewind", work.session, "-1", "--files", "--dry-run").stdout
    assert (shown.startswith("would be at event "), "files: 3 would change" in shown) == (True, True)
    assert (work.files(), work.home.store.path_of(work.session).read_bytes()) == (files, log)


def test_conflicts_change_nothing_and_partial_leaves_them(pal: Pal, work: Sessions) -> None:
    (work.root / "a.py").write_text("mine\n")
    files, log = work.files(), work.home.store.path_of(work.session).read_bytes()
    refused = pal("rewind", work.session, "-1", "--files")
    assert (refused.exit_code, refused.stdout.splitlines()) == (
        1,
        [
            "files: 2 would change",
            "  created   gone.py  +1 -0",
            "  deleted   made.py  +0 -1",
            "conflicts, left as they are:",
            "  a.py: you changed it since",
            "nothing was changed; --partial restores the other files",
        ],
    )
    assert (work.files(), work.home.store.path_of(work.session).read_bytes()) == (files, log)
    result = pal.json("rewind", work.session, "-1", "--files", "--partial", code=1)
    assert result["files"] == {
        "changed": [
            {"path": "gone.py", "action": "created", "added": 1, "removed": 0},
            {"path": "made.py", "action": "deleted", "added": 0, "removed": 1},
        ],
        "conflicts": [{"path": "a.py", "why": "you changed it since"}],
        "unsaved": [],
        "finished": False,
    }
    assert work.files() == {"a.py": "mine\n", "gone.py": "1\n"}


def test_a_session_that_is_open_elsewhere_is_not_rewound(pal: Pal, work: Sessions) -> None:
    files = work.files()
    with work.home.open(work.session):
        result = pal("rewind", work.session, "-1", "--files")
    assert (result.exit_code, "the session is being written by process" in result.stderr) == (2, True)
    assert work.files() == files


def test_a_rewind_without_files_leaves_them(pal: Pal, work: Sessions) -> None:
    files = work.files()
    assert pal("rewind", work.session, "-1").exit_code == 0
    assert work.files() == files


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((), "pal: rewind: give either the event to go to or --undo; see `pal rewind --help`\n"),
        (("-1", "--undo"), "pal: rewind: give either the event to go to or --undo; see `pal rewind --help`\n"),
        (("-1", "--partial"), "pal: rewind: --partial and --unsure are about files; add --files; see `pal rewind --help`\n"),
    ],
)
def test_wrong_use_is_explained(pal: Pal, work: Sessions, words: tuple[str, ...], line: str) -> None:
    result = pal("rewind", work.session, *words)
    assert (result.exit_code, result.stderr) == (2, line)


def test_there_is_no_rewind_to_take_back_before_the_first(pal: Pal, work: Sessions) -> None:
    result = pal("rewind", work.session, "--undo")
    assert (result.exit_code, "no rewind with files is on this branch" in result.stderr) == (2, True)


def test_deleting_a_session_removes_its_snapshots(pal: Pal, work: Sessions) -> None:
    assert len(list((work.home.folder / "snapshots").glob("*.git"))) == 1
    assert pal("delete", work.session, "--yes").exit_code == 0
    assert list((work.home.folder / "snapshots").glob("*.git")) == []
