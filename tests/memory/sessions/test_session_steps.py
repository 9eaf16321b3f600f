"""Steps of sessions: files, commands and texts, whatever program recorded them."""

import pytest
from past_sessions import BEGIN, PastSession

from palimpsest.memory.past_sessions import AccessStep, CommandStep, OpenedStep, SaidStep, session_steps


def test_texts_files_and_commands_are_steps_in_their_order_with_paths_within_the_folder() -> None:
    session = PastSession("/repo", "feat/x")
    session.user("make it pass")
    session.read("/repo/src/a.py")
    session.edit("/elsewhere/b.py")
    session.run("cd /repo && pytest -q 2>&1 | tail -5", 1, "E   ValueError: bad\n1 failed")
    session.reply("It fails.")
    assert list(session_steps(session.events)) == [
        OpenedStep("/repo", "feat/x"),
        SaidStep(1, BEGIN + 1_000, "user", "make it pass", begins=True),
        AccessStep(3, BEGIN + 3_000, "src/a.py", changes=False),
        AccessStep(5, BEGIN + 5_000, "/elsewhere/b.py", changes=True),
        CommandStep(7, BEGIN + 7_000, "pytest -q", "failed", ("E   ValueError: bad",), tests=True),
        SaidStep(8, BEGIN + 8_000, "assistant", "It fails."),
    ]


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("Edit", {"file_path": "/repo/src/a.py", "old_string": "x", "new_string": "y"}),
        ("edit", {"filePath": "/repo/src/a.py", "oldString": "x", "newString": "y"}),
        ("apply_patch", {"input": "*** Begin Patch\n*** Update File: src/a.py\n@@\n-x\n+y\n*** End Patch"}),
        ("str_replace_editor", {"command": "str_replace", "path": "/repo/src/a.py", "old_str": "x", "new_str": "y"}),
    ],
)
def test_an_edit_by_the_tool_of_any_program_is_a_change_of_the_same_path(tool: str, args: dict[str, object]) -> None:
    session = PastSession("/repo")
    seq = session.call(tool, args)
    assert list(session_steps(session.events))[1:] == [AccessStep(seq, BEGIN + seq * 1_000, "src/a.py", changes=True)]


@pytest.mark.parametrize(
    ("tool", "args"), [("exec_command", {"cmd": "go test ./..."}), ("shell", {"command": ["bash", "-lc", "go test ./..."]})]
)
def test_a_command_by_the_tool_of_any_program_is_the_same_command(tool: str, args: dict[str, object]) -> None:
    session = PastSession("/repo")
    seq = session.call(tool, args, "Process exited with code 0\nok")
    assert list(session_steps(session.events))[1:] == [CommandStep(seq, BEGIN + seq * 1_000, "go test ./...", "succeeded", tests=True)]


def test_the_outcome_of_a_command_that_keeps_running_is_that_of_the_call_that_polls_it() -> None:
    session = PastSession("/repo")
    session.call("exec_command", {"cmd": "make slow"}, "Process running with session ID 77")
    seq = session.call("write_stdin", {"session_id": 77}, "Process exited with code 2\nerror: no rule")
    assert list(session_steps(session.events))[1:] == [CommandStep(seq, BEGIN + seq * 1_000, "make slow", "failed", ("error: no rule",))]


def test_a_call_without_an_exit_code_proves_nothing_and_a_failed_edit_changes_nothing() -> None:
    session = PastSession("/repo")
    seq = session.call("Bash", {"command": "make"}, "The request was refused", error=True)
    session.call("Edit", {"file_path": "/repo/a.py", "old_string": "x", "new_string": "y"}, "not found", error=True)
    assert list(session_steps(session.events))[1:] == [CommandStep(seq, BEGIN + seq * 1_000, "make", "unknown")]


def test_a_line_that_only_repeats_the_exit_code_is_no_error_line() -> None:
    session = PastSession("/repo")
    seq = session.run("curl -s localhost", 7, "Exit code 7")
    assert list(session_steps(session.events))[1:] == [CommandStep(seq, BEGIN + seq * 1_000, "curl -s localhost", "failed")]


def test_paths_in_a_worktree_where_commands_ran_are_relative_to_it() -> None:
    session = PastSession("/home/me/repo")
    session.call("exec_command", {"cmd": "ls", "workdir": "/home/me/repo.worktrees/x"}, exit_code=0)
    seq = session.edit("/home/me/repo.worktrees/x/src/a.py")
    assert list(session_steps(session.events))[-1] == AccessStep(seq, BEGIN + seq * 1_000, "src/a.py", changes=True)


def test_paths_of_windows_are_relative_with_slashes() -> None:
    session = PastSession("D:\\repo")
    seq = session.edit("D:\\repo\\src\\a.py")
    assert list(session_steps(session.events))[-1] == AccessStep(seq, BEGIN + seq * 1_000, "src/a.py", changes=True)


def test_context_that_a_program_put_into_the_role_of_the_user_is_not_said() -> None:
    session = PastSession("/repo")
    session.user("<environment_context>\n<cwd>/repo</cwd>\n</environment_context>")
    assert list(session_steps(session.events)) == [OpenedStep("/repo", "")]
