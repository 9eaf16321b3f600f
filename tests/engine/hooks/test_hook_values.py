"""Hooks as values: their names, patterns and limits."""

from typing import Any

import pytest

from palimpsest.agent.hook_commands import command_hook
from palimpsest.agent.hooks import Hook, HookCall, cleaned
from palimpsest.core.errors import BadInput


def look(_: HookCall) -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"moment": "sometimes"}, "there is no moment 'sometimes'; the moments are session_start, session_end,"),
        ({"moment": "turn_end", "tool": "bash"}, "a hook of turn_end has no tool; leave the pattern 'bash' out"),
        ({"moment": "turn_end", "name": "two\nlines"}, "the name of a hook is one line of at most 80 characters"),
        ({"moment": "turn_end", "name": "x" * 81}, "the name of a hook is one line of at most 80 characters"),
        ({"moment": "turn_end", "seconds": 0}, "more than 0 and at most 3600 seconds"),
        ({"moment": "turn_end", "seconds": float("nan")}, "more than 0 and at most 3600 seconds"),
    ],
)
def test_a_hook_that_could_not_work_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as refused:
        Hook(run=look, **fields)
    assert message in refused.value.message


def test_a_hook_is_called_like_its_function_or_its_program() -> None:
    assert Hook("turn_end", look).name == "look"
    assert Hook("turn_end", look, "other").name == "other"
    assert command_hook("turn_end", "'/opt/my tools/check' --all").name == "check"
    assert command_hook("turn_end", "a 'b").name == "a"
    assert command_hook("turn_end", "  ").name == "command"


def test_a_pattern_names_the_tools_of_a_hook() -> None:
    hook = Hook("before_tool", look, tool="mcp_*")
    assert [hook.matches("before_tool", tool) for tool in ("mcp_a", "bash", "MCP_a")] == [True, False, False]
    assert not hook.matches("after_tool", "mcp_a")
    assert Hook("turn_end", look).matches("turn_end", "")


def test_a_text_is_cleaned_of_control_characters_and_bounded() -> None:
    assert cleaned(" a\0b\x1b[0m\r\n\tc\x7f ", 100) == "ab[0m\n\tc"
    assert cleaned("x" * 12, 10) == "xxxxxxxxxx\n[2 characters left out]"
