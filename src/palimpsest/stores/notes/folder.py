"""The notes of one scope: active ones in files, past versions and forgotten ones beside them, and a log that says what changed and why."""

import fcntl
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from palimpsest.core.errors import BadInput
from palimpsest.core.events import Event, NoteForgotten, NoteSaved, SessionOpened
from palimpsest.core.items import Value
from palimpsest.core.log.log import Log
from palimpsest.core.ports import Clock
from palimpsest.stores.files import open_in_folder, store_error, store_errors, write_private
from palimpsest.stores.jsonl import JsonlSessions

_LOG: Final = "memory"
_NOTES, _PAST, _QUARANTINE = "notes", "past", "quarantine"
# Bytes of one file; a note has at most about 1,600 tokens.
LARGEST_FILE: Final = 64 * 1024
MOST_FILES: Final = 5_000


class NoteFiles(Value, frozen=True):
    """The texts of a scope by name (past versions by `name@rev`), and the files that could not be read, with the reason."""

    active: Mapping[str, str]
    past: Mapping[str, str]
    quarantine: Mapping[str, str]
    problems: tuple[tuple[str, str], ...] = ()


class NoteFolder:
    """The folder of one scope. Texts are opaque here; `palimpsest.memory` reads and writes them.

    Every change is made under a lock that other processes wait for, file by file and each file in one step, and is recorded in
    `memory.jsonl` by name, revision and digest, never with its text.
    """

    def __init__(self, folder: Path, scope: str, clock: Clock) -> None:
        self.folder = folder
        self.scope = scope
        self._clock = clock

    def read(self) -> NoteFiles:
        """Return all notes as they are now. Links are not followed, and files that are too large are named as a problem."""
        problems: list[tuple[str, str]] = []
        active, past, quarantine = (dict(self._texts(name, problems)) for name in (_NOTES, _PAST, _QUARANTINE))
        return NoteFiles(active, past, quarantine, tuple(problems))

    def stamps(self) -> dict[str, str]:
        """Return the state of the file of each active note, by name: another state means that the file may have other bytes."""
        folder = self.folder / _NOTES
        found: dict[str, str] = {}
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.endswith(".md"):
                        stat = entry.stat(follow_symlinks=False)
                        found[entry.name[: -len(".md")]] = f"{stat.st_mtime_ns}.{stat.st_size}.{stat.st_ino}"
        except FileNotFoundError:
            return found
        except OSError as error:
            raise store_error(error, folder, "read") from error
        return dict(sorted(found.items())[:MOST_FILES])

    def active_text(self, name: str) -> str | None:
        """Return the text of an active note; `None` if there is no file that can be read."""
        try:
            return _text(self.path_of(_NOTES, name))
        except (BadInput, OSError, UnicodeDecodeError, ValueError):
            return None

    @contextmanager
    def writing(self) -> Iterator["NoteWriter"]:
        """Hold the scope for a change. Raises `StoreError` if the folder cannot be used."""
        place = self.folder / ".lock"
        try:
            handle = open_in_folder(place, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise store_error(error, place, "lock the notes with") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            for name in (_NOTES, _PAST, _QUARANTINE):
                with store_errors(self.folder / name, "create"):
                    (self.folder / name).mkdir(mode=0o700, exist_ok=True)
            with self._opened() as log:
                yield NoteWriter(self, log)
                log.sync()
        finally:
            os.close(handle)

    def history(self) -> tuple[Event, ...]:
        """Return the events of the log of this scope, oldest first. Raises `PalimpsestError` if it is damaged."""
        store = JsonlSessions(self.folder)
        if not store.path_of(_LOG).exists():
            return ()
        with Log.open(store, _LOG, self._clock) as log:
            return tuple(log.events())

    def path_of(self, place: str, name: str) -> Path:
        """Return the path of a note; raises `BadInput` if the name would lead elsewhere."""
        if not name or not all(letter.isascii() and (letter.isalnum() or letter in "_@") for letter in name):
            raise BadInput("a note has a name of letters, digits and _", where=name[:80])
        return self.folder / place / f"{name}.md"

    def key(self) -> bytes:
        """Return the key of the digests in tombstones: made once for a scope, and kept beside it."""
        place = self.folder / ".key"
        if not place.exists():
            write_private(place, secrets.token_bytes(32), replace=False)
        with store_errors(place, "read"):
            return place.read_bytes()

    def _opened(self) -> Log:
        store = JsonlSessions(self.folder)
        if store.path_of(_LOG).exists():
            return Log.open(store, _LOG, self._clock, write=True)
        return Log.create(store, SessionOpened(_LOG), self._clock)

    def _texts(self, place: str, problems: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        folder = self.folder / place
        try:
            entries = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(".md"))
        except FileNotFoundError:
            return
        except OSError as error:
            raise store_error(error, folder, "read") from error
        problems += [(f"{place}/{name}", f"there are more than {MOST_FILES:,} notes") for name in entries[MOST_FILES:]]
        for name in entries[:MOST_FILES]:
            try:
                yield name.removesuffix(".md"), _text(folder / name)
            except (OSError, UnicodeDecodeError, ValueError) as error:
                problems.append((f"{place}/{name}", str(error)))


class NoteWriter:
    """A scope that is held for a change."""

    def __init__(self, folder: NoteFolder, log: Log) -> None:
        self._folder = folder
        self.log = log

    def known_digests(self) -> Mapping[str, str]:
        """Return the digest of each active note as it was recorded last; a file with another one was changed by hand."""
        known: dict[str, str] = {}
        for event in self.log.events():
            match event.body:
                case NoteSaved(name=name, digest=digest):
                    known[name] = digest
                case NoteForgotten(name=name):
                    known.pop(name, None)
                case _:
                    continue
        return known

    def save(self, name: str, text: str, saved: NoteSaved, *, quarantined: bool = False) -> None:
        """Write a note in one step and record it. Raises `StoreError` if it cannot be written."""
        write_private(self._folder.path_of(_QUARANTINE if quarantined else _NOTES, name), text.encode())
        self.log.append(saved)

    def record(self, body: NoteSaved | NoteForgotten) -> None:
        """Record a change that was made otherwise, such as an edit by hand."""
        self.log.append(body)

    def keep_past(self, revision: str, text: str) -> None:
        """Keep a past version of a note that goes on; the event of its new version records the change."""
        write_private(self._folder.path_of(_PAST, revision), text.encode())

    def retire(self, name: str, revision: str, text: str, forgotten: NoteForgotten) -> None:
        """Move a note to the past versions: the past version is there before the active one goes."""
        self.keep_past(revision, text)
        self._delete(_NOTES, name)
        self.log.append(forgotten)

    def discard_quarantined(self, name: str) -> None:
        """Delete a note in quarantine that is an active one now."""
        self._delete(_QUARANTINE, name)

    def restore(self, name: str, revision: str, text: str, saved: NoteSaved) -> None:
        """Make a past version the active one again."""
        write_private(self._folder.path_of(_NOTES, name), text.encode())
        self._delete(_PAST, revision)
        self.log.append(saved)

    def forget(self, names: tuple[str, ...], revisions: tuple[str, ...], tombstone: bytes, forgotten: NoteForgotten) -> None:
        """Delete notes and past versions for good; the tombstone is kept first, so that a crash cannot bring them back."""
        self._add_tombstone(tombstone)
        for name in names:
            self._delete(_NOTES, name)
            self._delete(_QUARANTINE, name)
        for revision in revisions:
            self._delete(_PAST, revision)
        self.log.append(forgotten)

    def tombstones(self) -> tuple[bytes, ...]:
        """Return the lines of what was forgotten, oldest first."""
        place = self._folder.folder / "tombstones.jsonl"
        try:
            return tuple(line for line in place.read_bytes().split(b"\n") if line)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise store_error(error, place, "read") from error

    def write_generated(self, name: str, text: str) -> bool:
        """Write a generated file such as MEMORY.md if it differs. Returns whether it was written."""
        place = self._folder.folder / name
        if place.is_file() and not place.is_symlink() and place.read_bytes() == text.encode():
            return False
        write_private(place, text.encode())
        return True

    def _add_tombstone(self, line: bytes) -> None:
        msgspec.json.decode(line)
        write_private(self._folder.folder / "tombstones.jsonl", b"".join(each + b"\n" for each in (*self.tombstones(), line)))

    def _delete(self, place: str, name: str) -> None:
        path = self._folder.path_of(place, name)
        with store_errors(path, "delete"):
            path.unlink(missing_ok=True)


def digest_of(text: str) -> str:
    """Return the digest of a note's file, as the log records it."""
    return sha256(text.encode()).hexdigest()


def _text(path: Path) -> str:
    """Return the text of a regular file. Raises `ValueError` if it is too large or something else, `OSError`, `UnicodeDecodeError`."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        data = file.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise ValueError(f"a note has at most {LARGEST_FILE:,} bytes")
    return data.decode("utf-8")
