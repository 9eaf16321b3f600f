"""The removal of a note from every file of a scope, in steps that another process completes after a crash."""

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from palimpsest.core.errors import StoreError
from palimpsest.core.events import Body, NoteForgotten, NoteSaved, SessionOpened
from palimpsest.core.items import Value
from palimpsest.core.log.log import Log
from palimpsest.core.ports import Clock
from palimpsest.stores.files import read_regular, store_errors, sync_folder, write_private
from palimpsest.stores.jsonl import JsonlSessions
from palimpsest.stores.notes.folder import LOG, NOTES, PAST, QUARANTINE, SUMMARY_FILE, TOMBSTONES, NoteFolder

_GENERATED: Final = ("rollouts", "skills")
_LARGEST_FILE: Final = 1024 * 1024
_MOST_FILES: Final = 10_000
_bodies = msgspec.json.Decoder(Body)
Rewrite = Callable[[str, str], str | None]
"""Returns the text of a file, given its name and its text, without what is forgotten; `None` if the file is to be deleted."""


class PendingForget(Value, frozen=True):
    """Notes that are being forgotten: their names with the names that stand for them afterwards, and the line of the tombstone."""

    names: Mapping[str, str]
    tombstone: str


_pending = msgspec.json.Decoder(PendingForget)


class NoteRemoval:
    """Removes notes from the files of a scope that is held. Every step can be done again."""

    def __init__(self, folder: NoteFolder, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock

    def begin(self, pending: PendingForget) -> None:
        """State what is to be forgotten: from now on no reader sees it, and a later process completes the removal."""
        write_private(self._folder.journal, msgspec.json.encode(pending))
        self.bury(pending)

    def pending(self) -> PendingForget | None:
        """Return a removal that was begun and not completed."""
        try:
            return _pending.decode(read_regular(self._folder.journal))
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise StoreError(f"cannot read what is being forgotten: {error}", where=str(self._folder.journal)) from error

    def bury(self, pending: PendingForget) -> None:
        """Keep the tombstone, once."""
        known, line = self._folder.tombstones(), pending.tombstone.encode()
        if line not in known:
            write_private(self._folder.state / TOMBSTONES, b"".join(each + b"\n" for each in (*known, line)))

    def clean_files(self, rewrite: Rewrite) -> None:
        """Rewrite the summaries and skills of a scope."""
        rewrite_generated(self._folder.state, rewrite)

    def delete_index(self, file: Path) -> None:
        """Delete a database of recall with its side files."""
        for path in file.parent.glob(f"{file.name}*"):
            with store_errors(path, "delete"):
                path.unlink(missing_ok=True)

    def delete_notes(self, names: Mapping[str, str]) -> None:
        """Delete all versions of notes, and temporary files that a crash has left."""
        for place in (NOTES, QUARANTINE, PAST):
            folder = self._folder.path_of(place, "x").parent
            with store_errors(folder, "delete"):
                for path in folder.iterdir():
                    is_version = path.suffix == ".md" and path.stem.partition("@")[0] in names
                    if is_version or ".new-" in path.name:
                        path.unlink(missing_ok=True)
                sync_folder(folder)

    def rewrite_log(self, names: Mapping[str, str], forgotten: Callable[[str], NoteForgotten]) -> None:
        """Replace names of notes in the log of the scope, and drop reasons and digests of their events; numbers of events stay.

        The log states at its end that each was forgotten.
        """
        store = JsonlSessions(self._folder.state)
        if not store.path_of(LOG).exists():
            return
        with Log.open(store, LOG, self._clock) as log:
            events = [(event.at, event.body) for event in log.events()]
        place = self._folder.state / ".rewriting"
        with store_errors(place, "delete"):
            shutil.rmtree(place, ignore_errors=True)
        bodies = [(at, _renamed(body, names)) for at, body in events[1:]]
        stated = {body.name for _, body in bodies if isinstance(body, NoteForgotten) and body.how == "forgotten"}
        with Log.create(JsonlSessions(place), SessionOpened(LOG), self._clock) as new:
            for at, body in bodies:
                new.append(body, at=at, foreign=True)
            for name in dict.fromkeys(names.values()):
                if name not in stated:
                    new.append(forgotten(name))
        with store_errors(place, "replace the log with"):
            # A checkpoint is only valid for the file it was made of.
            for path in self._folder.state.glob(f"{LOG}.*"):
                if path.name != f"{LOG}.jsonl":
                    path.unlink(missing_ok=True)
            (place / f"{LOG}.jsonl").replace(self._folder.state / f"{LOG}.jsonl")
            sync_folder(self._folder.state)
            shutil.rmtree(place, ignore_errors=True)

    def end(self) -> None:
        """Begin the history again without what was forgotten, and close the removal."""
        if self._folder.commits is not None:
            self._folder.commits.restart("a note was forgotten")
        for path in (*self._folder.state.glob(".*.new-*"), self._folder.journal):
            with store_errors(path, "delete"):
                path.unlink(missing_ok=True)
        with suppress(OSError):
            sync_folder(self._folder.state)


def generated_files(folder: Path) -> Iterator[Path]:
    """Yield the generated files of the folder of a scope: the summary, those of sessions, and skills; links are not followed."""
    summary = folder / SUMMARY_FILE
    if summary.is_file() and not summary.is_symlink():
        yield summary
    left = _MOST_FILES
    for name in _GENERATED:
        for place, _, files in os.walk(folder / name):
            for file in sorted(files)[:left]:
                left -= 1
                yield Path(place) / file


def _renamed(body: Body, names: Mapping[str, str]) -> Body:
    """Return an event without the names; that of a forgotten note keeps what happened, when and by which evidence."""
    if isinstance(body, NoteSaved | NoteForgotten) and body.name in names:
        bare = msgspec.structs.replace(body, name=names[body.name], reason="")
        return msgspec.structs.replace(bare, digest="") if isinstance(bare, NoteSaved) else bare
    pattern = re.compile("|".join(rf"(?<![a-z0-9_]){re.escape(name)}(?![a-z0-9_])" for name in names))
    text = msgspec.json.encode(body).decode()
    return _bodies.decode(pattern.sub(lambda match: names[match[0]], text)) if pattern.search(text) else body


def rewrite_generated(folder: Path, rewrite: Rewrite) -> bool:
    """Rewrite the generated files of a scope, given by its folder; return whether one has changed or is gone.

    Raises `StoreError` if a file cannot be replaced.
    """
    has_changed = False
    for path in generated_files(folder):
        text = text_of_file(path)
        new = None if text is None else rewrite(path.name, text)
        with store_errors(path, "delete"):
            if new is None:
                path.unlink(missing_ok=True)
            elif new != text:
                write_private(path, new.encode())
        has_changed = has_changed or new is None or new != text
    return has_changed


def text_of_file(path: Path) -> str | None:
    """Return the text of a regular file; `None` if it is a link, too large or no text, so that nothing can be found in it."""
    try:
        if path.is_symlink() or path.stat().st_size > _LARGEST_FILE:
            return None
        return read_regular(path).decode().replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError):
        return None
