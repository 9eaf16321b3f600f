"""Relations between rollouts: forks, copied histories and sub-agents."""

from collections.abc import Iterator
from pathlib import Path

from palimpsest.core.events import ChildEnded, ChildOpened
from palimpsest.foreign.codex.files import find_rollout, rollout_lines
from palimpsest.foreign.codex.item_reader import json_object
from palimpsest.foreign.codex.opening import NAME, envelope
from palimpsest.foreign.reading.files import decoded
from palimpsest.foreign.reading.importing import session_id
from palimpsest.wire.json_reading import Json, dump, is_json, table_at, text


class CopiedLines:
    """Detects the lines at the start of a fork that copy another rollout; only their times differ.

    A fork whose other rollout is missing has no copies, because their usage is counted nowhere else.
    """

    def __init__(self, meta: Json, path: Path) -> None:
        thread = "" if table_at(meta, "history_base") else text(meta, "forked_from_id")
        other = find_rollout(thread, path) if thread else None
        self._lines = iter(()) if other is None or other == path else _envelopes(other)

    def is_copy(self, table: Json) -> bool:
        """Whether the next line is a copy; not to be called after the first one that is not."""
        kind, payload = envelope(table)
        their_kind, their_payload = next(self._lines, ("", {}))
        is_same = text(payload, "id") == text(their_payload, "id") if kind == "session_meta" else payload == their_payload
        return bool(kind) and kind == their_kind and is_same


def _envelopes(path: Path) -> Iterator[tuple[str, Json]]:
    try:
        for line in rollout_lines(path):
            table = decoded(line.data)
            if is_json(table):
                yield envelope(table)
    except Exception:  # noqa: BLE001 - each unpacker has its own error for a damaged file, and its own import reports it
        return


_END_STATES = {"completed": "done", "errored": "failed", "shutdown": "closed", "not_found": "lost", "interrupted": "interrupted"}
_TAG = "subagent_notification>"


class Children:
    """The threads that were opened, and the last known end of each."""

    def __init__(self) -> None:
        self._end_by_thread: dict[str, str] = {}

    def opened(self, thread: str, call_id: str, role: str) -> ChildOpened | None:
        """`ChildOpened` for a thread; None if it is known already."""
        if not thread or thread in self._end_by_thread:
            return None
        self._end_by_thread[thread] = ""
        return ChildOpened(session_id(NAME, thread), call_id, role)

    def ended(self, thread: str, status: object) -> ChildEnded | None:
        """`ChildEnded` if the status is an end that is not known yet. `status` is a name, or an object with the name and a last message."""
        name, message = next(iter(status.items()), ("", "")) if is_json(status) else (status, "")
        ended = _END_STATES.get(name) if isinstance(name, str) else None
        if not thread or ended is None or self._end_by_thread.get(thread) == ended:
            return None
        self._end_by_thread[thread] = ended
        last_message = message if isinstance(message, str) else dump(message) if message else ""
        return ChildEnded(session_id(NAME, thread), ended, last_message)


def child_notice(message: str) -> Json:
    """The JSON in a notification about a thread."""
    return json_object(message.strip().removeprefix("<" + _TAG).removesuffix("</" + _TAG))
