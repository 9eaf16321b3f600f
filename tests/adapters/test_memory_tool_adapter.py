"""The memory tool of the anthropic SDK over the notes of a project."""

from pathlib import Path

import pytest
from anthropic.lib.tools import ToolError

from palimpsest.adapters.memory_tool import memory_tool
from palimpsest.core.errors import BadInput
from palimpsest.core.events import NoteSaved
from palimpsest.follow.conversation import Conversation

SAID = "The tests of this project run with make check."
PATH = "/memories/project/tests.md"


def test_the_memory_tool_writes_notes_that_the_next_conversation_of_the_project_sees(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    project.mkdir()
    with Conversation.open("one", model="claude-sonnet-4-6", home=home) as conversation:
        conversation.prepare([{"role": "user", "content": SAID}])
        tool = memory_tool(conversation, project)
        assert tool.to_dict() == {"type": "memory_20250818", "name": "memory"}
        assert str(tool.call({"command": "create", "path": PATH, "file_text": SAID})).startswith(f"Created {PATH}.")
        saved = [event.body for event in conversation.session.log.events() if isinstance(event.body, NoteSaved)]
        assert [body.by for body in saved] == ["memory_tool"]
    with Conversation.open("two", model="claude-sonnet-4-6", home=home) as conversation:
        assert SAID in str(memory_tool(conversation, project).call({"command": "view", "path": PATH}))


def test_what_the_tool_cannot_do_is_an_error_of_the_sdk_and_a_conversation_in_memory_has_no_notes(tmp_path: Path) -> None:
    with Conversation.open(model="claude-sonnet-4-6", home=tmp_path) as conversation:
        tool = memory_tool(conversation, tmp_path)
        for wrong in ({"command": "view", "path": "/memories/none.md"}, {"command": "view", "path": "/etc/passwd"}):
            with pytest.raises(ToolError):
                tool.call(wrong)
    with Conversation.open(model="claude-sonnet-4-6") as conversation, pytest.raises(BadInput, match="in memory has no notes"):
        memory_tool(conversation, tmp_path)
