"""Files that `pal` itself writes: nothing outside of the project by a link, and nothing that others can read."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

PAL = [sys.executable, "-m", "palimpsest.apps.cli"]


def test_a_link_in_the_place_of_the_tasks_leads_to_no_file_outside_and_the_home_is_private_with_any_umask(tmp_path: Path) -> None:
    project, outside, home = tmp_path / "project", tmp_path / "outside", tmp_path / "new" / "home"
    for folder in (project, outside):
        folder.mkdir()
    calls = [
        {"tool": "task_create", "args": {"subject": "one"}},
        {"tool": "bash", "args": {"command": "mv .tasks old; ln -s ../outside .tasks"}},
        {"tool": "task_create", "args": {"subject": "two"}},
        {"tool": "bash", "args": {"command": "echo log", "task": 1}},
    ]
    script = tmp_path / "script.jsonl"
    script.write_text("".join(f"{json.dumps(reply)}\n" for reply in (*({"calls": [call]} for call in calls), "Done.")))
    own = {"HOME": str(tmp_path / "user"), "PAL_HOME": str(home), "PAL_SCRIPT": str(script), "PAL_SANDBOX": "off"}
    words = [*PAL, "-p", "go", "--allow", "bash", "--allow", "task_create", "--json"]
    done = subprocess.run(
        words, cwd=project, env={**os.environ, **own}, stdin=subprocess.DEVNULL, capture_output=True, check=False, umask=0
    )
    assert (done.returncode, (project / "old").is_dir(), (project / ".tasks").is_symlink()) == (0, True, True), done.stderr
    assert list(outside.iterdir()) == []
    others = stat.S_IRWXG | stat.S_IRWXO
    assert [path for path in (home.parent, home, *home.rglob("*")) if path.lstat().st_mode & others] == []
