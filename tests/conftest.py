"""Settings of all tests: a law is checked by examples, never by the clock, on what looks like a bare machine; nothing is left behind."""

import gc
import os
import re
import select
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings

# A run draws the same examples as the last one, so that it is red only for what changed; the `long` tests draw others each time, and so
# does a run that names a number of examples in `PAL_TEST_EXAMPLES`.
_EXAMPLES, _LONG_EXAMPLES = "40", "100"


def pytest_configure(config: pytest.Config) -> None:
    """Draw more examples in a run of the `long` tests. The modules of the tests are imported later, and take the number from here."""
    if shutil.which("git") is None:
        raise pytest.UsageError("the tests need git, which is not in PATH; install it")
    short = "not long" in config.option.markexpr
    most = os.environ.get("PAL_TEST_EXAMPLES", "")
    examples = int(most or (_EXAMPLES if short else _LONG_EXAMPLES))
    settings.register_profile("palimpsest", deadline=None, print_blob=True, max_examples=examples, derandomize=short and not most)
    settings.load_profile("palimpsest")


# Variables of the environment: by the first the processes of a run are known, which inherit it; the second is the home of the run.
_MARK, _HOME = "PAL_TEST_RUN", "PAL_TEST_HOME"
_LEFT = pytest.StashKey[list[str]]()
# The last processes of a run may be on their way out, on a machine that does other work too.
_PATIENCE_S = float(os.environ.get("PAL_TEST_PATIENCE", "20"))
# Whoever runs the tests has keys, settings and a language of their own; only where programs are stays as it is. The names in the second
# line are for the tests of other programs: they name those, or say how to get them.
_KEPT = re.compile(
    r"PATH|PYTHONPATH|PYTEST\w*|HYPOTHESIS\w*|COVERAGE\w*|TMPDIR|PAL_TEST_\w+"
    r"|CLAUDE_CODE|CODEX|OPENCODE|(?i:\w+_proxy|npm_\w+)"
)
# Git reads the settings of a user elsewhere than in the home too. `PAL_TEST_GIT` names a file of settings to run the tests with.
_GIT = {"GIT_CONFIG_GLOBAL": os.environ.get("PAL_TEST_GIT", os.devnull), "GIT_CONFIG_NOSYSTEM": "1"}


def _look_bare() -> None:
    """Give this process, and all that it starts, an empty home and no variable that a bare machine would not have."""
    for name in [name for name in os.environ if not _KEPT.fullmatch(name)]:
        del os.environ[name]
    if _MARK not in os.environ:
        os.environ[_MARK] = uuid.uuid4().hex
        os.environ[_HOME] = tempfile.mkdtemp(prefix="pal-test-home-")
    os.environ.update({"HOME": os.environ[_HOME], "LANG": "C.UTF-8", **_GIT})


_look_bare()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the collector of garbage away from modules and test functions, which are never garbage: walking them took seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run if a process of it is still there, or a file in its home. Workers of the run have ended, or are about to."""
    if hasattr(session.config, "workerinput"):
        return
    home = Path(os.environ[_HOME])
    if "started_pal" in sys.modules:
        sys.modules["started_pal"].end_started()
    left = _end_processes(os.environ[_MARK]) if Path("/proc/self/environ").exists() else []
    left += [f"a file in the home: {path.relative_to(home)}" for path in sorted(home.rglob("*")) if _is_left(path)]
    shutil.rmtree(home, ignore_errors=True)
    session.config.stash[_LEFT] = left
    if left:
        session.exitstatus = max(int(session.exitstatus), pytest.ExitCode.TESTS_FAILED)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was left behind at the end, where a reader looks."""
    left = terminalreporter.config.stash.get(_LEFT, [])
    if left:
        terminalreporter.section("left behind, so the run has failed", red=True)
        terminalreporter.write_line("\n".join(left))


def _is_left(path: Path) -> bool:
    """Whether a test left a file. The programs that rustup puts in the search path write its settings whenever they are looked at."""
    return path.is_file() and ".rustup" not in path.parts


def _end_processes(mark: str) -> list[str]:
    """Kill the processes of a run that do not end by themselves. Returns a line for each: its test and its command."""
    left: dict[int, str] = {}
    poll = select.poll()
    for pid, line in _marked(mark):
        with suppress(OSError):
            handle = os.pidfd_open(pid)
            poll.register(handle, select.POLLIN)
            left[handle] = line
    until = time.monotonic() + _PATIENCE_S
    while left and (ended := poll.poll(max(0, until - time.monotonic()) * 1000)):
        for handle, _ in ended:
            poll.unregister(handle)
            os.close(handle)
            del left[handle]
    for handle in left:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)
    return list(left.values())


def _marked(mark: str) -> list[tuple[int, str]]:
    """The processes that have inherited the mark, other than this one."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal() or int(folder.name) == os.getpid():
            continue
        with suppress(OSError):
            variables = dict(entry.partition("=")[::2] for entry in _words(folder / "environ"))
            if variables.get(_MARK) == mark:
                test, command = variables.get("PYTEST_CURRENT_TEST", "no test"), " ".join(_words(folder / "cmdline"))
                found.append((int(folder.name), f"{test}: process {folder.name}: {command[:200]}"))
    return found


def _words(file: Path) -> list[str]:
    return file.read_bytes().decode(errors="replace").rstrip("\0").split("\0")
