"""The memory tool of the anthropic SDK over the notes of a project, in two conversations; the model is a function of this file."""

import json
import tempfile
from pathlib import Path
from typing import Any

import anthropic
import httpx2

from palimpsest.adapters.memory_tool import memory_tool
from palimpsest.follow.conversation import Conversation

SAID = "The tests of this project run with make check."
PATH = "/memories/project/tests.md"


def answer(request: httpx2.Request) -> httpx2.Response:
    """Write down what the user says about the project, or look it up; then say what came back."""
    last = json.loads(request.content)["messages"][-1]["content"]
    command: dict[str, Any] = {"command": "view", "path": PATH}
    if last == SAID:
        command = {"command": "create", "path": PATH, "file_text": SAID}
    block: dict[str, Any] = {"type": "tool_use", "id": "call_1", "name": "memory", "input": command}
    if isinstance(last, list):
        block = {"type": "text", "text": f"The tool said: {last[0]['content'].splitlines()[-1]}"}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-4-6", "content": [block]}
    stop = "tool_use" if block["type"] == "tool_use" else "end_turn"
    return httpx2.Response(200, json=message | {"stop_reason": stop, "usage": {"input_tokens": 9, "output_tokens": 9}})


def ask(prompt: str, home: Path, project: Path) -> None:
    offline = anthropic.DefaultHttpxClient(transport=httpx2.MockTransport(answer))
    client = anthropic.Anthropic(api_key="none", http_client=offline)
    messages: list[Any] = [{"role": "user", "content": prompt}]
    with Conversation.open(model="claude-sonnet-4-6", home=home) as conversation:
        conversation.prepare(messages)  # so that a note can cite what the user said
        tool = memory_tool(conversation, project)
        reply = client.beta.messages.tool_runner(model="claude-sonnet-4-6", max_tokens=1_000, messages=messages, tools=[tool]).until_done()
        print(*(block.text for block in reply.content if block.type == "text"))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home, project = Path(folder) / "home", Path(folder) / "project"
        project.mkdir()
        ask(SAID, home, project)
        ask("How do I run the tests?", home, project)


if __name__ == "__main__":
    main()
