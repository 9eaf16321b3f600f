"""How a command went: whether it is a test, whether it failed, what its output says in one line, and how it is named while it runs on."""

import re

from palimpsest.audit.tools.calls import args_of
from palimpsest.audit.tools.executed import executed
from palimpsest.audit.tools.test_runners import runs_tests
from palimpsest.core.items import ToolCall

_SUMMARY = re.compile(
    r"^.*(?:\b\d+ (?:passed|failed|passing|failing|pass|fail|skipped|errors?|tests?|specs?|examples?|failures?)\b|"
    r"\b(?:Tests|Test Suites|Tests run|Ran \d+ tests?)\b|test result: |^(?:OK|FAILED|ok|FAIL|PASS)\b|--- FAIL).*$",
    re.MULTILINE,
)
_QUIET = frozenset(
    {"grep", "rg", "egrep", "fgrep", "diff", "test", "[", "which", "ls", "find", "cmp", "pgrep", "ag", "git grep", "git diff"}
)
_TAIL = re.compile(r"\s*(?:2>&1|\|\s*(?:tail|head|grep|cat|tee|less|sed|awk|wc)\b[^|&;]*|>\s*/dev/null|2>\s*/dev/null)\s*$")
_PARTS = re.compile(r"\|{1,2}|&&|;|\n")
_CHANGES_FOLDER = re.compile(r"^cd\s+\S+\s*(?:&&|;)\s*")
_RUNS_ON = re.compile(
    r"running with session ID (\w+)|shellId:? (\w+) is still running|background with ID:? (\w+)|still running.{0,20}PID:? (\w+)"
)
_HANDLES = ("session_id", "sessionId", "shellId", "shell_id", "bash_id", "task_id", "process_id")
_LONGEST_NOTE = 160


def is_test_command(command: str) -> bool:
    """Whether a shell line runs tests in one of its commands."""
    return any(words and runs_tests(words) for (words, _, _), _ in executed(command))


def normalized_command(command: str) -> str:
    """What two runs of one command share, however their output is cut and from wherever they are started."""
    plain = " ".join(command[:2_000].split())
    while (shorter := _TAIL.sub("", _CHANGES_FOLDER.sub("", plain))) != plain:
        plain = shorter
    return plain


def command_failed(command: str, code: int | None, *, error: bool) -> bool:
    """Whether a command failed; a search that found nothing did not."""
    if code is None:
        return error
    if code == 0:
        return False
    # The code is that of the last part of a line.
    last = _PARTS.split(command[-2_000:].strip())[-1].split()
    return not (code == 1 and last and (last[0] in _QUIET or " ".join(last[:2]) in _QUIET))


def summary_of_tests(output: str) -> str:
    """The last line of a test's output that sums it up."""
    lines = _SUMMARY.findall(output[-4_000:])
    return str(lines[-1]).strip()[:_LONGEST_NOTE] if lines else ""


def error_line(output: str, lines: list[str]) -> str:
    """The line that says what went wrong: the last that looks like an error, or else the last of all."""
    if lines:
        return lines[-1][:_LONGEST_NOTE]
    return next((line.strip()[:_LONGEST_NOTE] for line in reversed(output[-2_000:].split("\n")) if line.strip()), "")


def handle_in_output(output: str) -> str:
    """How the output of a command that runs on says it can be asked for."""
    found = _RUNS_ON.search(output[:400]) or _RUNS_ON.search(output[-400:])
    return next((group for group in found.groups() if group), "") if found is not None else ""


def handle_in_call(call: ToolCall) -> str:
    """The running command that a call asks for."""
    args = args_of(call)
    return next((str(value) for name in _HANDLES if isinstance(value := args.get(name), str | int) and value != ""), "")
