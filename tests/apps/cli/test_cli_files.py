"""Files that `pal` itself writes: nothing outside of the project by a link, and nothing that others can read."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

PAL = [sys.executable, "-m", "pal.cli"]


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


def test_a_missing_content_of_the_snapshots_of_files_is_a_finding_when_everything_is_verified(tmp_path: Path) -> None:
    project, home, script = tmp_path / "project", tmp_path / "home", tmp_path / "script.jsonl"
    project.mkdir()
    (project / "a").write_text("1\n")
    call = {"calls": [{"tool": "write", "args": {"path": "b", "content": "2\n"}}]}
    script.write_text("".join(f"{json.dumps(reply)}\n" for reply in (call, "Done.")))
    own = {"HOME": str(tmp_path), "PAL_HOME": str(home), "PAL_SCRIPT": str(script), "PAL_SANDBOX": "off"}

    def pal(*words: str) -> tuple[int, str]:
        done = subprocess.run(
            [*PAL, *words], cwd=project, env={**os.environ, **own}, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        return done.returncode, done.stdout.decode()

    assert pal("-p", "go", "--allow", "edit", "--quiet") == (0, "Done.\n")
    assert pal("verify", "--all")[0] == 0
    objects = sorted((home / "snapshots").glob("*.git/objects/??/*"))
    found = {}
    for path in objects:
        path.rename(tmp_path / "kept")
        code, text = pal("verify", "--all", "--json")
        error, *more = json.loads(text)["errors"]
        found[path.name] = (code, error["kind"], error["where"], more)
        (tmp_path / "kept").rename(path)
    assert found == {path.name: (1, "snapshots", str(project), []) for path in objects}
    assert len(objects) > 5
    os.truncate(objects[0], 5)
    code, text = pal("verify", "--all")
    assert (code, "bad   snapshots of files  1 finding" in text, "cannot be made again" in text) == (1, True, True)
