"""What a user typed while Claude Code was busy: versions that keep no line of its delivery keep its way through a queue."""

import re

from palimpsest.core.items import Text
from palimpsest.foreign.claude.words import queued_prompt, source_of
from palimpsest.wire.json_reading import Json, table_at, tables_at, text

_COMMAND = re.compile(r"/[a-z][\w:-]*(\s|\Z)")
_TASK = re.compile(r"\{\s*\"task_id\"")


class Inbox:
    """Words that wait. They leave as a prompt of their own, as an attachment, or silently: then they were slipped into the turn."""

    def __init__(self) -> None:
        self._waiting: list[str] = []
        self._slipped: list[str] = []

    def operate(self, line: Json) -> str:
        """One operation of the queue; the words that it slipped into the turn, if it did."""
        content = text(line, "content")
        match text(line, "operation"):
            case "enqueue" if _typed(content):
                self._waiting.append(content)
            case "popAll":
                # The user took everything back to change it.
                self._waiting.clear()
            case "remove" if "content" in line:
                # Versions that say what they removed keep its delivery too.
                self._leave(content)
            case "remove" if self._waiting:
                self._slipped.append(self._waiting.pop(0))
                return self._slipped[-1]
            case _:
                pass
        return ""

    def prompted(self, line: Json) -> None:
        """A user line: words that it says wait no longer."""
        message = table_at(line, "message")
        said = text(message, "content") or "\n".join(text(block, "text") for block in tables_at(message, "content"))
        if self._waiting and said:
            self._leave(next((words for words in self._waiting if words.strip() in said), ""))

    def attached(self, attachment: Json) -> bool:
        """Whether an attachment delivers words that were slipped in already."""
        prompt = queued_prompt(attachment)
        if not isinstance(prompt, str):
            return False
        self._leave(prompt)
        if prompt not in self._slipped:
            return False
        self._slipped.remove(prompt)
        return True

    def _leave(self, words: str) -> None:
        if words in self._waiting:
            self._waiting.remove(words)


def _typed(content: str) -> bool:
    """Whether a user typed this: no notice of a task, and no command of the program."""
    return bool(content.strip()) and not (source_of(Text(content)) or _COMMAND.match(content) or _TASK.match(content))
