"""Hooks that misbehave: whatever one does, the turn goes on, each run is recorded as it was, and the user gets one notice."""

import asyncio
import shlex
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Event as ThreadEvent
from typing import Any

import pytest
from hook_runs import PLAIN_ENVIRONMENT, TWO_CALLS, processes_with, run_hooked
from loops import calls

from palimpsest.agent.hook_commands import command_hook
from palimpsest.agent.hooks import Hook, HookCall, HookResult
from palimpsest.core.events import HookRan, ToolReturned
from palimpsest.core.items import text_of

PYTHON = f"{shlex.quote(sys.executable)} -S -E -c"
DEEP = f"""{PYTHON} 'print("{{\\"context\\":" + "[" * 25000 + "]" * 25000 + "}}")'"""
# Each with its exit code and the kind of failure that is recorded, which stands before the first colon.
COMMANDS: dict[str, tuple[str, int | None, str]] = {
    "hangs": ("exec tail -f /dev/null", None, "did not end within 0.4 s"),
    "stops itself": ("kill -STOP $$", None, "did not end within 0.4 s"),
    "ignores SIGTERM": ("trap '' TERM HUP INT; tail -f /dev/null & wait", None, "did not end within 0.4 s"),
    "prints without end": ("exec yes", None, "did not end within 0.4 s"),
    "hangs with a child that left the group": ("setsid tail -f /dev/null & tail -f /dev/null", None, "did not end within 0.4 s"),
    "fails": ("echo broken >&2; exit 1", 1, "ended with exit code 1"),
    "fails after a block": ("""echo '{"block":"no"}'; exit 3""", 3, "ended with exit code 3"),
    "is not there": ("no-such-program-of-ours", 127, "ended with exit code 127"),
    "kills itself": ("kill -9 $$", -9, "was ended by SIGKILL"),
    "prints garbage": ("echo 'all is well'", 0, "printed no valid JSON"),
    "prints 10 MB": ("head -c 10000000 /dev/zero | tr '\\0' x", 0, "printed more than 64 kB"),
    "prints 10 MB of errors": ("head -c 10000000 /dev/zero | tr '\\0' x >&2; exit 1", 1, "ended with exit code 1"),
    "prints half of a value": ("""printf '{"context":"a'""", 0, "printed no valid JSON"),
    "prints a wrong type": ("""echo '{"block":true}'""", 0, "printed a wrong value"),
    "prints a list": ("echo '[]'", 0, "printed no JSON object"),
    "prints deep nesting": (DEEP, 0, "printed no valid JSON"),
    "prints unknown keys": ("""echo '{"decision":"block"}'""", 0, "printed an unknown key"),
    "prints invalid UTF-8": ("""printf '{"context":"\\377"}'""", 0, "printed no valid JSON"),
    "prints NUL bytes": ("""printf '\\0\\0{}'""", 0, "printed no valid JSON"),
    "leaves a child that holds its output": ("tail -f /dev/null & exit 0", 0, "left processes running"),
    "leaves a daemon in a session of its own": ("setsid tail -f /dev/null & exit 0", 0, "left processes running"),
    "leaves a daemon that ignores SIGTERM": ("(trap '' TERM HUP; tail -f /dev/null) & exit 0", 0, "left processes running"),
    "closes all its streams and hangs": ("exec <&- >&- 2>&-; kill -STOP $$", None, "did not end within 0.4 s"),
}


@pytest.mark.parametrize("sort", COMMANDS)
def test_a_command_that_misbehaves_is_recorded_as_it_was_and_the_turn_goes_on(sort: str, tmp_path: Path) -> None:
    command, code, kind = COMMANDS[sort]
    marker = f"PAL_TEST_ROW={tmp_path.name}-{sort.replace(' ', '-')}"
    name, _, value = marker.partition("=")
    seconds = 0.4 if code is None else 30.0
    hook = command_hook("before_tool", command, cwd=tmp_path, environment={**PLAIN_ENVIRONMENT, name: value}, name="rude", seconds=seconds)
    done = run_hooked(*TWO_CALLS, hooks=(hook,), cwd=tmp_path)
    assert done.stop == "done"
    assert [text_of(body.result) for body in done.bodies if isinstance(body, ToolReturned)] == ['echo {"a":1}', 'echo {"b":2}']
    assert [(run.hook, run.moment, run.exit, run.blocked, run.text, run.call_id) for run in done.runs] == [
        ("rude", "before_tool", code, False, "", "a"),
        ("rude", "before_tool", code, False, "", "b"),
    ]
    assert [run.failure.partition(":")[0] for run in done.runs] == [kind, kind]
    assert len(done.notices) == 1
    assert done.notices[0].startswith(f"the hook rude (before_tool) {kind}")
    assert len(done.notices[0]) <= 300
    assert processes_with(marker) == []


async def raises(_: HookCall) -> HookResult:
    raise RuntimeError("broken")


def raises_plainly(_: HookCall) -> HookResult:
    raise RuntimeError("broken")


class _Unreadable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def raises_an_error_without_text(_: HookCall) -> HookResult:
    raise _Unreadable


async def exits(_: HookCall) -> HookResult:
    sys.exit(7)


def exits_plainly(_: HookCall) -> HookResult:
    sys.exit(7)


async def never_returns(_: HookCall) -> HookResult:
    await asyncio.Event().wait()
    return HookResult()


def never_returns_plainly(_: HookCall) -> HookResult:
    ThreadEvent().wait()
    return HookResult()


async def cancels_itself(_: HookCall) -> HookResult:
    raise asyncio.CancelledError


async def cancels_its_task(_: HookCall) -> HookResult:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    return await never_returns(_)


def returns_a_number(_: HookCall) -> Any:
    return 5


def returns_wrong_fields(_: HookCall) -> Any:
    wrong: Any = True
    return HookResult(block=wrong)


def returns_a_huge_exit_code(_: HookCall) -> HookResult:
    return HookResult(exit=10**30)


def keeps_asking(_: HookCall) -> Awaitable[HookResult]:
    return never_returns(_)


@pytest.mark.parametrize(
    ("function", "failure"),
    [
        (raises, "raised RuntimeError: broken"),
        (raises_plainly, "raised RuntimeError: broken"),
        (raises_an_error_without_text, "raised _Unreadable: its text cannot be read"),
        (exits, "raised SystemExit: 7"),
        (exits_plainly, "raised SystemExit: 7"),
        (never_returns, "did not end within 0.1 s"),
        (never_returns_plainly, "did not end within 0.1 s"),
        (keeps_asking, "did not end within 0.1 s"),
        (cancels_itself, "cancelled itself"),
        (cancels_its_task, "cancelled itself"),
        (returns_a_number, "returned a wrong value: int is neither HookResult nor str nor None"),
        (returns_wrong_fields, "returned a wrong value: block must be a text and is bool"),
        (returns_a_huge_exit_code, "returned a wrong value: exit must be an exit code"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_function_that_misbehaves_is_recorded_and_the_turn_goes_on(
    function: Callable[[HookCall], HookResult], failure: str, tmp_path: Path
) -> None:
    seconds = 0.1 if failure.startswith("did not") else 30.0
    done = run_hooked(*TWO_CALLS, hooks=(Hook("after_tool", function, "rude", seconds=seconds),), cwd=tmp_path)
    assert done.stop == "done"
    assert done.runs == [
        HookRan("rude", "after_tool", call_id="a", failure=failure, notice=f"the hook rude (after_tool) {failure}"),
        HookRan("rude", "after_tool", call_id="b", failure=failure),
    ]


def test_a_hook_that_deletes_the_project_folder_leaves_a_turn_that_ends(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    hook = command_hook("before_tool", f"rm -r {shlex.quote(str(project))}", cwd=project, environment=PLAIN_ENVIRONMENT, name="rude")
    done = run_hooked(*TWO_CALLS, hooks=(hook,), cwd=project)
    assert done.stop == "done"
    assert [(run.exit, run.failure.partition(":")[0]) for run in done.runs] == [(0, ""), (None, "cannot be started")]
    assert len(done.notices) == 1


@pytest.mark.parametrize("command", ["true", "exec <&-", "head -c 1 > /dev/null"])
def test_a_large_call_does_not_wait_for_a_hook_that_does_not_read_it(command: str, tmp_path: Path) -> None:
    # Many times what a pipe holds.
    large = f'{{"text":"{"x" * 1_000_000}"}}'
    hook = command_hook("before_tool", command, cwd=tmp_path, environment=PLAIN_ENVIRONMENT, name="deaf", seconds=30)
    done = run_hooked(calls(("a", "echo", large)), "done", hooks=(hook,), cwd=tmp_path)
    assert (done.stop, done.runs) == ("done", [HookRan("deaf", "before_tool", exit=0, call_id="a")])


def test_a_key_of_the_environment_does_not_reach_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-user")
    monkeypatch.setenv("PAL_TEST_PLAIN", "may-be-known")
    done = run_hooked("done", hooks=(command_hook("session_start", "env", cwd=tmp_path),), cwd=tmp_path)
    [run] = done.runs
    assert "PAL_TEST_PLAIN=may-be-known" in run.text
    assert "sk-ant-of-the-user" not in run.text


def test_a_hook_without_limits_in_its_words_is_cut_and_cleaned(tmp_path: Path) -> None:
    def talks(_: HookCall) -> str:
        return "\0\x1b[31mred \ud800" + "x" * 10_000_000

    done = run_hooked("done", hooks=(Hook("session_start", talks),), cwd=tmp_path)
    [run] = done.runs
    assert run.text == "[31mred ?" + "x" * 9_989 + "\n[9,990,011 characters left out]"
    assert done.stop == "done"
