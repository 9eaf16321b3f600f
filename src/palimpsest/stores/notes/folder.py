"""The notes of one scope: active ones in files, past versions and forgotten ones beside them, and a log that says what changed and why."""

import fcntl
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

from palimpsest.core.errors import BadInput, BadLog, MissingBase, NewerFormat, StoreError
from palimpsest.core.events import Event, Failed, NoteForgotten, NoteSaved, SessionOpened
from palimpsest.core.items import Value
from palimpsest.core.log.log import Log
from palimpsest.core.ports import Clock
from palimpsest.stores.files import make_private_folder, open_in_folder, read_regular, store_error, store_errors, sync_folder, write_private
from palimpsest.stores.jsonl import JsonlSessions
from palimpsest.stores.notes.history import NoteHistory

LOG: Final = "memory"
NOTES, PAST, QUARANTINE = "notes", "past", "quarantine"
# Generated files, and the database of recall and use.
INDEX_FILE: Final = "MEMORY.md"
SUMMARY_FILE: Final = "SUMMARY.md"
RECALL_FILE: Final = "index.sqlite"
TOMBSTONES: Final = "tombstones.jsonl"
# Bytes of one file; a note has at most about 1,600 tokens.
LARGEST_FILE: Final = 64 * 1024
MOST_FILES: Final = 5_000


class NoteFiles(Value, frozen=True):
    """The texts of a scope by name (past versions by `name@rev`), and the files that could not be read, with the reason."""

    active: Mapping[str, str]
    past: Mapping[str, str]
    quarantine: Mapping[str, str]
    problems: tuple[tuple[str, str], ...] = ()


class RecordedNote(Value, frozen=True):
    """The last version of a note in the log; `at` is when it was recorded, in milliseconds since 1970."""

    rev: int
    digest: str
    by: str
    evidence: tuple[str, ...]
    at: int


class NoteFolder:
    """The folder of one scope. Texts are opaque here; `palimpsest.memory` reads and writes them.

    Every change is made under a lock that other processes wait for, file by file and each file in one step, and is recorded in
    `memory.jsonl` by name, revision and digest, never with its text. A folder that is shared with other people through a repository has
    only the active notes and their index in it: `state` is then a folder of this user for all else, so that no file of theirs is taken
    for a lock, a key or a log of ours, and its history is that of the repository.
    """

    def __init__(self, folder: Path, scope: str, clock: Clock, *, state: Path | None = None) -> None:
        self.folder = folder
        self.scope = scope
        self.state = folder if state is None else state
        # Where they are now; a folder of a project may become a link at any time.
        self._real = (self.folder.resolve(), self.state.resolve())
        self._clock = clock
        self._saved: tuple[tuple[int, ...], Mapping[str, tuple[NoteSaved | None, int]]] = ((), {})
        self.commits = NoteHistory(folder) if state is None else None

    @property
    def is_shared(self) -> bool:
        """Whether other people write notes here too."""
        return self.state != self.folder

    @property
    def journal(self) -> Path:
        """The file that names the notes that are being forgotten, while they are."""
        return self.state / ".forgetting"

    def read(self, *, hidden: Iterable[str] = ()) -> NoteFiles:
        """Return all notes as they are now, without those of the names `hidden`.

        Links are not followed, and files that are too large are named as a problem.
        """
        problems: list[tuple[str, str]] = []
        gone = frozenset(hidden)
        active, past, quarantine = (
            {name: text for name, text in self._texts(place, problems) if name.partition("@")[0] not in gone}
            for place in (NOTES, PAST, QUARANTINE)
        )
        return NoteFiles(active, past, quarantine, tuple(problems))

    def stamps(self) -> dict[str, str]:
        """Return the state of the file of each active note, by name: another state means that the file may have other bytes."""
        folder = self._place(NOTES)
        found: dict[str, str] = {}
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.endswith(".md"):
                        state = entry.stat(follow_symlinks=False)
                        found[entry.name[: -len(".md")]] = f"{state.st_mtime_ns}.{state.st_size}.{state.st_ino}"
        except FileNotFoundError:
            return found
        except OSError as error:
            raise store_error(error, folder, "read") from error
        return dict(sorted(found.items())[:MOST_FILES])

    def has_notes(self) -> bool:
        """Return whether there is a file of an active note."""
        try:
            with os.scandir(self.folder / NOTES) as entries:
                return any(entry.name.endswith(".md") for entry in entries)
        except OSError:
            return False

    def generated(self, name: str) -> str:
        """Return a generated file such as MEMORY.md; empty if there is none that can be read."""
        try:
            return _text((self.folder if name == INDEX_FILE else self.state) / name)
        except (OSError, ValueError):
            return ""

    def change_stamp(self) -> str:
        """Return the state of the log of this scope; it differs after every recorded change."""
        try:
            stat = JsonlSessions(self.state).path_of(LOG).stat()
        except OSError:
            return ""
        return f"{stat.st_mtime_ns}.{stat.st_size}"

    def active_text(self, name: str) -> str | None:
        """Return the text of an active note; `None` if there is no file that can be read."""
        try:
            return _text(self.path_of(NOTES, name))
        except (BadInput, OSError, UnicodeDecodeError, ValueError):
            return None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the scope, so that other processes wait. Raises `StoreError` if the folder cannot be used, or leads elsewhere."""
        place = self.state / ".lock"
        try:
            handle = open_in_folder(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
        except OSError as error:
            raise store_error(error, place, "lock the notes with") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            for name in (NOTES, PAST, QUARANTINE):
                self._make(self._place(name))
            yield
        finally:
            os.close(handle)

    @contextmanager
    def logged(self) -> Iterator["NoteWriter"]:
        """Open the log for a change of a scope that is held; what was done is one commit of its history."""
        with self._opened() as log:
            writer = NoteWriter(self, log)
            yield writer
            writer.sync_names()
            log.sync()
        if writer.changes and self.commits is not None:
            self.commits.commit("; ".join(writer.changes))

    @contextmanager
    def writing(self) -> Iterator["NoteWriter"]:
        """Hold the scope for a change. Raises `StoreError` if the folder cannot be used."""
        with self.held(), self.logged() as writer:
            yield writer

    def history(self) -> tuple[Event, ...]:
        """Return the events of the log of this scope, oldest first. Raises `PalimpsestError` if it is damaged."""
        store = JsonlSessions(self.state)
        if not store.path_of(LOG).exists():
            return ()
        with Log.open(store, LOG, self._clock) as log:
            return tuple(log.events())

    def edits(self) -> Mapping[str, int]:
        """Return when a person has edited each note that no process has written since, in milliseconds since 1970."""
        by_hand = ("edited by hand", "written by hand")
        return {name: at for name, (saved, at) in self._by_user().items() if saved is not None and saved.reason in by_hand}

    def accepted(self) -> Mapping[str, str]:
        """Return the digest of each note as the user wrote or accepted it last, by name: the log says so, which no repository has."""
        return {name: accepted.digest for name, (accepted, _) in self._by_user().items() if accepted is not None}

    def _by_user(self) -> Mapping[str, tuple[NoteSaved | None, int]]:
        """Return each note as the user saved or accepted it last, and when; `None` if something else was recorded of it since."""
        place = self.state / f"{LOG}.jsonl"
        try:
            found = place.stat()
        except FileNotFoundError:
            return {}
        state = (found.st_ino, found.st_size, found.st_mtime_ns)
        if self._saved[0] != state:
            saved: dict[str, tuple[NoteSaved | None, int]] = {}
            for event in self._readable_history():
                match event.body:
                    case NoteSaved(name=name, by="user") as body:
                        saved[name] = (body, event.at)
                    case NoteSaved(name=name) | NoteForgotten(name=name):
                        saved[name] = (None, event.at)
                    case _:
                        continue
            self._saved = (state, saved)
        return self._saved[1]

    def _readable_history(self) -> tuple[Event, ...]:
        """Return the events of the log; none if it is damaged, because notes can be read without it. The next change sets it aside."""
        try:
            return self.history()
        except BadLog:
            return ()

    def path_of(self, place: str, name: str) -> Path:
        """Return the path of a note; raises `BadInput` if the name would lead elsewhere."""
        if not name or not all(letter.isascii() and (letter.isalnum() or letter in "_@") for letter in name):
            raise BadInput("a note has a name of letters, digits and _", where=name[:80])
        return self._place(place) / f"{name}.md"

    def key(self) -> bytes:
        """Return the key of the digests in tombstones: made once for a scope, and kept beside it."""
        place = self.state / ".key"
        if not place.exists():
            with store_errors(place.parent, "create"):
                make_private_folder(place.parent)
            write_private(place, secrets.token_bytes(32), replace=False)
        with store_errors(place, "read"):
            return read_regular(place)

    def tombstones(self) -> tuple[bytes, ...]:
        """Return the lines of what was forgotten, oldest first."""
        place = self.state / TOMBSTONES
        try:
            return tuple(line for line in read_regular(place).split(b"\n") if line)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise store_error(error, place, "read") from error

    def _place(self, name: str) -> Path:
        return (self.folder if name == NOTES else self.state) / name

    def _make(self, place: Path) -> None:
        with store_errors(place, "create"):
            make_private_folder(place)
            is_folder = stat.S_ISDIR(place.lstat().st_mode) and place.parent.resolve() in self._real
        if not is_folder:
            raise StoreError("this is a link; notes are kept in folders of their own only", where=str(place))

    def _opened(self) -> Log:
        store = JsonlSessions(self.state)
        if not store.path_of(LOG).exists():
            return Log.create(store, SessionOpened(LOG), self._clock)
        try:
            log = Log.open(store, LOG, self._clock, write=True)
        except (NewerFormat, MissingBase):
            raise
        except BadLog as error:
            return self._begun_again(store, error)
        try:
            # Every change of notes reads the log up to its end; a damaged line shows only then.
            for _ in log.events():
                pass
        except BadLog as error:
            log.close()
            return self._begun_again(store, error)
        return log

    def _begun_again(self, store: JsonlSessions, error: BadLog) -> Log:
        """Set a damaged log aside and begin another, which says so: the files are the truth about notes, and are picked up again."""
        damaged = self.state / f"{LOG}.damaged"
        with store_errors(damaged, "create"):
            for path in self.state.glob(f"{LOG}.*"):
                if path.name not in (f"{LOG}.jsonl", damaged.name):
                    path.unlink(missing_ok=True)
            store.path_of(LOG).replace(damaged)
        log = Log.create(store, SessionOpened(LOG), self._clock)
        log.append(Failed("log", error.kind, f"the log was damaged and is kept as {damaged.name}: {error.message}"[:300], by="memory"))
        return log

    def _texts(self, place: str, problems: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        folder = self._place(place)
        try:
            if folder.is_symlink():
                problems.append((place, "this is a link; notes are kept in folders of their own only"))
                return
            entries = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(".md"))
        except FileNotFoundError:
            return
        except OSError as error:
            raise store_error(error, folder, "read") from error
        problems += [(f"{place}/{name}", f"there are more than {MOST_FILES:,} notes") for name in entries[MOST_FILES:]]
        for name in entries[:MOST_FILES]:
            try:
                yield name.removesuffix(".md"), _text(folder / name)
            except FileNotFoundError:
                # It was renamed or deleted since the folder was listed.
                continue
            except (OSError, UnicodeDecodeError, ValueError) as error:
                problems.append((f"{place}/{name}", str(error)))


class NoteWriter:
    """A scope that is held for a change. `changes` are lines for its history."""

    def __init__(self, folder: NoteFolder, log: Log) -> None:
        self._folder = folder
        self.log = log
        self.changes: list[str] = []
        self._unsynced: set[Path] = set()

    def sync_names(self) -> None:
        """Sync the folders in which notes were saved: once for all notes of a change, since each sync takes milliseconds."""
        for folder in sorted(self._unsynced):
            with store_errors(folder, "write"):
                sync_folder(folder)
        self._unsynced.clear()

    def recorded(self) -> Mapping[str, RecordedNote]:
        """Return each note as it was recorded last; a file with another digest was changed by hand."""
        known: dict[str, RecordedNote] = {}
        for event in self.log.events():
            match event.body:
                case NoteSaved(name=name, rev=rev, digest=digest, by=by, evidence=evidence):
                    known[name] = RecordedNote(rev, digest, by, evidence, event.at)
                case NoteForgotten(name=name):
                    known.pop(name, None)
                case _:
                    continue
        return known

    def save(self, name: str, text: str, saved: NoteSaved, *, quarantined: bool = False) -> None:
        """Write a note in one step and record it. Raises `StoreError` if it cannot be written."""
        path = self._folder.path_of(QUARANTINE if quarantined else NOTES, name)
        write_private(path, text.encode(), sync_name=False)
        self._unsynced.add(path.parent)
        self.record(saved)

    def record(self, body: NoteSaved | NoteForgotten) -> None:
        """Record a change that was made otherwise, such as an edit by hand."""
        self.log.append(body)
        what = "saved" if isinstance(body, NoteSaved) else body.how
        self.changes.append(f"{what} {body.name} by {body.by}" + (f": {body.reason}" if body.reason else ""))

    def keep_past(self, revision: str, text: str) -> None:
        """Keep a past version of a note that goes on; the event of its new version records the change."""
        write_private(self._folder.path_of(PAST, revision), text.encode())

    def retire(self, name: str, revision: str, text: str, forgotten: NoteForgotten) -> None:
        """Move a note to the past versions: the past version is there before the active one goes."""
        self.keep_past(revision, text)
        self.delete(NOTES, name)
        self.record(forgotten)

    def restore(self, name: str, revision: str, text: str, saved: NoteSaved) -> None:
        """Make a past version the active one again."""
        write_private(self._folder.path_of(NOTES, name), text.encode())
        self.delete(PAST, revision)
        self.record(saved)

    def discard_quarantined(self, name: str) -> None:
        """Delete a note in quarantine that is an active one now, or that has expired."""
        self.delete(QUARANTINE, name)

    def write_generated(self, name: str, text: str) -> bool:
        """Write a generated file such as MEMORY.md if it differs. Returns whether it was written."""
        place = (self._folder.folder if name == INDEX_FILE else self._folder.state) / name
        if place.is_file() and not place.is_symlink() and place.read_bytes() == text.encode():
            return False
        write_private(place, text.encode())
        return True

    def delete(self, place: str, name: str) -> None:
        """Delete a file of a note; nothing happens if there is none."""
        # What takes its place is there before it goes.
        self.sync_names()
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
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("this is no regular file")
        data = file.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise ValueError(f"a note has at most {LARGEST_FILE:,} bytes")
    return data.decode("utf-8")
