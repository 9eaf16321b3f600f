"""Counts and lists the secrets of a log, replaces them during an import, and cleans values and lines of JSON."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, TypeVar, cast

from msgspec import Raw, Struct, structs

from palimpsest.core.events import Body, all_items_of
from palimpsest.core.items import Document, Image, Signature, Thinking, text_of
from palimpsest.core.lines import decode_line
from palimpsest.core.ports import Blobs, LogFile
from palimpsest.core.secrets import CERTAIN_KINDS, find_secrets, redact
from palimpsest.core.view import View
from palimpsest.exchange.transcript import ImportContext, ReadEvent, ReadOutput, ReadPosition, ReadProblem

AnyValue = TypeVar("AnyValue")
Clean: TypeAlias = Callable[[str], str]

# Fields with ciphertext or image data: changing one character makes them useless.
_ENCRYPTED_FIELDS = frozenset({"signature", "encrypted_content"})
_SECRET_KEY = re.compile(r"(?i)key|token|secret|pass|pwd|credential|authorization")
# Fields with ids and references: a session is unusable if one of them changes.
_ID_FIELDS = frozenset({"blob", "before", "call_id", "digest", "first", "id", "ids", "keys", "last", "link", "ref", "session", "tools"})

# Strings of JSON may contain JSON, and so on, so that escapes are escaped again.
_ESCAPED = re.compile(r"\\+([nrtfb\"'/])")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "f": " ", "b": " "}


def as_is(text: str) -> str:
    """The text unchanged."""
    return text


def clean_value(value: AnyValue, clean: Clean) -> AnyValue:
    """A copy of a value in which `clean` was applied to every text; ids and references stay as they are."""
    return cast("AnyValue", _cleaned(value, clean))


def _cleaned(value: object, clean: Clean) -> object:
    match value:
        case str():
            return clean_text(value, clean)
        case Raw():
            line = bytes(value)
            return value if (cleaned := clean_line(line, clean)) == line else Raw(cleaned)
        case tuple():
            return tuple(_cleaned(each, clean) for each in value)
        case dict():
            return {name: _clean_named(name, each, clean) for name, each in value.items()}
        case Signature():
            # Encrypted: it shows no secret, and is worthless once a character changes.
            return value
        case Image() | Document() if value.url.startswith("data:"):
            return value
        case Thinking():
            text = clean_text(value.text, clean)
            # A provider refuses thinking that does not match its signature.
            return value if text == value.text else structs.replace(value, text=text, signature=None)
        case Struct():
            fields = {name: getattr(value, name) for name in value.__struct_fields__ if name not in _ID_FIELDS}
            changed = {name: after for name, before in fields.items() if (after := _cleaned(before, clean)) != before}
            return structs.replace(value, **changed) if changed else value
        case _:
            return value


def clean_view(view: View, clean: Clean) -> View:
    """A copy of a view in which `clean` was applied to every text."""
    return structs.replace(view, head=clean_value(view.head, clean), items=clean_value(view.items, clean))


def clean_line(line: bytes, clean: Clean) -> bytes:
    """A line of JSON with `clean` applied to its strings; a line without secrets keeps its bytes."""
    if _has_no_secrets(line, clean):
        return line
    try:
        value = json.loads(line)
    except ValueError:
        return clean(line.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    cleaned = _clean_value(value, clean)
    if cleaned == value:
        return line
    end = b"\n" if line.endswith(b"\n") else b""
    return _dumped(cleaned).encode("utf-8", "backslashreplace") + end


def _has_no_secrets(line: bytes, clean: Clean) -> bool:
    """Whether a whole line has no secrets, both as written and with escapes resolved: much faster than checking each string.

    False for lines with numeric escapes, because those are not resolved here.
    """
    if b"\\u" in line:
        return False
    text = line.decode("utf-8", "replace")
    unescaped = _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]), text)
    return clean(text) == text and clean(unescaped) == unescaped


def clean_text(text: str, clean: Clean) -> str:
    """A text with `clean` applied; a text that is JSON stays JSON."""
    cleaned = clean(text)
    if not text.lstrip().startswith(("{", "[")):
        return cleaned
    try:
        value = json.loads(text)
    except ValueError:
        return cleaned
    # Keys next to values reveal secrets only in the whole text, and escapes hide them only there: so both are checked, in this order.
    try:
        value = json.loads(cleaned)
    except ValueError:
        cleaned = text
    inner = _clean_value(value, clean)
    return cleaned if inner == value else _dumped(inner)


def _clean_value(value: Any, clean: Clean) -> Any:
    match value:
        case str():
            return value if value.startswith("data:") else clean_text(value, clean)
        case list():
            return [_clean_value(each, clean) for each in value]
        case dict():
            return _clean_object(value, clean)
        case _:
            return value


def _clean_object(value: dict[str, Any], clean: Clean) -> dict[str, Any]:
    # The type may have any JSON value here.
    encrypted = _ENCRYPTED_FIELDS | {"data"} if value.get("type") in ("base64", "redacted_thinking") else _ENCRYPTED_FIELDS
    cleaned = {clean(name): each if name in encrypted else _clean_named(name, each, clean) for name, each in value.items()}
    thinking = value.get("thinking")
    if value.get("type") == "thinking" and cleaned.get("thinking") != thinking:
        # A provider refuses thinking that does not match its signature.
        return {"type": "text", "text": cleaned["thinking"]}
    return cleaned


def _clean_named(name: str, value: Any, clean: Clean) -> Any:
    if isinstance(value, str) and _SECRET_KEY.search(name):
        opening = f'{name}="'
        assignment = clean(f'{opening}{value}"')
        if assignment.startswith(opening) and assignment.endswith('"'):
            value = assignment[len(opening) : -1]
    return _clean_value(value, clean)


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_BATCH_BYTES = 64 * 1024
# The beginning of a token names its vendor, that of a password helps to guess it.
_SHOWN, _LONG = 4, 20


def count_secrets(chunks: Iterable[bytes]) -> dict[str, int]:
    """How many different secrets of each class some lines of a log have."""
    counted: set[int] = set()
    found: Counter[str] = Counter()
    for chunk in chunks:
        text = _unescaped(chunk)
        for secret in find_secrets(text):
            value = hash(text[secret.start : secret.end])
            if value not in counted:
                counted.add(value)
                found[secret.kind] += 1
    return dict(sorted(found.items()))


def _unescaped(chunk: bytes) -> str:
    # Escaped line breaks and tabs must separate words here as they do in the text.
    return chunk.replace(b"\\n", b"\n").replace(b"\\t", b"\t").decode("utf-8", "replace")


class FoundSecret(Struct, frozen=True):
    """A secret of a log: the sequence number of its event, its class, its masked text, and where in the event it stands.

    `item` is the id of the item that contains it and `line` the number of the line there, from 1; a secret outside of items has
    an empty id and line 0. A secret is `certain` if its form alone proves it, else its place suggests it.
    """

    event: int
    kind: str
    masked: str
    item: str
    line: int
    certain: bool


def secrets_of(lines: LogFile) -> Iterator[FoundSecret]:
    """Yield the secrets of a log in its order, each once per line of an item. Raises `BadLog` for a line with a secret that is no event."""
    for batch in line_batches(lines, 0, lines.size):
        # Most batches have none, and reading them as events takes longer than searching them.
        if find_secrets(_unescaped(batch)):
            for line in batch.splitlines(keepends=True):
                yield from dict.fromkeys(_secrets_of_line(line, lines.name))


def _secrets_of_line(line: bytes, where: str) -> Iterator[FoundSecret]:
    text = _unescaped(line)
    found = find_secrets(text)
    if not found:
        return
    event = decode_line(line, where)
    texts = [(item.id, text_of(item.content)) for item in all_items_of(event)]
    for secret in found:
        value = text[secret.start : secret.end]
        places = [(item, shown.count("\n", 0, shown.index(value)) + 1) for item, shown in texts if value in shown]
        for item, number in places or [("", 0)]:
            yield FoundSecret(event.seq, secret.kind, mask(value), item, number, secret.kind in CERTAIN_KINDS)


def mask(value: str) -> str:
    """Return a short text that says which secret is meant and does not contain it: its length, and the beginning of a long one."""
    return f"{value[:_SHOWN] if len(value) >= _LONG else ''}… ({len(value)} characters)"


def line_batches(lines: LogFile, start: int, stop: int) -> Iterator[bytes]:
    """The lines of a log from one byte offset to another, in batches of about 64 KiB, which fit the processor's cache."""
    for _, run in lines.chunks(start, stop):
        start_of_batch = 0
        while start_of_batch < len(run):
            end = run.find(b"\n", start_of_batch + _BATCH_BYTES) + 1 or len(run)
            yield run[start_of_batch:end]
            start_of_batch = end


def redacted(outputs: Iterator[ReadOutput]) -> Iterator[ReadOutput]:
    """What a format reads, without secrets in bodies and in the rest of source lines; `RedactingBlobs` keeps them out of its blobs."""
    for output in outputs:
        match output:
            case ReadEvent():
                yield _redact_event(output)
            case ReadProblem():
                yield ReadProblem(output.where, redact(output.why))
            case ReadPosition():
                yield structs.replace(output, state=clean_value(output.state, redact))


def _redact_event(event: ReadEvent) -> ReadEvent:
    body = event.body
    line = clean_value(event.line, redact)
    if isinstance(body, Struct):
        return structs.replace(event, body=clean_value(body, redact), line=line)
    build = body

    def redacted_body(context: ImportContext) -> Body | None:
        built = build(context)
        return None if built is None else clean_value(built, redact)

    return structs.replace(event, body=redacted_body, line=line)


class RedactingBlobs:
    """Stores texts without their secrets; images and other binary data are stored unchanged."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def put(self, data: bytes) -> str:
        """Store the bytes and return the address of what was stored."""
        try:
            return self._blobs.put(redact(data.decode()).encode())
        except UnicodeDecodeError:
            return self._blobs.put(data)

    def get(self, address: str) -> bytes:
        """The bytes at an address."""
        return self._blobs.get(address)

    def __contains__(self, address: str) -> bool:
        return address in self._blobs
