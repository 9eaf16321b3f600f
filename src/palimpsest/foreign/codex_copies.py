"""What a fork copied from the beginning of another rollout, told by comparing the two."""

from collections.abc import Iterator
from pathlib import Path

from palimpsest.foreign.codex_files import lines_of, rollout_of
from palimpsest.foreign.codex_meta import envelope
from palimpsest.foreign.files import decoded
from palimpsest.wire.lenient import Json, is_json, table_at, text


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
