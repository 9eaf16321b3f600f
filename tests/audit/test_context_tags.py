"""Real user messages and context in the user's role."""

from typing import get_args

import pytest
from every_case import every_case

from palimpsest.audit.entities import is_context_text, is_real_user_message, is_turn_boundary
from palimpsest.core.items import Item, Kind, Text


@pytest.mark.states("CX-32")
def test_the_kind_of_an_item_says_whether_a_turn_begins_there() -> None:
    boundaries = {kind for kind in get_args(Kind) if is_turn_boundary(Item("1.0", kind, Text("<environment_context>")))}
    assert boundaries == {"user", "steering"}


@every_case(
    "text",
    [
        "# AGENTS.md instructions for /repo\n\n<INSTRUCTIONS>\nUse tabs.\n</INSTRUCTIONS>",
        "<environment_context>\n  <cwd>/repo</cwd>\n</environment_context>",
        "  \n<ENVIRONMENT_CONTEXT>x</Environment_Context>",
        "<skill>\n<name>pdf</name>\n</skill>",
        "<user_shell_command>ls</user_shell_command>",
        "<turn_aborted>\nstopped\n</turn_aborted>",
        '<subagent_notification>{"agent_id":"a"}</subagent_notification>',
        "<external_editor>line 3</external_editor>",
    ],
)
@pytest.mark.states("CX-32")
def test_a_message_with_any_context_fragment_is_no_turn_boundary(text: str) -> None:
    assert is_context_text(text)
    assert not is_real_user_message(["please fix the build", text])


@every_case(
    "text",
    [
        "please fix the build",
        "",
        "why does <environment_context> appear in </environment_context>",
        "<environment_context> is what I want to ask about",
        "<skill> tags?",
        "<external_editor>line 3</external_viewer>",
        "<external_editor",
        "# AGENTS.md instructions for beginners",
    ],
)
@pytest.mark.states("CX-32")
def test_words_of_the_user_stay_a_boundary(text: str) -> None:
    assert not is_context_text(text)
    assert is_real_user_message([text])


@pytest.mark.states("CX-32")
def test_older_files_need_only_the_opening_of_the_session_tags() -> None:
    assert is_context_text("<environment_context> cut off", session_tags_open=True)
    assert not is_context_text("<skill> cut off", session_tags_open=True)
