"""The list of sessions that Claude Code keeps beside the files of a project, `sessions-index.json`, with an entry for an installed one."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from palimpsest.core.errors import BadInput
from palimpsest.core.text import iso_time
from palimpsest.exchange.files import read_regular

NAME: Final = "sessions-index.json"
_NO_PROMPT: Final = "No prompt"
_PROMPT_CHARS: Final = 200
_MESSAGES: Final = frozenset({"user", "assistant"})


def with_entry(path: Path, folder: str, title: str) -> tuple[Path, bytes]:
    """Return path and content of the list beside a session file, with one entry for that session; other entries stay as they are.

    Raises `BadInput` if there is a list that cannot be read: it is another program's, and is not replaced.
    """
    index = path.with_name(NAME)
    listed = _listed(index)
    others = [each for each in listed.get("entries", []) if not (isinstance(each, dict) and each.get("sessionId") == path.stem)]
    entry = _entry(path, read_regular(path).splitlines(), folder, title)
    content = {"version": 1, "originalPath": folder, **listed, "entries": [*others, entry]}
    return index, msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"


def _listed(index: Path) -> dict[str, Any]:
    try:
        data = read_regular(index)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise BadInput(f"the list of sessions cannot be read: {error.strerror or error}", where=str(index)) from error
    try:
        found = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput("the list of sessions is not valid JSON, so it is left as it is", where=str(index)) from error
    if found.get("version", 1) != 1 or not isinstance(found.get("entries", []), list):
        raise BadInput("the list of sessions has a form that is not known, so it is left as it is", where=str(index))
    return found


def _entry(path: Path, lines: Iterable[bytes], folder: str, title: str) -> dict[str, Any]:
    """Return the entry of a session: prompt, times and count cover what follows its last compaction, as in the original."""
    tables = [table for line in lines if line.strip() and isinstance(table := msgspec.json.decode(line), dict)]
    last = max((place for place, table in enumerate(tables) if table.get("subtype") == "compact_boundary"), default=0)
    messages = [table for table in tables[last:] if table.get("type") in _MESSAGES]
    chained = [table for table in tables[last:] if table.get("uuid") and isinstance(table.get("timestamp"), str)]
    modified = int(path.stat().st_mtime * 1_000)
    return {
        "sessionId": path.stem,
        "fullPath": str(path),
        "fileMtime": modified,
        "firstPrompt": next((prompt for table in messages if (prompt := _prompt(table))), _NO_PROMPT),
        **({"summary": title} if title else {}),
        "messageCount": len(messages),
        "created": chained[0]["timestamp"] if chained else iso_time(modified),
        "modified": chained[-1]["timestamp"] if chained else iso_time(modified),
        "gitBranch": next((branch for table in tables if (branch := str(table.get("gitBranch") or ""))), ""),
        "projectPath": folder,
        "isSidechain": False,
    }


def _prompt(table: Mapping[str, Any]) -> str:
    """Return what the user typed in a line, cut to 200 characters; empty for other lines, such as results and summaries."""
    message = table.get("message")
    if table.get("type") != "user" or table.get("isMeta") or table.get("isCompactSummary") or not isinstance(message, dict):
        return ""
    content: Any = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content if isinstance(content, list) else []
    texts = (str(block.get("text") or "") for block in blocks if isinstance(block, dict) and block.get("type") == "text")
    return next((" ".join(text.split())[:_PROMPT_CHARS] for text in texts if text.strip() and not text.lstrip().startswith("<")), "")
