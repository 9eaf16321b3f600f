"""Past sessions as events: what the user and the model said, files that were edited and read, and commands with their outcomes."""

import json

from palimpsest.core.events import Body, Event, ModelReplied, SessionOpened, ToolReturned, UserSaid
from palimpsest.core.items import Text, ToolCall, ToolResult

# 2026-05-04T10:00:00Z, in milliseconds; an event every second.
BEGIN = 1_777_888_800_000


class PastSession:
    """The events of one session so far; each method returns the sequence number of the last event that it added."""

    def __init__(self, cwd: str = "/repo", branch: str = "", begin: int = BEGIN) -> None:
        self.events: list[Event] = []
        self._begin = begin
        self._add(SessionOpened("s", cwd=cwd, meta={"branch": branch} if branch else {}))

    def _add(self, body: Body) -> int:
        seq = len(self.events)
        self.events.append(Event(seq, seq - 1, self._begin + seq * 1_000, "", body))
        return seq

    def user(self, text: str, *, steering: bool = False) -> int:
        return self._add(UserSaid((Text(text),), steering=steering))

    def reply(self, text: str) -> int:
        return self._add(ModelReplied((Text(text, "assistant"),)))

    def call(self, tool: str, args: dict[str, object], output: str = "done", *, exit_code: int | None = None, error: bool = False) -> int:
        call_id = f"c{len(self.events)}"
        self._add(ModelReplied((ToolCall(call_id, tool, json.dumps(args)),)))
        return self._add(ToolReturned(ToolResult(call_id, (Text(output),), error=error), tool, exit=exit_code))

    def edit(self, path: str) -> int:
        return self.call("Edit", {"file_path": path, "old_string": "a", "new_string": "b"})

    def read(self, path: str) -> int:
        return self.call("Read", {"file_path": path})

    def run(self, command: str, exit_code: int = 0, output: str = "fine") -> int:
        return self.call("Bash", {"command": command}, output, exit_code=exit_code, error=exit_code != 0)
