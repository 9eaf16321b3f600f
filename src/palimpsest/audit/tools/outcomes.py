"""The outcome of a command: test or not, failed or not, a line of its output, and the handle of a running command."""

import re

from palimpsest.audit.tools.calls import args_of
from palimpsest.audit.tools.executed import executed
from palimpsest.audit.tools.test_runners import runs_tests
from palimpsest.core.items import ToolCall
from palimpsest.core.tokens.patterns import lazy_pattern

_SUMMARY = lazy_pattern(
    r"^.*(?:\b\d+ (?:passed|failed|passing|failing|pass|fail|skipped|errors?|tests?|specs?|examples?|failures?)\b|"
    r"\b(?:Tests|Test Suites|Tests run|Ran \d+ tests?)\b|test result: |^(?:OK|FAILED|ok|FAIL|PASS)\b|--- FAIL).*$",
    re.MULTILINE,
)
_QUIET = frozenset(
    {"grep", "rg", "egrep", "fgrep", "diff", "test", "[", "which", "ls", "find", "cmp", "pgrep", "ag", "git grep", "git diff"}
)
_TAIL = lazy_pattern(r"\s*(?:2>&1|\|\s*(?:tail|head|grep|cat|tee|less|sed|awk|wc)\b[^|&;]*|>\s*/dev/null|2>\s*/dev/null)\s*$")
_PARTS = lazy_pattern(r"\|{1,2}|&&|;|\n")
_CHANGES_FOLDER = lazy_pattern(r"^cd\s+\S+\s*(?:&&|;)\s*")
_RUNS_ON = lazy_pattern(
    r"running with session ID (\w+)|shellId:? (\w+) is still running|background with ID:? (\w+)|still running.{0,20}PID:? (\w+)"
)
_HANDLES = ("session_id", "sessionId", "shellId", "shell_id", "bash_id", "task_id", "process_id")
_LONGEST_NOTE = 160


def is_test_command(command: str) -> bool:
    """Whether a shell line runs tests in one of its commands."""
    return any(words and runs_tests(words) for (words, _, _), _ in executed(command))


def normalized_command(command: str) -> str:
    """A command without a leading `cd` and trailing filters, by which two runs of it are recognized."""
    plain = " ".join(command[:2_000].split())
    while (shorter := _TAIL.sub("", _CHANGES_FOLDER.sub("", plain))) != plain:
        plain = shorter
    return plain


def command_failed(command: str, code: int | None, *, error: bool) -> bool:
    """Whether a command failed; exit code 1 of a search means that it found nothing."""
    if code is None:
        return error
    if code == 0:
        return False
    # The exit code is that of the last command of a line.
    last = _PARTS.split(command[-2_000:].strip())[-1].split()
    return not (code == 1 and last and (last[0] in _QUIET or " ".join(last[:2]) in _QUIET))


def summary_of_tests(output: str) -> str:
    """The last summary line of the output of tests, or empty."""
    lines = _SUMMARY.findall(output[-4_000:])
    return str(lines[-1]).strip()[:_LONGEST_NOTE] if lines else ""


def error_line(output: str, lines: list[str]) -> str:
    """The last of the given error lines, or else the last line of the output."""
    if lines:
        return lines[-1][:_LONGEST_NOTE]
    return next((line.strip()[:_LONGEST_NOTE] for line in reversed(output[-2_000:].split("\n")) if line.strip()), "")


def handle_in_output(output: str) -> str:
    """The handle of a command that keeps running, from its output; empty if it ended."""
    found = _RUNS_ON.search(output[:400]) or _RUNS_ON.search(output[-400:])
    return next((group for group in found.groups() if group), "") if found is not None else ""


def handle_in_call(call: ToolCall) -> str:
    """The handle of the running command that a call polls; empty if there is none."""
    args = args_of(call)
    return next((str(value) for name in _HANDLES if isinstance(value := args.get(name), str | int) and value != ""), "")
