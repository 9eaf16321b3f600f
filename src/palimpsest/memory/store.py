"""The note files of one scope with their log of changes, the folders of all scopes, and notes decoded and checked."""

import fcntl
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from palimpsest.core.errors import BadInput, BadLog, GitStopped, MissingBase, NewerFormat, StoreError
from palimpsest.core.events import Event, Failed, NoteForgotten, NoteSaved, SessionOpened
from palimpsest.core.items import Value
from palimpsest.core.log import Log
from palimpsest.core.ports import Clock
from palimpsest.memory.changes import Tombstone
from palimpsest.memory.evidence import iso_time
from palimpsest.memory.note import BY_HAND, TEAMMATE, WISHES, Note, check_note, decode_note, from_claude, time_of
from palimpsest.stores.files import (
    make_private_folder,
    open_in_folder,
    read_regular,
    store_error,
    store_errors,
    sync_folder,
    write_atomically,
    write_private,
)
from palimpsest.stores.sessions import JsonlSessions
from palimpsest.stores.shadow_git import borrowed_git

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


_stones = msgspec.json.Decoder(Tombstone)


def tombstone_lines(state: Path) -> tuple[bytes, ...]:
    """Return the lines of what was forgotten in a scope, oldest first. The file is replaced as a whole, so that no lock is needed."""
    place = state / TOMBSTONES
    try:
        return tuple(line for line in read_regular(place).split(b"\n") if line)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise store_error(error, place, "read") from error


def tombstones_in(state: Path, *, only_readable: bool = False) -> tuple[Tombstone, ...]:
    """Return what was forgotten in a scope. Raises `StoreError` if a line is damaged: what it stands for must not be learned again.

    With `only_readable` such a line is left out, because a session goes on with what is known.
    """
    found: list[Tombstone] = []
    for number, line in enumerate(tombstone_lines(state), 1):
        try:
            found.append(_stones.decode(line))
        except (msgspec.DecodeError, UnicodeError) as error:
            if not only_readable:
                where = str(state / TOMBSTONES)
                raise StoreError(f"line {number} is damaged, so that nothing is learned; repair or delete it", where=where) from error
    return tuple(found)


def all_tombstones(memory: Path, *, only_readable: bool = False) -> tuple[Tombstone, ...]:
    """Return what was forgotten in all scopes of a home: an event may be the source of several notes.

    Of a team too only what this user forgot, which is kept in the home: a file of a repository must not hide sessions.
    """
    states = [place.parent for place in sorted(memory.glob(f"*/{TOMBSTONES}"))]
    return tuple(stone for state in states for stone in tombstones_in(state, only_readable=only_readable))


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
    for a lock, a key or a log of ours.
    """

    def __init__(self, folder: Path, scope: str, clock: Clock, *, state: Path | None = None) -> None:
        self.folder = folder
        self.scope = scope
        self.state = folder if state is None else state
        # Where they are now; a folder of a project may become a link at any time.
        self._real = (self.folder.resolve(), self.state.resolve())
        self._clock = clock
        self._saved: tuple[tuple[int, ...], Mapping[str, tuple[NoteSaved | None, int]]] = ((), {})
        # The text of each file that was read with the state that it had then, by path.
        self._known: dict[str, tuple[tuple[int, ...], str]] = {}

    @property
    def is_shared(self) -> bool:
        """Whether other people write notes here too."""
        return self.state != self.folder

    @property
    def journal(self) -> Path:
        """The file that names the notes that are being forgotten, while they are."""
        return self.state / ".forgetting"

    def read(self, *, hidden: Iterable[str] = ()) -> NoteFiles:
        """Return all notes as they are now, without those of the names `hidden`. Files that did not change since are not read again.

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

    def beyond(self) -> int:
        """Return how many active notes are beyond the most that are read; no search finds them."""
        try:
            with os.scandir(self._place(NOTES)) as entries:
                return max(0, sum(entry.name.endswith(".md") for entry in entries) - MOST_FILES)
        except OSError:
            return 0

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
            return _note_text((self.folder if name == INDEX_FILE else self.state) / name)
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
            return _note_text(self.path_of(NOTES, name))
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
        """Open the log for a change of a scope that is held."""
        with self._opened() as log:
            writer = NoteWriter(self, log)
            yield writer
            writer.sync_names()
            log.sync()

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
            with os.scandir(folder) as found:
                entries = sorted((entry for entry in found if entry.name.endswith(".md")), key=lambda entry: entry.name)
        except FileNotFoundError:
            return
        except OSError as error:
            raise store_error(error, folder, "read") from error
        problems += [(f"{place}/{entry.name}", f"there are more than {MOST_FILES:,} notes") for entry in entries[MOST_FILES:]]
        for entry in entries[:MOST_FILES]:
            try:
                yield entry.name.removesuffix(".md"), self._text(entry)
            except FileNotFoundError:
                # It was renamed or deleted since the folder was listed.
                continue
            except (OSError, UnicodeDecodeError, ValueError) as error:
                problems.append((f"{place}/{entry.name}", str(error)))

    def _text(self, entry: "os.DirEntry[str]") -> str:
        found = entry.stat(follow_symlinks=False)
        state = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        known = self._known.get(entry.path)
        if known is None or known[0] != state:
            # The state is older than the text: what changes in between is read again.
            known = self._known[entry.path] = (state, _note_text(Path(entry.path)))
        return known[1]


class NoteWriter:
    """A scope that is held for a change."""

    def __init__(self, folder: NoteFolder, log: Log) -> None:
        self._folder = folder
        self.log = log
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


def _note_text(path: Path) -> str:
    """Return the text of a regular file. Raises `ValueError` if it is too large or something else, `OSError`, `UnicodeDecodeError`."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("this is no regular file")
        data = file.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise ValueError(f"a note has at most {LARGEST_FILE:,} bytes")
    return data.decode("utf-8")


USER_SCOPE: Final = "user"
TEAM_SCOPE: Final = "team"
TEAM_FOLDER: Final = ".palimpsest/memory"
_ID_LENGTH: Final = 12
# What a repository shares of a team folder: the notes and their index, and nothing that a process keeps for itself.
_SHARED: Final = "# Only the notes and their index are shared.\n*\n!.gitignore\n!MEMORY.md\n!notes/\n!notes/*.md\n"
_SECONDS: Final = 10.0


def project_scope(root: Path) -> str:
    """Return the scope of a project: by the first commit of its repository, else by its real path.

    Raises `GitStopped` if git does not answer in time: by its path the project would have other notes.
    """
    identity = _first_commit(root) or os.path.realpath(root)
    return f"project-{sha256(os.fsencode(identity)).hexdigest()[:_ID_LENGTH]}"


def team_folder(root: Path) -> Path | None:
    """Return the folder of the team's notes in a project; `None` if there is none, or a link, which could lead out of the project."""
    folder = root / TEAM_FOLDER
    links = any(each.is_symlink() for each in (folder.parent, folder, folder / "notes"))
    return folder if folder.is_dir() and not links else None


def make_team_folder(root: Path) -> Path:
    """Make the folder of the team's notes in a project and return it. Raises `StoreError` if it cannot be made, or is a link."""
    folder = root / TEAM_FOLDER
    with store_errors(folder, "create"):
        for each in (folder.parent, folder, folder / "notes"):
            if each.is_symlink():
                raise StoreError("this is a link; notes of a team are kept in the project itself", where=str(each))
            each.mkdir(exist_ok=True)
    write_ignore_file(folder)
    return folder


def write_ignore_file(folder: Path) -> None:
    """Write the file by which git takes only the notes and their index of a team folder, unless there is one."""
    place = folder / ".gitignore"
    if not place.exists():
        write_atomically(place, (_SHARED.encode(),), replace=False)


def scope_folder(home: Path, scope: str) -> Path:
    """Return the folder of a scope in a home."""
    return home / "memory" / scope


def is_scope_name(name: str) -> bool:
    """Return whether a folder of this name is that of a scope: of the user, of a project, or of what is kept beside the notes of a team."""
    return name == USER_SCOPE or name.startswith(("project-", "team-"))


def _first_commit(root: Path) -> str:
    """Return the oldest of the commits without a parent that HEAD leads to; empty if there is none that can be read.

    Raises `GitStopped` if git does not answer in time.
    """
    try:
        with borrowed_git(root, seconds=_SECONDS) as git:
            lines = [] if git is None else git.run("rev-list", "--max-parents=0", "HEAD").decode("ascii", "replace").split()
    except GitStopped:
        raise
    except (OSError, StoreError):
        return ""
    return lines[-1] if lines else ""


# A note of which only the short form is there was written by a person at a time that no event states.
_NO_TIME, _BY_HAND = "1970-01-01T00:00:00Z", f"{BY_HAND}:0"


class Notes(Value, frozen=True):
    """The notes of a scope: active and quarantined ones by name, past versions by `name@rev`, and the files that are no notes."""

    active: Mapping[str, Note]
    past: Mapping[str, Note]
    quarantine: Mapping[str, Note]
    problems: tuple[tuple[str, str], ...] = ()

    def all(self) -> Iterator[Note]:
        """Yield every version of every note."""
        yield from (*self.active.values(), *self.past.values(), *self.quarantine.values())


def notes_of(files: NoteFiles, clock: Clock, *, accepted: Mapping[str, str] | None = None) -> Notes:
    """Return the notes of files.

    With `accepted` they are those of a shared folder, which come with a repository: data about the project, and no wishes of this user.
    What such a file says about who the user is or what the user wants is held back until the user accepts it: then `accepted` has the
    digest of the file.
    """
    problems = list(files.problems)
    active, past, quarantine = (
        dict(_notes(texts, place, clock, problems))
        for place, texts in (("notes", files.active), ("past", files.past), ("quarantine", files.quarantine))
    )
    # A crash between the two files of a correction leaves both; the one that names the other holds.
    replaced = {link for note in active.values() for link in note.supersedes}
    shown = {name: note for name, note in active.items() if note.status == "active" and note.revision not in replaced}
    left = (note for name, note in active.items() if name not in shown)
    past = {**{note.revision: replace(note, status="superseded") if note.status == "active" else note for note in left}, **past}
    # A crash between the two files of a promotion leaves both.
    held = {name: note for name, note in quarantine.items() if name not in active}
    if accepted is not None:
        shown = {name: _of_repository(note, clock) for name, note in shown.items()}
        waiting = {name for name, note in shown.items() if note.kind in WISHES and accepted.get(name) != digest_of(files.active[name])}
        held |= {name: replace(shown[name], trust="quarantined") for name in waiting}
        shown = {name: note for name, note in shown.items() if name not in waiting}
        # A file may say of itself that it is past: no model gets a wish of it either.
        past = {
            key: replace(_of_repository(note, clock), **({"trust": "quarantined"} if note.kind in WISHES else {}))
            for key, note in past.items()
        }
    return Notes(shown, past, held, tuple(problems))


def as_saved(note: Note, *, is_shared: bool) -> Note:
    """Return a note as its file states it: a shared file calls its author the user, as every note does that a person wrote."""
    if not is_shared:
        return note
    whose = ("user", "self") if (note.person, note.relationship) == TEAMMATE else (note.person, note.relationship)
    return replace(
        note, person=whose[0], relationship=whose[1], trust="stated" if note.trust in ("repository", "quarantined") else note.trust
    )


def iso_now(clock: Clock) -> str:
    """Return the time now as notes state it."""
    return iso_time(clock.now())


def _of_repository(note: Note, clock: Clock) -> Note:
    """Return a note as one of the repository: what the file says about its own trust, rank, author and use here does not count.

    Nor is it from the future, so that it would be the newest for good.
    """
    now = iso_now(clock)
    note = replace(
        note,
        when=now if time_of(note.when) > time_of(now) else note.when,
        pinned=False,
        uses=0,
        shown=0,
        last_used="",
        intensity=0.0,
        by="import",
        trust="repository",
    )
    return replace(note, person=TEAMMATE[0], relationship=TEAMMATE[1]) if note.person.strip().casefold() == "user" else note


def _notes(files: Mapping[str, str], place: str, clock: Clock, problems: list[tuple[str, str]]) -> Iterator[tuple[str, Note]]:
    for name, text in files.items():
        found = _note_or_problem(text, name, place)
        if isinstance(found, str):
            problems.append((f"{place}/{name}.md", found))
        else:
            yield name, replace(found, when=iso_now(clock)) if found.when == _NO_TIME else found


# More than the active notes and their past versions, or reading them in order would always read them all.
@lru_cache(maxsize=4 * MOST_FILES)
def _note_or_problem(text: str, name: str, place: str) -> Note | str:
    """Return the note of a file, or what is wrong with it. Reading the notes again costs only what was changed since."""
    where = f"{place}/{name}.md"
    try:
        note = decode_note(text, where)
    except BadInput as error:
        try:
            # A person writes a note as Claude Code's documentation shows it; what we need beside is added.
            note = from_claude(text, name, when=_NO_TIME, evidence=_BY_HAND)
        except BadInput:
            return error.message
    if note.name != name.partition("@")[0]:
        return f"the file states another name, {note.name[:80]!r}"
    try:
        return note if place == "past" else check_note(note)
    except BadInput as error:
        return error.message
