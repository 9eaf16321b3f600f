"""What stage one reads of a session: messages, tool calls with their arguments, and what tools returned, bounded and without secrets."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from palimpsest.audit.context_tags import is_context_text
from palimpsest.core.events import Event, ModelReplied, SessionOpened, ToolRefused, ToolReturned, UserSaid
from palimpsest.core.items import Text, ToolCall, Value, text_of
from palimpsest.core.redaction import redact
from palimpsest.core.tokens.truncate import truncate_middle

# Tokens of one tool result, and characters of the user's words that are kept to check what is said about the user.
OUTPUT_TOKENS: Final = 2_500
MOST_USER_CHARACTERS: Final = 20_000
_LABELS: Final = {
    "user": "[human user]",
    "assistant": "[assistant]",
    "function_call": "[tool call]",
    "function_call_output": "[tool output, untrusted]",
}


class RolloutText(Value, frozen=True):
    """A session as stage one reads it: one object an entry. Times are milliseconds since 1970; `user` are the user's own words."""

    session: str
    cwd: str
    branch: str
    started: int
    updated: int
    entries: tuple[dict[str, Any], ...]
    user: str

    def as_array(self) -> str:
        """Return the entries as one JSON array."""
        return msgspec.json.encode(self.entries).decode()

    def as_lines(self) -> str:
        """Return the entries as JSON lines, each below the label of who speaks."""
        return "\n".join(f"{_LABELS[_role(each)]}\n{msgspec.json.encode(each).decode()}" for each in self.entries)


def read_rollout(session: str, events: Iterable[Event]) -> RolloutText:
    """Read the events of the current path of a session; stated context, thinking and opaque items are left out."""
    opened, started, updated = SessionOpened(session), 0, 0
    entries: list[dict[str, Any]] = []
    said: list[str] = []
    for event in events:
        started, updated = started or event.at, max(updated, event.at)
        if isinstance(event.body, SessionOpened):
            opened = event.body
        found = list(_entries(event))
        entries += found
        said += [each["content"][0]["text"] for each in found if each.get("role") == "user"]
    words = "\n".join(said)[:MOST_USER_CHARACTERS]
    return RolloutText(session, opened.cwd, opened.meta.get("branch", ""), started, updated, tuple(entries), words)


def _entries(event: Event) -> Iterator[dict[str, Any]]:
    match event.body:
        case UserSaid(parts=parts):
            texts = [part.text for part in parts if isinstance(part, Text) and part.role == "user" and not is_context_text(part.text)]
            if any(text.strip() for text in texts):
                yield _message("user", "\n".join(texts))
        case ModelReplied(parts=parts, purpose="turn"):
            text = "\n".join(part.text for part in parts if isinstance(part, Text))
            if text.strip():
                yield _message("assistant", text)
            for part in parts:
                if isinstance(part, ToolCall):
                    bounded = truncate_middle(redact(part.args), OUTPUT_TOKENS).text
                    yield {"type": "function_call", "name": part.tool, "arguments": bounded, "call_id": part.call_id}
        case ToolReturned(result=result):
            output = truncate_middle(redact(text_of(result)), OUTPUT_TOKENS).text
            code = {} if event.body.exit is None else {"exit_code": event.body.exit}
            yield {"type": "function_call_output", "call_id": result.call_id, "output": output, **code}
        case ToolRefused(tool=tool):
            yield {"type": "function_call_output", "call_id": "", "output": f"{tool}: not allowed"}
        case _:
            return


def _message(role: str, text: str) -> dict[str, Any]:
    kind = "input_text" if role == "user" else "output_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": redact(text)}]}


def _role(entry: dict[str, Any]) -> str:
    return str(entry.get("role", entry["type"]))
