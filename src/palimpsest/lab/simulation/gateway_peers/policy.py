"""A peer as a policy of a replay: it gets the message list of each request, and what it changes in tool results becomes an edit."""

import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeAlias

import msgspec

from palimpsest.core.edits import Edit, Mask, Unmask
from palimpsest.core.errors import BadInput
from palimpsest.core.items import Item, Text, ToolCall, ToolResult, text_of
from palimpsest.core.policy import Plan, Proposal
from palimpsest.core.situation import Moment, Situation
from palimpsest.core.view import shown

Messages: TypeAlias = list[dict[str, Any]]
# Shown for a result that a peer leaves out; a result needs a text.
DROPPED: Final = "[left out]"
_WORKER: Final = Path(__file__).with_name("worker.py")
_MARK: Final = {"cache_control": {"type": "ephemeral"}}


class _Reply(msgspec.Struct, frozen=True):
    messages: Messages | None = None
    ms: float = 0.0
    error: str = ""
    version: str = ""


class ListEditor(Protocol):
    """Changes the message list of a request."""

    def edit(self, messages: Messages) -> tuple[Messages, float]:
        """Return the list that is sent, and the milliseconds that took."""
        ...


class PeerProcess:
    """A peer in a Python of its own. `version` is empty if it is not installed there; `failures` counts lists that it could not edit."""

    def __init__(self, name: str, python: str) -> None:
        self.failures = 0
        self._process = subprocess.Popen(  # noqa: S603 - the Python that the user named
            (python, str(_WORKER), name), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.version = self._reply().version

    def edit(self, messages: Messages) -> tuple[Messages, float]:
        """Return the list that the peer makes of this one, and its milliseconds; where it fails, the same list."""
        if self._process.stdin is None:
            raise BadInput("the peer has no pipes", where="pal bench --peers")
        try:
            self._process.stdin.write(msgspec.json.encode(messages) + b"\n")
            self._process.stdin.flush()
            reply = self._reply()
        except OSError as error:
            reply = _Reply(error=str(error))
        if reply.messages is None:
            self.failures += 1
            return messages, reply.ms
        return reply.messages, reply.ms

    def _reply(self) -> _Reply:
        line = b"" if self._process.stdout is None else self._process.stdout.readline()
        return msgspec.json.decode(line, type=_Reply) if line else _Reply(error="the process has ended")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # It ends by itself when there are no more lines, and ends what it has started.
        with suppress(BrokenPipeError):
            self._process.communicate()


@dataclass
class PeerPolicy:
    """Shows the tool results of a view as a peer would forward them. Its edits need not make the view smaller.

    What a peer changes in other messages is not followed; `left_out` counts results that it dropped with their messages.
    """

    editor: ListEditor
    name: str = "peer"
    moments: frozenset[Moment] = frozenset({"before_call"})
    shrinks: bool = False
    left_out: int = 0
    _texts: dict[str, str] = field(default_factory=dict)

    def plan(self, situation: Situation) -> Plan:
        """Propose masks for results that the peer shows otherwise than before, and no masks for those that it shows as they were."""
        results = {
            item.content.call_id: item
            for item in situation.view.items
            if isinstance(item.content, ToolResult) and (item.mask is None or item.id in self._texts)
        }
        self._texts = {item.id: self._texts[item.id] for item in results.values() if item.id in self._texts}
        edited, _ = self.editor.edit(message_list(situation.view.items, frozenset(item.id for item in results.values())))
        forwarded = dict(_result_texts(edited))
        edits: list[Edit] = []
        for call, item in results.items():
            self.left_out += call not in forwarded
            text, before = forwarded.get(call, "") or DROPPED, self._texts.get(item.id)
            wanted = None if text == text_of(item.content) else text
            if wanted is None and before is not None:
                edits.append(Unmask((item.id,)))
                del self._texts[item.id]
            elif wanted is not None and wanted != before:
                edits.append(Mask((item.id,), wanted))
                self._texts[item.id] = wanted
        return Proposal(tuple(edits), "what the peer forwards") if edits else ()


def message_list(items: Sequence[Item], original: frozenset[str] = frozenset()) -> Messages:
    """Return items as messages of Anthropic's API, with breakpoints at the ends of the last two of the user, as Claude Code has them.

    Items in `original` are shown without their masks. Thinking and what only one provider can read is left out.
    """
    messages: Messages = []
    for item in items:
        content = item.content if item.id in original else shown(item)
        match content:
            case ToolCall():
                role, block = (
                    "assistant",
                    {"type": "tool_use", "id": content.call_id, "name": content.tool, "input": _arguments(content.args)},
                )
            case ToolResult():
                role, block = "user", {"type": "tool_result", "tool_use_id": content.call_id, "content": text_of(content)}
            case Text() if content.text:
                role, block = "assistant" if content.role == "assistant" else "user", {"type": "text", "text": content.text}
            case _:
                continue
        if not messages or messages[-1]["role"] != role:
            messages.append({"role": role, "content": []})
        messages[-1]["content"].append(block)
    for message in [message for message in messages if message["role"] == "user"][-2:]:
        message["content"][-1] = {**message["content"][-1], **_MARK}
    return messages


def _arguments(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {"text": text}
    return found if isinstance(found, dict) else {"value": found}


def _result_texts(messages: Messages) -> Iterable[tuple[str, str]]:
    for message in messages:
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            if block.get("type") == "tool_result":
                yield str(block.get("tool_use_id")), _text(block.get("content"))


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict)) if isinstance(content, list) else ""
