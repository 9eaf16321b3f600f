"""Files in the form of Claude Code, written line by line, and a second, naive reader of them."""

import json
from pathlib import Path
from typing import Any

Line = dict[str, Any]

SESSION = "11111111-2222-3333-4444-555555555555"
TAGS = (
    "<command-",
    "<local-command-",
    "<bash-",
    "<system-reminder>",
    "<task-notification>",
    "[Request interrupted by user",
    "Caveat: The messages",
)


def chained(uuid: str, parent: str | None, kind: str, **fields: Any) -> Line:
    """A line with the fields that all lines of a conversation have."""
    number = sum(map(ord, uuid)) % 60
    common = {"parentUuid": parent, "isSidechain": False, "userType": "external", "cwd": "/repo", "sessionId": SESSION, "version": "2.1.19"}
    return {**common, "gitBranch": "main", "type": kind, "uuid": uuid, "timestamp": f"2026-01-02T03:04:{number:02}.000Z", **fields}


def prompt(uuid: str, parent: str | None, text: object, **fields: Any) -> Line:
    """A message of the user."""
    return chained(uuid, parent, "user", message={"role": "user", "content": text}, **fields)


def reply(uuid: str, parent: str | None, message: str, *blocks: Line, **fields: Any) -> Line:
    """One line of a reply."""
    usage = {"input_tokens": 100, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 300, "output_tokens": 7}
    said = {
        "id": message,
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": list(blocks),
        "stop_reason": None,
    }
    return chained(uuid, parent, "assistant", message={**said, "stop_sequence": None, "usage": usage}, requestId=f"req_{message}", **fields)


def text(said: str) -> Line:
    """A text block."""
    return {"type": "text", "text": said}


def call(call_id: str, tool: str = "Bash", **given: Any) -> Line:
    """A block that calls a tool."""
    return {"type": "tool_use", "id": call_id, "name": tool, "input": given}


def result(uuid: str, parent: str | None, call_id: str, content: object, **fields: Any) -> Line:
    """A tool result."""
    block = {"tool_use_id": call_id, "type": "tool_result", "content": content}
    return chained(uuid, parent, "user", message={"role": "user", "content": [block]}, sourceToolAssistantUUID=parent, **fields)


def boundary(uuid: str, logical: str, **metadata: Any) -> Line:
    """A compaction."""
    fields = {"subtype": "compact_boundary", "content": "Conversation compacted", "level": "info", "isMeta": False}
    return chained(
        uuid, None, "system", logicalParentUuid=logical, compactMetadata={"trigger": "auto", "preTokens": 900, **metadata}, **fields
    )


def summary(uuid: str, parent: str, said: str) -> Line:
    """The summary of a compaction."""
    return prompt(uuid, parent, said, isVisibleInTranscriptOnly=True, isCompactSummary=True)


def written(folder: Path, *lines: Line, name: str = SESSION) -> Path:
    """A session file."""
    path = folder / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    return path


def readable(path: Path) -> list[Line]:
    """Every line that is a JSON object."""
    found = []
    for line in path.read_bytes().splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def blocks_of(line: Line) -> list[Line]:
    """The blocks of a message."""
    content = line["message"]["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def spoken(lines: list[Line]) -> list[str]:
    """The words of the user by a naive reading: no results, nothing that the program marked or tagged as its own.

    Older versions kept no line of what was typed during a turn, only that it was queued and removed again.
    """
    found = []
    waiting = []
    everything = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines if line.get("type") in {"user", "attachment"})
    for line in lines:
        content = line.get("content")
        if line.get("type") == "queue-operation" and content and not content.startswith(("<", "{", "/", "[scrubbed")):
            if line["operation"] == "enqueue" and json.dumps(content, ensure_ascii=False) not in everything:
                waiting.append(content)
        elif line.get("type") == "queue-operation" and line["operation"] == "remove" and waiting and not content:
            found.append(waiting.pop(0))
        elif line.get("type") == "attachment" and line["attachment"]["type"] == "queued_command":
            found += [line["attachment"]["prompt"]] if line["attachment"].get("commandMode") == "prompt" else []
        elif line.get("type") == "user" and not line.get("isMeta") and not line.get("isCompactSummary"):
            found += _words(line)[:1]
    return found


def _words(line: Line) -> list[str]:
    pictures = [f"[image {block['source']['media_type']}]" for block in blocks_of(line) if block["type"] == "image"]
    words = [block["text"] for block in blocks_of(line) if block["type"] == "text"] or pictures
    own = any(word.lstrip().startswith(TAGS) or "<command-name>" in word for word in words)
    return [] if own or line.get("origin", {}).get("kind", "human") != "human" else words
