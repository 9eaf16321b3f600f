"""How rollouts belong together: forks, copied histories, sub-agents, and the names of their files."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from palimpsest.core.events import ChildEnded, ChildOpened, UserSaid
from palimpsest.core.log.log import Log
from palimpsest.foreign.codex.files import lines_of, rollout_of
from palimpsest.foreign.codex.items import found_json
from palimpsest.foreign.codex.meta import NAME, envelope
from palimpsest.foreign.reading.files import decoded
from palimpsest.foreign.reading.importing import session_id
from palimpsest.wire.json_reading import Json, dump, is_json, table_at, text


def fork_point(log: Log, message: int) -> int | None:
    """The event right before the user's message of that number, counted from 0 along the path; none if there are not so many."""
    before = log.reader.first
    for event in log.reader.along(log.path):
        if isinstance(event.body, UserSaid):
            if not message:
                return before
            message -= 1
        before = event.seq
    return None


class Copies:
    """The lines after the first one of a fork, as long as they say what the other rollout says; only their times are their own.

    A fork whose other rollout is not beside it has no copies: nobody else tells what they cost.
    """

    def __init__(self, meta: Json, path: Path) -> None:
        thread = "" if table_at(meta, "history_base") else text(meta, "forked_from_id")
        other = rollout_of(thread, path) if thread else None
        self._lines = iter(()) if other is None or other == path else _envelopes(other)

    def takes(self, table: Json) -> bool:
        """Whether the next line is a copy; nobody asks any more after the first one that is not."""
        kind, payload = envelope(table)
        theirs, their_payload = next(self._lines, ("", {}))
        same = text(payload, "id") == text(their_payload, "id") if kind == "session_meta" else payload == their_payload
        return bool(kind) and kind == theirs and same


def _envelopes(path: Path) -> Iterator[tuple[str, Json]]:
    try:
        for line in lines_of(path):
            table = decoded(line.data)
            if is_json(table):
                yield envelope(table)
    except Exception:  # noqa: BLE001 - each unpacker has its own error for a damaged file, whose own import says what is wrong with it
        return


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


_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SEED_LENGTH = 4
_SLUG_LENGTH = 60
_TIME_ORDERED = 7


def stem_of(thread: str, slug: str = "", at: int = 0) -> str:
    """When the thread began, four digits that tell it from others, and what it was about; `at` is used where the id tells no time."""
    milliseconds, seed = _told_by(thread, at)
    time = datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%dT%H-%M-%S")
    words = slug_of(slug)
    return f"{time}-{_digits(seed)}-{words}" if words else f"{time}-{_digits(seed)}"


def slug_of(words: str) -> str:
    """Words as they may stand in a file name."""
    plain = "".join(letter.lower() if letter.isascii() and letter.isalnum() else "_" for letter in words)
    return plain[:_SLUG_LENGTH].rstrip("_")


def _told_by(thread: str, at: int) -> tuple[int, int]:
    try:
        number = UUID(thread)
    except ValueError:
        seed = 0
        for byte in thread.encode():
            seed = (seed * 31 + byte) % 2**32
        return at, seed
    return (number.int >> 80 if number.version == _TIME_ORDERED else at), number.int & 0xFFFFFFFF


def _digits(seed: int) -> str:
    left, digits = seed % len(_DIGITS) ** _SEED_LENGTH, ""
    for _ in range(_SEED_LENGTH):
        left, place = divmod(left, len(_DIGITS))
        digits = _DIGITS[place] + digits
    return digits
