"""Rollouts for tests: lines as Codex writes them, and a reader of rollouts that knows nothing of ours."""

import json
from pathlib import Path
from typing import Any

THREAD = "01a1ddf6-06f3-78e2-84bc-b37ddeb56c53"
Line = dict[str, object]


def line(kind: str, payload: Line, at: str = "2026-11-15T06:00:00.000Z", **beside: object) -> Line:
    """A line of a rollout."""
    return {"timestamp": at, **beside, "type": kind, "payload": payload}


def meta(thread: str = THREAD, **more: object) -> Line:
    """The first line."""
    begun = {"id": thread, "timestamp": "2026-11-15T06:00:00.000Z", "cwd": "/repo", "originator": "codex_exec", "cli_version": "0.98.0"}
    return line("session_meta", {**begun, "source": "cli", "model_provider": "openai", **more})


def context(model: str = "gpt-5.5", **more: object) -> Line:
    """The frame of a turn."""
    return line("turn_context", {"cwd": "/repo", "model": model, "approval_policy": "never", "summary": "auto", **more})


def item(**payload: object) -> Line:
    """An item."""
    return line("response_item", payload)


def event(kind: str, **payload: object) -> Line:
    """An event of the screen."""
    return line("event_msg", {"type": kind, **payload})


def message(role: str, *texts: str, **more: object) -> Line:
    """A message as a payload."""
    part = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": part, "text": text} for text in texts], **more}


def said(text: str) -> Line:
    """A message of the user."""
    return item(**message("user", text))


def answered(text: str) -> Line:
    """A message of the model."""
    return item(**message("assistant", text))


def called(call_id: str, name: str = "exec_command", arguments: str = "{}") -> Line:
    """The model calls a function."""
    return item(type="function_call", name=name, arguments=arguments, call_id=call_id)


def output(call_id: str, text: str = "done") -> Line:
    """The output of a function."""
    return item(type="function_call_output", call_id=call_id, output=text)


def counted(total: int, prompt: int, cached: int = 0, written: int = 10) -> Line:
    """Tokens, as they are counted after a reply."""
    last = {"input_tokens": prompt, "cached_input_tokens": cached, "output_tokens": written, "total_tokens": prompt + written}
    return event("token_count", info={"total_token_usage": {"total_tokens": total}, "last_token_usage": last})


def started() -> Line:
    """A turn begins."""
    return event("task_started", turn_id="t", model_context_window=258400)


def ended() -> Line:
    """A turn ends."""
    return event("task_complete", turn_id="t", last_agent_message=None)


def write(folder: Path, *lines: Line, thread: str = THREAD) -> Path:
    """A rollout on the disk, in a home of its own."""
    path = folder / "sessions" / "2026" / "11" / "15" / f"rollout-2026-11-15T06-00-00-{thread}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(json.dumps(each, ensure_ascii=False).encode() + b"\n" for each in lines))
    return path


def read(path: Path) -> list[Any]:
    """The lines of a rollout."""
    return [json.loads(each) for each in path.read_bytes().split(b"\n") if each.strip()]


def items(path: Path) -> list[Any]:
    """The items of a rollout."""
    return [each["payload"] for each in read(path) if each["type"] == "response_item"]


def spoken(path: Path) -> list[str]:
    """What the user said: messages in the user's role that begin with no tag of Codex."""
    found = []
    for each in items(path):
        texts = [part["text"] for part in each.get("content") or [] if "text" in part] if each["type"] == "message" else []
        tagged = any(text.lstrip().startswith(("<environment_context>", "# AGENTS.md", "<turn_aborted>", "<skill>")) for text in texts)
        noticed = any("<subagent_notification>" in text for text in texts)
        if each.get("role") == "user" and not tagged and not noticed:
            found.append(texts[0])
    return found
