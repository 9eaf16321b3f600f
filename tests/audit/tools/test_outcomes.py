"""Outcomes of commands, from their line, exit code and output."""

import pytest
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.audit.tool_calls import (
    command_failed,
    error_line,
    handle_in_call,
    handle_in_output,
    is_test_command,
    normalized_command,
    open_tasks,
    summary_of_tests,
    task_change,
    task_key,
    with_task_number,
)
from palimpsest.core.items import ToolCall


@pytest.mark.parametrize(
    "command",
    [
        "pytest -q",
        "cd web && npm run test -- --watch=false",
        "go test ./...",
        "cargo nextest run",
        "python -m unittest",
        "make check",
        "bun test a.ts",
    ],
)
def test_a_command_that_runs_tests_is_known_by_its_line(command: str) -> None:
    assert is_test_command(command)


@pytest.mark.parametrize("command", ["ls tests", "cat test_x.py", "git commit -m 'run pytest in CI'", "npm install", "git checkout test"])
def test_a_command_that_only_speaks_of_tests_runs_none(command: str) -> None:
    assert not is_test_command(command)


@every_case(
    "command",
    [
        "pip install pytest-xdist",
        "cat jest.config.js",
        "grep -rn pytest .",
        "git add tests/pytest.ini",
        "npm install jest",
        "which pytest",
        "cat log | grep pytest",
        "ls tests | xargs pytest",
        "cat > run.sh <<'EOF'\npytest -q\nEOF",
        "python - <<'EOF'\nimport pytest\nEOF",
        "echo done # pytest",
        "cargo check",
        "",
    ],
)
def test_a_command_that_mentions_a_test_runner_runs_none(command: str) -> None:
    assert not is_test_command(command)


@every_case(
    "command",
    [
        "pytest | tail -3",
        "env CI=1 timeout 60 pytest -q > out.log 2>&1",
        "sudo -u me time nice -n 5 pytest",
        "bash -lc 'cd web && npm test'",
        "bash <<'EOF'\ncd web\nnpm test\nEOF",
        "if pytest -q; then echo ok; fi",
        "for seed in 1 2 3; do pytest -p $seed; done",
        "echo $(pytest -q | tail -1)",
        "docker compose exec -T web bash -c 'pytest -q'",
        "make lint && (cd web; yarn test) || true",
    ],
)
def test_tests_are_found_through_wrappers_pipelines_and_scripts(command: str) -> None:
    assert is_test_command(command)


def test_the_same_command_is_the_same_however_its_output_is_cut() -> None:
    assert normalized_command("cd /r && make  build 2>&1 | tail -5") == "make build"
    assert normalized_command("make build > /dev/null") == "make build"


def test_a_search_that_found_nothing_did_not_fail() -> None:
    assert not command_failed("grep -rn foo src", 1, error=False)
    assert not command_failed("cat x | grep y", 1, error=False)
    assert command_failed("grep -rn foo src", 2, error=False)
    assert command_failed("make", 1, error=False)
    assert command_failed("make", None, error=True)
    assert not command_failed("make", None, error=False)


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("....\n12 passed in 0.31s\n", "12 passed in 0.31s"),
        ("Tests:       1 failed, 4 passed, 5 total\nSnapshots: 0", "Tests:       1 failed, 4 passed, 5 total"),
        ("running 2 tests\ntest result: ok. 2 passed; 0 failed", "test result: ok. 2 passed; 0 failed"),
        ("nothing of the kind", ""),
    ],
)
def test_the_line_that_sums_up_a_test_is_found(output: str, line: str) -> None:
    assert summary_of_tests(output) == line


def test_what_went_wrong_is_the_last_error_or_the_last_line() -> None:
    assert error_line("a\nb\n\n", []) == "b"
    assert error_line("a\nb\n\n", ["TypeError: a"]) == "TypeError: a"


def test_a_command_that_runs_on_tells_how_it_is_asked_for() -> None:
    assert handle_in_output("Process running with session ID 66547\n") == "66547"
    assert handle_in_output("Command running in background with ID: b463a86. Output") == "b463a86"
    assert handle_in_call(ToolCall("c", "write_stdin", '{"session_id":66547,"chars":""}')) == "66547"
    assert handle_in_call(ToolCall("c", "Bash", "{}")) == ""


def test_task_lists_are_read_in_the_forms_of_all_programs() -> None:
    assert open_tasks([{"content": "a", "status": "done"}, {"title": "b"}, "c"]) == ("b", "c")
    assert open_tasks({"plan": [{"step": "s", "status": "pending"}]}) == ("s",)
    assert open_tasks({"task_list": [{"title": "t", "status": "todo"}, {"title": "u", "done": True}]}) == ("t",)
    assert open_tasks("1. [ ] one\n2. [x] two") == ("one",)
    assert open_tasks(7) is None
    assert task_change(ToolCall("c", "TaskUpdate", '{"taskId":"3","status":"deleted"}')) == (None, "", "#3")
    assert task_change(ToolCall("c", "TaskUpdate", '{"taskId":"3","subject":"new words"}')) == (None, "#3 new words", "")
    assert task_change(ToolCall("c", "task_update", '{"id":3,"status":"completed"}')) == (None, "", "#3")
    assert task_change(ToolCall("c", "task_update", '{"id":true,"status":"completed"}')) == (None, "", "")
    assert (task_key("#3 words"), task_key("words")) == ("#3", "words")
    assert with_task_number("words", "Task #4 created") == "#4 words"


@given(st.text(), st.text())
def test_any_line_and_any_output_can_be_classified(command: str, output: str) -> None:
    same = normalized_command(command)
    assert normalized_command(same) == same
    is_test_command(command)
    command_failed(command, 1, error=False)
    summary_of_tests(output)
    handle_in_output(output)
    open_tasks(output)
