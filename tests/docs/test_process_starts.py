"""The check that finds starts of programs outside of their rooms."""

from pathlib import Path

import pytest
from process_starts import ALLOWED, process_starts

PLANTED = (
    "import subprocess\nsubprocess.run(['true'])",
    "import subprocess as s\ns.run('true', shell=True)",
    "from subprocess import Popen",
    "import os\nos.system('true')",
    "import os as o\no.popen('git status')",
    "from os import execvp",
    "from os import *",
    "import os\nos.posix_spawn('/bin/sh', [], {})",
    "import asyncio\nawait_this = asyncio.create_subprocess_shell('ssh x')",
    "from asyncio import create_subprocess_exec",
    "import asyncio.subprocess\nasyncio.subprocess.create_subprocess_exec('git')",
    "import asyncio\nasyncio.get_event_loop().subprocess_exec(None, 'git')",
    "import pty\npty.spawn('sh')",
    "from concurrent.futures import ProcessPoolExecutor",
    "import importlib\nimportlib.import_module('subprocess')",
    "__import__('subprocess')",
    "import multiprocessing.pool",
    "SCRIPT = 'import os; os.execvp(\"git\", [])'",
)


@pytest.mark.parametrize("source", PLANTED)
def test_a_start_of_a_program_in_another_module_is_found(tmp_path: Path, source: str) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "planted.py").write_text(source)
    found = [line for line in process_starts(tmp_path) if line.startswith("engine/planted.py")]
    assert found, source


@pytest.mark.parametrize("command", ["('git', 'status')", "['/usr/bin/git', '-C', x]", "('ssh', host)", "'git status'"])
def test_git_and_ssh_are_found_also_where_other_programs_may_be_started(tmp_path: Path, command: str) -> None:
    room = tmp_path / "palimpsest" / "coding" / "tools" / "search.py"
    room.parent.mkdir(parents=True)
    room.write_text(f"import subprocess\nsubprocess.run({command})\n")
    assert [line.partition(";")[0] for line in process_starts(tmp_path) if line.startswith("palimpsest/coding/tools/search.py")] != []


def test_a_room_that_starts_nothing_is_no_room(tmp_path: Path) -> None:
    assert len(list(process_starts(tmp_path))) == len(ALLOWED)
