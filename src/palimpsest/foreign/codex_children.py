"""Threads that a thread opened: each is told once when it opens and once for every way it ends."""

from palimpsest.core.events import ChildEnded, ChildOpened
from palimpsest.foreign.codex_items import found_json
from palimpsest.foreign.codex_meta import NAME
from palimpsest.foreign.importing import session_id
from palimpsest.wire.lenient import Json, dump, is_json

_ENDS = {"completed": "done", "errored": "failed", "shutdown": "closed", "not_found": "lost", "interrupted": "interrupted"}
_TAG = "subagent_notification>"


class Children:
    """The threads that were opened, and how each ended last."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def opened(self, thread: str, call_id: str, role: str) -> ChildOpened | None:
        """A thread was opened, unless that is known."""
        if not thread or thread in self._known:
            return None
        self._known[thread] = ""
        return ChildOpened(session_id(NAME, thread), call_id, role)

    def ended(self, thread: str, status: object) -> ChildEnded | None:
        """A thread reached a state that is an end; `status` is its name, or an object with its name and last words."""
        name, said = next(iter(status.items()), ("", "")) if is_json(status) else (status, "")
        ended = _ENDS.get(name) if isinstance(name, str) else None
        if not thread or ended is None or self._known.get(thread) == ended:
            return None
        self._known[thread] = ended
        words = said if isinstance(said, str) else dump(said) if said else ""
        return ChildEnded(session_id(NAME, thread), ended, words)


def notified(said: str) -> Json:
    """What a notice about a thread says."""
    return found_json(said.strip().removeprefix("<" + _TAG).removesuffix("</" + _TAG))
