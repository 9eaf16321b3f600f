"""Message lists in the three shapes: working sessions of a tool loop, and lists with everything that can be wrong in one."""

from collections.abc import Callable, Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

from anthropic.types import TextBlock, ThinkingBlock, ToolUseBlock
from openai.types.chat import ChatCompletionMessage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseReasoningItem

from palimpsest.wire.json_reading import is_json
from palimpsest.wire.models import WireName

Messages = list[Any]
WIRES: dict[WireName, str] = {"anthropic": "claude-sonnet-4-5", "chat": "gpt-5", "responses": "gpt-5"}
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}


def source_of(number: int, lines: int = 200) -> str:
    """The text of a file that no other number has."""
    return f"def part_{number}(value: int) -> int:\n    return value + {number}\n" * lines


def tool_loop(wire: WireName, rounds: int, lines: int = 200) -> Messages:
    """A user message, and rounds of a file that is read and its text."""
    messages: Messages = [{"role": "user", "content": "Fix the rounding in part_3, and leave main.py alone."}]
    for number in range(rounds):
        messages += tool_round(wire, number, lines)
    return messages


def tool_round(wire: WireName, number: int, lines: int = 200) -> Messages:
    """One call of a tool and its result."""
    name, path, words = f"call_{number}", f"src/part_{number}.py", f"Next comes part {number}."
    arguments = f'{{"file_path":"{path}"}}'
    match wire:
        case "anthropic":
            call = {"type": "tool_use", "id": name, "name": "Read", "input": {"file_path": path}}
            result = {"type": "tool_result", "tool_use_id": name, "content": source_of(number, lines)}
            return [{"role": "assistant", "content": [{"type": "text", "text": words}, call]}, {"role": "user", "content": [result]}]
        case "chat":
            made = {"id": name, "type": "function", "function": {"name": "Read", "arguments": arguments}}
            reply = {"role": "assistant", "content": words, "tool_calls": [made]}
            return [reply, {"role": "tool", "tool_call_id": name, "content": source_of(number, lines)}]
        case _:
            said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": words}]}
            asked = {"type": "function_call", "call_id": name, "name": "Read", "arguments": arguments}
            return [said, asked, {"type": "function_call_output", "call_id": name, "output": source_of(number, lines)}]


def odd_list(chance: Random) -> tuple[WireName, Messages]:
    """A wire, and a list of its shape: unknown blocks, missing ids, empty and huge texts, wrong roles and types, and objects of SDKs."""
    wire = chance.choice([*WIRES])
    ids: list[str] = []
    make: Callable[[Random, list[str]], Iterator[Any]] = {"anthropic": _odd_messages, "chat": _odd_chat, "responses": _odd_items}[wire]
    messages = [message for _ in range(chance.randint(0, 12)) for message in make(chance, ids)]
    if chance.random() < 0.3:
        messages = [_with_objects(chance, wire, message) for message in messages]
    if messages and chance.random() < 0.05:
        messages.insert(chance.randint(0, len(messages)), chance.choice(_NO_MESSAGES)())
    return wire, messages


# What no provider takes and JSON cannot say, and messages that no shape has.
_NO_MESSAGES: tuple[Callable[[], Any], ...] = (
    lambda: {"role": "user", "content": "\ud800"},
    lambda: {"role": "user", "content": b"bytes"},
    lambda: {"role": "user", "content": {1, 2}},
    lambda: {"role": "user", "content": [float("nan"), float("inf")]},
    lambda: {"role": "user", "content": [[[["deep"] * 3] * 3] * 3], 5: "a key that is no text"},
    lambda: {"role": "user", "content": ({"type": "text", "text": "a tuple"},)},
    lambda: SimpleNamespace(role="user", content="an object that is no message"),
    lambda: "text",
    lambda: None,
    object,
)


def _with_objects(chance: Random, wire: WireName, message: Any) -> Any:
    """The message with objects of the SDK of its wire in it, as a loop has it that appends what the SDK returned."""
    content = message.get("content") if isinstance(message, dict) else None
    if chance.random() < 0.5 or not isinstance(message, dict) or any(not isinstance(key, str) for key in message):
        return message
    if wire == "anthropic" and isinstance(content, list):
        kinds: dict[Any, Any] = {"text": TextBlock, "tool_use": ToolUseBlock, "thinking": ThinkingBlock}
        return message | {"content": [_as_object(kinds.get(block.get("type")), block) if is_json(block) else block for block in content]}
    if wire == "chat" and message.get("role") == "assistant":
        return _as_object(ChatCompletionMessage, message)
    if wire == "responses":
        kinds = {"function_call": ResponseFunctionToolCall, "reasoning": ResponseReasoningItem, "message": ResponseOutputMessage}
        return _as_object(kinds.get(message.get("type") or "message"), message)
    return message


def _as_object(kind: Any, fields: dict[str, Any]) -> Any:
    # As the SDKs do it: without any check, because a provider may send what this version does not know.
    return kind.model_construct(**fields) if kind is not None else fields


def rewritten(chance: Random, messages: Messages) -> Messages:
    """The list as its owner might change it: shortened, with another message in it, with some replaced by one, or changed in place."""
    first = chance.randint(0, len(messages))
    last = chance.randint(first, len(messages))
    new = {"role": "user", "content": "What was said so far, in short."}
    if messages and chance.random() < 0.2:
        _change_in_place(messages[min(first, len(messages) - 1)])
    return chance.choice(
        [
            messages[:first],
            [*messages[:first], new, *messages[last:]],
            [*messages[:first], new, *messages[first:]],
            [*messages[:1], new],
            [*messages[:first], *messages[:last]],
            list(messages),
        ]
    )


def _change_in_place(message: Any) -> None:
    if isinstance(message, dict):
        message["content"] = "Changed in place."
    elif hasattr(message, "__dict__"):
        message.content = "Changed in place."


def _words(chance: Random) -> str:
    huge = 60_000 if chance.random() < 0.02 else 300
    return chance.choice(["", " ", "fix it", "é\n" * 5, "\0\u2028", "x" * 90, "def f(): return a.py\n" * huge])


def _odd_messages(chance: Random, ids: list[str]) -> Iterator[Any]:
    role = chance.choice([*("user", "assistant") * 6, "system", "tool", "", None, 5])
    blocks = [_odd_block(chance, role, ids) for _ in range(chance.randint(0, 4))]
    message = {"role": role, "content": chance.choice([_words(chance), blocks, blocks, blocks, None, 3])}
    if chance.random() < 0.05:
        message.pop(chance.choice([*message]))
    yield message
    if role == "assistant" and ids and chance.random() < 0.8:
        yield {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": name, "content": _words(chance) * 3} for name in ids[-2:]],
        }


def _odd_block(chance: Random, role: object, ids: list[str]) -> Any:
    kind = chance.random()
    if kind < 0.4:
        return {"type": "text", "text": _words(chance)}
    if kind < 0.7 and role == "assistant":
        ids.append(chance.choice([f"t{len(ids)}"] * 8 + ["", "t0"]))
        call = {"type": "tool_use", "id": ids[-1], "name": chance.choice(["Read", "Bash", ""]), "input": chance.choice([{"a": 1}, {}, "x"])}
        return call if chance.random() < 0.9 else {key: value for key, value in call.items() if key != "id"}
    if kind < 0.85 and role != "assistant":
        content = chance.choice([_words(chance), [{"type": "text", "text": _words(chance)}, PICTURE], None, [], 5])
        return {"type": "tool_result", "tool_use_id": chance.choice([*ids, "none", None]), "content": content}
    return chance.choice(
        [
            {"type": "thinking", "thinking": _words(chance), "signature": "sig"},
            {"type": "redacted_thinking", "data": "x"},
            PICTURE,
            {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}},
            {"type": "web_search_tool_result", "tool_use_id": "srv", "content": []},
            {"type": "brand_new", "x": [1, {"y": 2}]},
            *("text", None, 7, {}, {"type": None}),
        ]
    )


def _odd_chat(chance: Random, ids: list[str]) -> Iterator[Any]:
    role = chance.choice([*("user", "assistant", "tool") * 4, "system", "developer", "function", "x", None])
    picture = {"type": "image_url", "image_url": {"url": chance.choice(["http://a.example", "data:image/png;base64,aGk=", "", None])}}
    parts = [{"type": "text", "text": _words(chance)}, picture, {"type": "input_audio", "z": 1}]
    message: dict[str, Any] = {"role": role, "content": chance.choice([_words(chance), None, parts[: chance.randint(0, 3)], 4])}
    calls: list[Any] = []
    if role == "assistant":
        for _ in range(chance.randint(0, 2)):
            ids.append(f"c{len(ids)}")
            function = {"name": "Read", "arguments": '{"file_path":"a.py"}'}
            calls.append(chance.choice([{"id": ids[-1], "type": "function", "function": function}] * 6 + [None, {"id": ids[-1]}]))
        message |= {"tool_calls": calls, "refusal": chance.choice([None, "no"])}
    if role == "tool":
        message["tool_call_id"] = chance.choice([*ids, "none"])
    yield message
    if chance.random() < 0.9:
        yield from ({"role": "tool", "tool_call_id": call["id"], "content": _words(chance) * 3} for call in calls if call)


def _odd_items(chance: Random, ids: list[str]) -> Iterator[Any]:
    kind = chance.random()
    if kind < 0.4:
        parts = [{"type": chance.choice(["input_text", "output_text", "odd"]), "text": _words(chance), "annotations": []}]
        role = chance.choice(["user", "assistant", "developer", "system", "zz"])
        yield {"role": role, "content": chance.choice([_words(chance), parts, [], None])}
    elif kind < 0.5:
        yield {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": _words(chance)}] * 2, "encrypted_content": "z"}
    elif kind < 0.85:
        ids.append(f"c{len(ids)}")
        call = chance.choice(["function_call", "custom_tool_call", "shell_call"])
        yield {"type": call, "id": "fc", "call_id": ids[-1], "name": "Read", "arguments": "{}", "input": "x", "action": {}}
        if chance.random() < 0.9:
            yield {"type": f"{call}_output", "call_id": ids[-1], "output": chance.choice([_words(chance) * 3, [parts_of(chance)], None])}
    else:
        yield chance.choice(
            [
                {"type": "web_search_call", "id": "ws", "status": "completed", "action": {}},
                {"type": "item_reference", "id": "x"},
                {"type": "compaction", "encrypted_content": "e"},
                {"type": "function_call_output", "call_id": "none", "output": "x"},
                *({}, {"type": 5}, {"type": "new_thing", "a": {}}),
            ]
        )


def parts_of(chance: Random) -> dict[str, str]:
    """A part of an output."""
    return {"type": "input_text", "text": _words(chance)}
