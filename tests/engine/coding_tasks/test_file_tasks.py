"""Tasks on files that are easily damaged: other line ends and encodings, notebooks, large files, links, modes, names in Chinese."""

import json
from pathlib import Path

import pytest
from coding_tasks import bash, do, use
from git_projects import PYTHON, UNITTEST, new_project

pytestmark = pytest.mark.machine

BATCH = "@echo off\r\nset PORT=80\r\nset HOST=local\r\nstart server\r\n"


def test_a_file_with_windows_line_ends_keeps_them_through_edit_and_patch(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"run.bat": BATCH, "other.bat": BATCH})
    patch = "*** Begin Patch\n*** Update File: other.bat\n@@\n-set PORT=80\n+set PORT=8080\n+set TLS=on\n*** End Patch"
    do(
        project,
        "Use port 8080 and TLS in both",
        (use("read", path="run.bat"), use("read", path="other.bat")),
        use("edit", path="run.bat", old="set PORT=80\nset HOST", new="set PORT=8080\nset TLS=on\nset HOST"),
        use("apply_patch", patch=patch),
        "Both changed.",
    )
    changed = BATCH.replace("PORT=80\r\n", "PORT=8080\r\nset TLS=on\r\n")
    assert project.files() == {"other.bat": changed, "run.bat": changed}
    assert project.git("diff", "--numstat") == "2\t1\tother.bat\n2\t1\trun.bat"
    assert project.passes(f'{PYTHON} -c \'data = open("run.bat", "rb").read(); assert data.count(b"\\r\\n") == data.count(b"\\n") == 5\'')


def test_bytes_that_are_no_utf_8_survive_an_edit_of_another_line(tmp_path: Path) -> None:
    latin = "name=Müller\nrate=1\n".encode("latin-1")
    project = new_project(tmp_path / "project", {"old.ini": latin, "test_old.py": OLD_TEST})
    do(
        project,
        "Set the rate to 2",
        use("read", path="old.ini"),
        use("edit", path="old.ini", old="rate=1", new="rate=2"),
        bash(UNITTEST),
        "Set.",
    )
    assert (tmp_path / "project" / "old.ini").read_bytes() == b"name=M\xfcller\nrate=2\n"
    assert project.status() == [" M old.ini"]
    assert project.passes()


OLD_TEST = """\
import unittest


class OldTest(unittest.TestCase):
    def test_the_file_is_latin_1_with_the_new_rate(self):
        with open("old.ini", encoding="latin-1") as file:
            self.assertEqual(file.read(), "name=M\\u00fcller\\nrate=2\\n")
"""


def notebook(source: str) -> str:
    cells = [
        {"cell_type": "markdown", "id": "a", "metadata": {}, "source": ["# Means\n", "of numbers"]},
        {"cell_type": "code", "execution_count": 1, "id": "b", "metadata": {}, "outputs": OUTPUTS, "source": [source]},
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


OUTPUTS = [{"name": "stdout", "output_type": "stream", "text": ["2.0\n"]}]


def test_a_cell_of_a_notebook_is_read_by_cells_and_changed_in_its_json(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"mean.ipynb": notebook("print(sum([1, 2, 3]) / 3)")})
    done = do(
        project,
        "Use statistics.mean",
        use("read", path="mean.ipynb"),
        use("edit", path="mean.ipynb", old="print(sum([1, 2, 3]) / 3)", new="import statistics; print(statistics.mean([1, 2, 3]))"),
        use("read", path="mean.ipynb", offset=2),
        "Changed.",
    )
    assert done.results[0] == "[cell 1, markdown]\n# Means\nof numbers\n[cell 2, code]\nprint(sum([1, 2, 3]) / 3)\n[output]\n2.0"
    assert done.results[2] == "[cell 2, code]\nimport statistics; print(statistics.mean([1, 2, 3]))\n[output]\n2.0"
    assert project.files() == {"mean.ipynb": notebook("import statistics; print(statistics.mean([1, 2, 3]))")}
    run = "import json; exec(json.load(open('mean.ipynb'))['cells'][1]['source'][0])"
    assert project.passes(f'{PYTHON} -c "{run}"')


def test_a_large_file_is_read_by_ranges_and_one_line_of_it_changed(tmp_path: Path) -> None:
    lines = [f"entry_{number} = {number}" for number in range(1, 6_001)]
    lines[4_321] = "entry_4322 = 0  # wrong"
    project = new_project(tmp_path / "project", {"table.py": "\n".join(lines) + "\n"})
    done = do(
        project,
        "One entry of table.py is wrong",
        use("read", path="table.py"),
        use("grep", pattern="wrong", path="table.py"),
        lambda seen: use("read", path="table.py", offset=int(seen.split(":")[1]) - 1, limit=3),
        use("edit", path="table.py", old="entry_4322 = 0  # wrong", new="entry_4322 = 4322"),
        "Corrected.",
    )
    assert done.results[0].splitlines()[-1] == "[lines 1 to 2,000 of 6,000; go on with offset 2001]"
    assert done.results[2].splitlines() == [
        "  4321\tentry_4321 = 4321",
        "  4322\tentry_4322 = 0  # wrong",
        "  4323\tentry_4323 = 4323",
        "[lines 4,321 to 4,323 of 6,000; go on with offset 4324]",
    ]
    assert project.files() == {"table.py": "".join(f"entry_{number} = {number}\n" for number in range(1, 6_001))}
    assert project.passes(f"{PYTHON} -c 'import table; assert table.entry_4322 == 4322'")


def test_files_with_chinese_names_and_contents_are_found_read_and_changed(tmp_path: Path) -> None:
    start = {"文档/说明.md": "# 说明\n\n版本：一\n", "源码/问候.py": "def 问候(名字):\n    return f'你好，{名字}'\n"}
    project = new_project(tmp_path / "project", start)
    done = do(
        project,
        "把版本改成二，并让问候更热情",
        (use("glob", pattern="**/*.md"), use("grep", pattern="你好")),
        (use("read", path="文档/说明.md"), use("read", path="源码/问候.py")),
        (
            use("edit", path="文档/说明.md", old="版本：一", new="版本：二"),
            use("edit", path="源码/问候.py", old="你好，{名字}", new="你好呀，{名字}！"),
        ),
        bash("git add -A && git commit -q -m '更新说明和问候' && git log -1 --format=%s"),
        "改好了。",
    )
    assert done.results[:2] == ["文档/说明.md", "源码/问候.py:2:    return f'你好，{名字}'"]
    assert done.results[-1] == "更新说明和问候\n"
    assert project.git("-c", "core.quotepath=false", "show", "--name-only", "--format=").splitlines() == ["文档/说明.md", "源码/问候.py"]
    changed = "def 问候(名字):\n    return f'你好呀，{名字}！'\n"
    assert project.files() == {"文档/说明.md": "# 说明\n\n版本：二\n", "源码/问候.py": changed}
    check = "import sys; sys.path.insert(0, '源码'); from 问候 import 问候; assert 问候('李') == '你好呀，李！'"
    assert project.passes(f'{PYTHON} -c "{check}"')


def test_an_edit_through_a_link_changes_the_file_and_the_link_stays_a_link(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project", {"config/real.ini": "level=1\n", "current.ini@": "config/real.ini"})
    do(
        project,
        "Set the level in current.ini to 2",
        use("read", path="current.ini"),
        use("edit", path="current.ini", old="level=1", new="level=2"),
        "Set.",
    )
    assert project.files() == {"config/real.ini": "level=2\n", "current.ini@": "config/real.ini"}
    assert project.status() == [" M config/real.ini"]
    assert project.passes("grep -q level=2 current.ini")


def test_a_script_stays_executable_through_edit_write_and_patch_and_a_new_one_becomes_so(tmp_path: Path) -> None:
    script = "#!/bin/sh\necho one\n"
    project = new_project(tmp_path / "project", {"a.sh*": script, "b.sh*": script, "c.sh*": script})
    patch = "*** Begin Patch\n*** Update File: c.sh\n@@\n-echo one\n+echo two\n*** End Patch"
    do(
        project,
        "Let all scripts say two, and add d.sh",
        tuple(use("read", path=name) for name in ("a.sh", "b.sh", "c.sh")),
        (
            use("edit", path="a.sh", old="one", new="two"),
            use("write", path="b.sh", content="#!/bin/sh\necho two\n"),
            use("apply_patch", patch=patch),
            use("write", path="d.sh", content="#!/bin/sh\necho two\n"),
        ),
        bash("chmod +x d.sh && git add -A && git commit -q -m 'Say two'"),
        "Done.",
    )
    assert project.tree() == dict.fromkeys(("a.sh*", "b.sh*", "c.sh*", "d.sh*"), "#!/bin/sh\necho two\n")
    assert (project.files(), project.status()) == (project.tree(), [])
    assert project.passes('test "$(./a.sh; ./b.sh; ./c.sh; ./d.sh)" = "two\ntwo\ntwo\ntwo"')


def test_ignored_files_are_left_alone_by_search_and_commit(tmp_path: Path) -> None:
    ignore = "secret.env\nbuild/\n"
    project = new_project(tmp_path / "project", {".gitignore": ignore, "app.py": "COLOUR = 'red'\n"})
    project.put({"secret.env": "COLOUR=red\n", "build/app.js": "COLOUR = 'red'\n"})
    done = do(
        project,
        "Change the colour to blue everywhere",
        bash("git grep -l COLOUR"),
        use("read", path="app.py"),
        use("edit", path="app.py", old="red", new="blue"),
        bash("git add -A && git commit -q -m 'Use blue'"),
        "Changed.",
    )
    assert done.results[0] == "app.py\n"
    assert project.tree() == {".gitignore": ignore, "app.py": "COLOUR = 'blue'\n"}
    root = tmp_path / "project"
    assert [(root / name).read_text() for name in ("secret.env", "build/app.js")] == ["COLOUR=red\n", "COLOUR = 'red'\n"]
    assert project.status() == []
    assert project.passes(f"{PYTHON} -c 'import app; assert app.COLOUR == \"blue\"'")
