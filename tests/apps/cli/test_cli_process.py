import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from pal_runs import SMALL, Pal, long, small

from pal.cli.main import COMMANDS
from pal.cli.memory import memory

_LIMITED = """
import resource, signal
from pal.cli.main import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
main()
"""
PAL = [sys.executable, "-m", "pal.cli"]


def _run(pal: Pal, *words: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    settings = {**os.environ, "PAL_HOME": str(pal.home.folder), **env}
    return subprocess.run([*PAL, *words], capture_output=True, env=settings, check=False, timeout=120)


def _run_in_shell(pal: Pal, streams: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    """With its streams as a shell can set them: closed, or led elsewhere."""
    settings = {**os.environ, "PAL_HOME": str(pal.home.folder)}
    return subprocess.run(["sh", "-c", f'"$@" {streams}', "sh", *PAL, *words], capture_output=True, env=settings, check=False, timeout=120)


def _run_as_anybody(pal: Pal, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Root without the right to pass over file modes is like anybody else."""
    without = ("--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-dac_override,-dac_read_search")
    prefix = ("setpriv", *without) if os.geteuid() == 0 else ()
    settings = {**os.environ, "PAL_HOME": str(pal.home.folder)}
    return subprocess.run([*prefix, *PAL, *words], capture_output=True, env=settings, check=False, timeout=120)


def test_help_names_every_command_and_loads_nothing_heavy(pal: Pal) -> None:
    done = subprocess.run([sys.executable, "-X", "importtime", *PAL[1:], "--help"], capture_output=True, check=True, timeout=120)
    loaded = {line.rpartition(b"|")[2].strip().partition(b".")[0] for line in done.stderr.splitlines()}
    assert all(f"  {name} " in done.stdout.decode() for name in COMMANDS)
    assert not loaded & {b"rich", b"msgspec", b"sqlite3", b"httpx", b"asyncio", b"prompt_toolkit"}


def test_help_loads_neither_the_log_nor_the_terminal_nor_the_database() -> None:
    script = "import sys; from pal.cli.main import cli\ntry: cli.main(['--help'])\nexcept SystemExit: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert not {"rich", "msgspec", "sqlite3", "platformdirs", "httpx", "asyncio"} & set(done.stdout.split())


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"bench"}))
def test_every_command_has_a_help_with_an_example_and_takes_json(pal: Pal, name: str) -> None:
    text = pal(name, "--help").stdout

    assert "Example" in text
    assert f"pal {name}" in text
    # A conversation in a terminal and a protocol have no value to print, and the commands of a group have the option themselves.
    assert ("--json" in text) == (name not in {"chat", "acp", "mcp", "memory", "lab"})


@pytest.mark.parametrize("name", sorted(memory.list_commands(click.Context(memory))))
def test_every_command_of_memory_takes_json(pal: Pal, name: str) -> None:
    text = pal("memory", name, "--help").stdout
    assert f"Usage: pal memory {name}" in text
    assert "--json" in text


def test_the_real_program_lists_shows_and_takes_back(pal: Pal) -> None:
    small(pal.home)
    listed = _run(pal, "sessions")
    shown = _run(pal, "show", "last", "--request", "3")

    assert b"aaaa  shop" in listed.stdout
    assert shown.stderr.startswith(b"verified: event 11")
    assert shown.stdout.endswith(b"}")
    assert "超时改成 30 秒".encode() in shown.stdout


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [("show", "last", "--json"), ("show", "last", "--full"), ("show", "last", "--events", "--full")])
def test_a_reader_that_goes_away_is_no_error(pal: Pal, words: tuple[str, ...], unbuffered: str) -> None:
    long(pal.home)
    settings = {**os.environ, "PAL_HOME": str(pal.home.folder), "PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen([*PAL, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=settings) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.read(10)
        running.stdout.close()
        reported = running.stderr.read()

    assert (running.returncode, reported) == (141, b"")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_is_cut_by_a_full_disk_is_never_passed_off_as_whole(pal: Pal, tmp_path: Path, unbuffered: str) -> None:
    long(pal.home)
    settings = {**os.environ, "PAL_HOME": str(pal.home.folder), "PYTHONUNBUFFERED": unbuffered}
    with (tmp_path / "out.json").open("wb") as file:
        done = subprocess.run(
            [sys.executable, "-B", "-c", _LIMITED, "show", "last", "--json"], stdout=file, stderr=subprocess.PIPE, env=settings, check=False
        )

    assert (done.returncode, done.stderr) == (2, b"pal: output: File too large\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize(
    "words", [("sessions",), ("show", "last"), ("show", "last", "--request", "1"), ("--help",), ("sessions", "--json")]
)
def test_a_full_disk_behind_standard_output_is_one_line(pal: Pal, words: tuple[str, ...]) -> None:
    small(pal.home)
    settings = {**os.environ, "PAL_HOME": str(pal.home.folder)}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*PAL, *words], stdout=full, stderr=subprocess.PIPE, env=settings, check=False)

    assert done.returncode == 2
    assert done.stderr.decode().splitlines()[-1] == "pal: output: No space left on device"
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("words", [("sessions",), ("sessions", "--json"), ("--help",), ("show", "last", "--request", "1")])
def test_a_closed_standard_output_is_one_line(pal: Pal, words: tuple[str, ...]) -> None:
    small(pal.home)
    done = _run_in_shell(pal, ">&-", *words)

    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, b"pal: output: Bad file descriptor")
    assert b"Traceback" not in done.stderr


def test_streams_that_are_closed_and_not_needed_stop_nothing(pal: Pal) -> None:
    small(pal.home)
    before = pal.home.store.path_of(SMALL).read_bytes()

    assert b"aaaa  shop" in _run_in_shell(pal, "2>&- <&-", "sessions").stdout
    assert _run_in_shell(pal, "<&- 2>&-", "delete", SMALL).returncode == 2
    assert _run_in_shell(pal, "<&- >&- 2>&-", "undo", SMALL).returncode == 2
    assert pal.home.store.path_of(SMALL).read_bytes() == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize("streams", ["2>/dev/full", ">/dev/full 2>&1", "2>&-", ">&- 2>/dev/full"])
def test_an_error_that_cannot_be_printed_keeps_its_exit_code(pal: Pal, streams: str) -> None:
    assert _run_in_shell(pal, streams, "show", "nope").returncode == 2
    assert _run_in_shell(pal, streams, "nonsense").returncode == 2


@pytest.mark.parametrize("module", ["click", "pal.cli.command_line", "pal.cli.models"])
def test_an_interrupt_while_modules_are_loaded_ends_quietly(module: str) -> None:
    script = f"""
import sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
sys.argv = ["pal", "cards"]
import runpy
runpy.run_module("pal.cli", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False, timeout=120)

    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_the_process_ends_with_the_code_of_the_command_after_threads_and_exit_functions_and_frees_nothing() -> None:
    script = """
import atexit, sys, threading
from pal.cli.start import main
def work():
    threading.main_thread().join()
    atexit.register(print, "exit function")
    print("thread")
class Kept:
    def __del__(self):
        print("freed", flush=True)
kept = Kept()
threading.Thread(target=work).start()
sys.argv = ["pal", "nonsense"]
main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)

    assert (done.returncode, done.stdout) == (2, "thread\nexit function\n")


def test_an_interrupt_ends_quietly(pal: Pal) -> None:
    settings = {**os.environ, "PAL_HOME": str(pal.home.folder)}
    pipe = subprocess.PIPE
    with subprocess.Popen([*PAL, "-p", "sum it up"], env=settings, stdin=pipe, stdout=pipe, stderr=pipe) as running:
        assert running.stdin is not None
        try:
            # More than a pipe holds: once it is written, the command is reading its standard input, which has not ended.
            running.stdin.write(b"x" * 1_000_000)
            running.stdin.flush()
            running.send_signal(signal.SIGINT)
            running.wait(timeout=120)
        finally:
            running.kill()
        out, reported = running.communicate()

    assert (running.returncode, out, reported) == (130, b"", b"")


def test_a_home_that_cannot_be_made_is_one_line(pal: Pal) -> None:
    pal.home.folder.write_text("a file where the home should be")

    for words in (("sessions",), ("show", "last"), ("search", "x"), ("index",), ("verify",)):
        done = _run(pal, *words)
        assert b"Traceback" not in done.stderr
        assert len(done.stderr.splitlines()) <= 1


def test_a_home_that_may_only_be_read_can_be_read(pal: Pal) -> None:
    small(pal.home)
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("root writes everywhere, and there is no setpriv here to take that right away")
    for folder in (pal.home.store.folder, pal.home.folder):
        folder.chmod(0o500)
    try:
        assert b"aaaa  shop" in _run_as_anybody(pal, "sessions").stdout
        assert _run_as_anybody(pal, "show", SMALL).returncode == 0
        refused = _run_as_anybody(pal, "fork", SMALL)
        assert (refused.returncode, refused.stderr.count(b"\n")) == (2, 1)
        assert b"permission denied" in refused.stderr.lower()
    finally:
        for folder in (pal.home.folder, pal.home.store.folder):
            folder.chmod(0o700)


def test_a_terminal_that_cannot_show_a_letter_gets_an_escape(pal: Pal) -> None:
    small(pal.home)
    done = _run(pal, "show", SMALL, PYTHONIOENCODING="ascii")

    assert done.returncode == 0
    assert b"\\u8d85\\u65f6" in done.stdout


def test_the_version_and_the_completion_scripts_are_printed(pal: Pal) -> None:
    assert _run(pal, "--version").stdout.startswith(b"pal 0.")
    for shell in ("bash", "zsh", "fish"):
        assert b"_PAL_COMPLETE" in _run(pal, "completion", shell).stdout


def test_the_shell_completes_commands_and_session_ids(pal: Pal) -> None:
    small(pal.home)

    commands = _run(pal, _PAL_COMPLETE="bash_complete", COMP_WORDS="pal se", COMP_CWORD="1").stdout
    ids = _run(pal, _PAL_COMPLETE="bash_complete", COMP_WORDS="pal show 2031", COMP_CWORD="2").stdout

    assert commands.split() == [b"plain,sessions", b"plain,search", b"plain,secrets"]
    assert ids.split() == [f"plain,{SMALL}".encode()]


def test_an_unknown_command_is_one_line_or_one_value(pal: Pal) -> None:
    assert _run(pal, "sesions").stderr.startswith(b"pal: No such command 'sesions'")
    assert pal.json("sesions", code=2)["error"]["kind"] == "usage"


def test_a_working_directory_that_was_deleted_is_named_as_what_is_missing(tmp_path: Path) -> None:
    gone, command = tmp_path / "gone", f"{shlex.join(PAL)} -p hello </dev/null"
    gone.mkdir()
    environment = {**os.environ, "HOME": str(tmp_path), "PAL_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        ["bash", "-c", f'rmdir "$PWD"; exec {command}'], cwd=gone, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, "pal: the working directory does not exist any more: No such file or directory\n")
