"""What a reply says of the thinking that was sent (`input_transformations`), told to a client in the places of its own list."""

from collections.abc import Mapping
from typing import Final

import msgspec

from palimpsest.core.errors import WireError
from palimpsest.wire.json_reading import Json, is_json, parse, table_at, tables_at, text

_FIELD: Final = "input_transformations"
_MARK: Final = f'"{_FIELD}"'.encode()
_DATA: Final = b"data:"


class PathTranslator:
    """Translates the paths in a reply, whole or streamed, whose bytes are otherwise passed on as they are.

    `paths` are those of the client's list by those of the list that was sent; where one cannot be translated, and if there are none, the
    whole array is left out.
    """

    def __init__(self, paths: Mapping[str, str], *, is_stream: bool) -> None:
        self._paths = paths
        self._is_stream = is_stream
        self._held = bytearray()

    def passed(self, chunk: bytes) -> bytes:
        """Take the next bytes, and return those that may pass: whole lines of a stream; nothing of another reply before its end."""
        self._held += chunk
        end = self._held.rfind(b"\n") + 1 if self._is_stream else 0
        lines = bytes(self._held[:end])
        del self._held[:end]
        return b"".join(map(self._line, lines.splitlines(keepends=True))) if _MARK in lines else lines

    def rest(self) -> bytes:
        """Return what was held back."""
        held = bytes(self._held)
        self._held.clear()
        return self._line(held) if self._is_stream or _MARK not in held else self._translated(held)

    def _line(self, line: bytes) -> bytes:
        if _MARK not in line or not line.startswith(_DATA):
            return line
        data = line.removeprefix(_DATA)
        return _DATA + b" " + self._translated(data.strip()) + data[len(data.rstrip()) :]

    def _translated(self, data: bytes) -> bytes:
        try:
            value = parse(data, "provider")
        except WireError:
            return data
        message = table_at(value, "message")
        return msgspec.json.encode({**self._without(value), **({"message": self._without(message)} if message else {})})

    def _without(self, table: Json) -> Json:
        if _FIELD not in table:
            return table
        found = tables_at(table, _FIELD)
        translated = [{**each, "path": self._paths.get(text(each, "path"))} for each in found if is_json(each)]
        rest = {key: value for key, value in table.items() if key != _FIELD}
        return {**rest, _FIELD: translated} if self._paths and all(each["path"] for each in translated) else rest
