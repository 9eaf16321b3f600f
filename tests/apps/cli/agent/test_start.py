"""The start of `pal -p`: what it must not import, because each of these takes milliseconds that only other work needs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pal_runs import LONG, Pal, edited, small

# With what needs it instead: metadata of packages, resources and archives (tools of other packages, prompts in archives), the grammar of
# shell lines (a command), the index (a search), HTTP (a provider, a page), colours (tables), and policies of other profiles.
_LATER = frozenset(
    {
        *("importlib.metadata", "importlib.resources", "zipfile", "email", "html", "xml", "http.client", "urllib.request"),
        *("tree_sitter", "tree_sitter_bash", "sqlite3", "httpx", "anthropic", "openai", "rich", "keyring", "orjson"),
        *("palimpsest.coding.permissions", "palimpsest.coding.shell_lines", "palimpsest.exchange", "pal_lab"),
        *("palimpsest.peers", "palimpsest.policies.handoff", "palimpsest.policies.provider_compact", "palimpsest.stores.index"),
    }
)
# Modules of ours and at most so many in all that a start loads: what loads together stands together, and this decides where a file is cut.
# Each takes about 0.3 ms. Python 3.11; other versions load a few more of their own.
STARTS = {
    "--version": (9, 195),
    "hook UserPromptSubmit": (40, 205),
    "sessions": (46, 260),
    "-p hello --quiet": (154, 395),
}


def test_a_prompt_that_is_answered_at_once_imports_nothing_that_only_other_work_needs(tmp_path: Path) -> None:
    (tmp_path / "script.jsonl").write_text('"ready"\n')
    variables = {**os.environ, "PAL_HOME": str(tmp_path / "home"), "PAL_SCRIPT": str(tmp_path / "script.jsonl")}
    command = [sys.executable, "-X", "importtime", "-m", "pal.cli", "-p", "hello", "--quiet"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env=variables, stdin=subprocess.DEVNULL, check=True, timeout=120
    )
    lines = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")]
    imported = set(lines[1:])

    assert done.stdout == "ready\n"
    assert "palimpsest.agent.turn" in imported
    assert sorted(imported & _LATER) == []


@pytest.mark.parametrize("line", STARTS)
def test_a_start_loads_these_many_modules(tmp_path: Path, line: str) -> None:
    (tmp_path / "script.jsonl").write_text('"ready"\n')
    variables = {**os.environ, "PAL_HOME": str(tmp_path / "home"), "PAL_SCRIPT": str(tmp_path / "script.jsonl")}
    script = (
        "import atexit, os, sys\n"
        "from pal.cli.start import main\n"
        "def loaded(*_):\n"
        "    own = sum(name.partition('.')[0] in ('palimpsest', 'pal') for name in sys.modules)\n"
        "    print(own, len(sys.modules), file=sys.stderr, flush=True)\n"
        "atexit.register(loaded)\n"
        "end, os._exit = os._exit, lambda code: (loaded(), end(code))\n"
        "main()\n"
    )
    command = [sys.executable, "-c", script, *line.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=variables, input="{}", timeout=120, check=False)
    own, most = map(int, done.stderr.splitlines()[-1].split())

    assert (done.returncode, own) == (0, STARTS[line][0])
    assert most <= STARTS[line][1]


def test_a_list_that_is_up_to_date_and_a_search_do_not_load_the_engine(pal: Pal) -> None:
    edited(pal.home)
    small(pal.home, LONG)
    pal("sessions")
    script = (
        "import sys; from pal.cli.main import cli\n"
        "for words in (['sessions'], ['search', 'timeout']):\n"
        "    try: cli.main(words)\n"
        "    except SystemExit as stop: print(stop.code)\n"
        "print(*(name for name in sys.modules if name.startswith(('palimpsest.agent', 'palimpsest.coding', 'palimpsest.peers',"
        " 'palimpsest.audit', 'palimpsest.stores.config', 'asyncio'))))\n"
    )
    variables = {**os.environ, "PAL_HOME": str(pal.home.folder)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120, env=variables)
    lines = done.stdout.splitlines()

    assert ([line for line in lines if line == "0"], lines[-1]) == (["0", "0"], "")
    assert "hidden by edit 14" in done.stdout


def test_the_first_prompt_of_a_terminal_does_not_wait_for_the_engine(tmp_path: Path) -> None:
    script = (
        "import sys, pal.cli.chat, pal.cli.terminal_agents, pal.terminal.running\n"
        "print(*(name for name in sys.modules if name.startswith(('palimpsest.agent.', 'palimpsest.coding.', 'palimpsest.peers.',"
        " 'palimpsest.memory.', 'palimpsest.providers.', 'palimpsest.policies.', 'httpx', 'pygments', 'markdown_it', 'sqlite3'))))\n"
        "print(sum(name.startswith('palimpsest.') for name in sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120)
    loaded, own = done.stdout.splitlines()

    # The types of what a user interface follows and of an answer to a question, and what runs a shell line; nothing else of the engine.
    assert set(loaded.split()) == {f"palimpsest.agent.{name}" for name in ("decision", "feed", "processes", "workspace")}
    assert int(own) <= 50
