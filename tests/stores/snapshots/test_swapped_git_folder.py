"""A command in the sandbox that puts a link in the place of the folder that is made for git there, at the worst moment."""

import subprocess
import sys
from pathlib import Path

from git_projects import git

# The hook stands for the command: Python calls it before each system call that opens, makes or renames something.
DRIVER = """\
import os, sys
from pathlib import Path
from palimpsest.coding.world import git_facts, unconfined

project, temp, outside, moment = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
count, busy = 0, False

def swap(event, words):
    global count, busy
    if busy or event not in ("open", "os.mkdir", "os.rename", "os.symlink", "os.link"):
        return
    busy = True
    made = [path for path in temp.glob("pal-git-*") if not path.is_symlink()]
    if made:
        count += 1
        if count == moment:
            made[0].rename(temp / "moved")
            made[0].symlink_to(outside)
    busy = False

sys.addaudithook(swap)
git_facts(str(project), unconfined, temp)
print(count)
"""


def test_a_link_in_the_place_of_the_git_folder_changes_no_file_outside_whenever_it_is_put_there(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    git(project, "init", "-q")
    git(project, "commit", "-q", "--allow-empty", "-m", "first")
    # The first run only counts the moments.
    moments = 1
    for moment in (0, *range(1, 100)):
        if moment > moments:
            break
        temp, outside = tmp_path / f"temp{moment}", tmp_path / f"outside{moment}"
        for folder in (temp, outside):
            folder.mkdir()
        (outside / "config").write_text("mine\n")
        words = (sys.executable, "-c", DRIVER, project, temp, outside, str(moment))
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        moments = moments if moment else int(done.stdout)
        assert {path.name: path.is_symlink() or path.read_text() for path in outside.iterdir()} == {"config": "mine\n"}, moment
    assert moments > 5
