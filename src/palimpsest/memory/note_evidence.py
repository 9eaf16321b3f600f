"""Evidence of a note: the cited events, quoted, its recorded changes, and whether cited files have changed since."""

import os
import stat
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from palimpsest.core.errors import BadInput, PalimpsestError, StoreError
from palimpsest.core.events import Event, ModelReplied, NoteForgotten, NoteSaved, ToolReturned, UserSaid
from palimpsest.core.items import Content, Text, ToolCall, text_of
from palimpsest.core.log import Log
from palimpsest.core.redaction import redact
from palimpsest.memory.note import LOG_PREFIX, Note
from palimpsest.memory.notebook import Memories, Notebook
from palimpsest.memory.weigh import DIGEST_CHARACTERS, changed_paths, cited_files
from palimpsest.stores.home import Home
from palimpsest.stores.shadow_git import borrowed_git

# Bytes; a larger file counts as changed, since a note cannot be checked against it in time.
LARGEST_FILE: Final = 4 * 1024 * 1024
_SECONDS: Final = 5.0


class StaleFiles:
    """The files of one project as notes cite them. Paths outside of the project, and links that lead there, count as changed."""

    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)
        self._digests: dict[str, tuple[tuple[int, ...], str]] = {}
        self._commits: dict[str, bool] = {}

    def changed(self, note: Note) -> tuple[str, ...]:
        """Return the paths of the files that a note cites and that have changed since, or whose commit is gone."""
        unknown = [cited.commit for cited in cited_files(note) if cited.commit and cited.commit not in self._commits]
        if unknown:
            self._look_up(unknown)
        return changed_paths(note, self.digest, lambda commit: self._commits.get(commit, True))

    def digest(self, path: str) -> str:
        """Return the beginning of the SHA-256 of a file of the project; empty if there is none that can be read."""
        try:
            place = os.path.realpath(os.path.join(self._root, path))  # noqa: PTH118 - `Path` is slower, and this runs for each recalled note
            if os.path.commonpath((place, self._root)) != self._root:
                return ""
            found = os.stat(place)  # noqa: PTH116 - as above
            if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST_FILE:
                return ""
            state = (found.st_ino, found.st_size, found.st_mtime_ns)
            known = self._digests.get(path)
            if known is None or known[0] != state:
                known = state, sha256(Path(place).read_bytes()).hexdigest()[:DIGEST_CHARACTERS]
                self._digests[path] = known
            return known[1]
        except (OSError, ValueError):
            return ""

    def _look_up(self, commits: list[str]) -> None:
        """Ask git once which commits there are; without git or a repository that can be read all count as there."""
        names = [each for each in dict.fromkeys(commits) if each.isalnum()]
        data = "".join(f"{each}\n" for each in names).encode()
        try:
            with borrowed_git(Path(self._root), seconds=_SECONDS) as git:
                output = b"" if git is None else git.run("cat-file", "--batch-check=%(objecttype)", data=data)
        except (OSError, StoreError):
            return
        lines = output.decode("ascii", "replace").splitlines()
        if len(lines) == len(names):
            self._commits.update((name, line == "commit") for name, line in zip(names, lines, strict=True))


EvidenceState: TypeAlias = Literal["found", "deleted", "unreadable", "command", "import", "hand"]
Quoted: TypeAlias = Literal["user", "assistant", "tool", ""]
IMPORT_PREFIX: Final = "import."
HAND: Final = "hand"
# Characters of a quotation, and of an event that is searched for the part that the note rests on.
LONGEST_QUOTATION: Final = 600
_LONGEST_EVENT: Final = 50_000
_WORDS_A_PART: Final = 60


class CitedEvent(Struct, frozen=True):
    """An event that a note cites. `at` is in milliseconds since 1970, `None` if unknown; `text` is what was said, or why it is not there.

    state: `found` in its session · the session was `deleted` or is `unreadable` · a `command` of the user · an `import` · by `hand`.
    """

    id: str
    session: str
    state: EvidenceState
    text: str
    at: int | None = None
    speaker: Quoted = ""


class NoteChange(Struct, frozen=True):
    """A recorded change of a note; `at` is in milliseconds since 1970."""

    at: int
    what: str
    rev: int
    by: str
    reason: str
    evidence: tuple[str, ...]


def cited_events(home: Home, memories: Memories, note: Note) -> tuple[CitedEvent, ...]:
    """Return each event that a note cites, in the order of the note, quoted without secrets; one that is gone says so."""
    histories = {notebook.log_name: notebook for notebook in memories.notebooks}
    return tuple(_cited(home, histories, note, each) for each in note.evidence)


def changes_of(notebook: Notebook, name: str) -> tuple[NoteChange, ...]:
    """Return what was done to a note, oldest first, also if it was forgotten since."""
    found: list[NoteChange] = []
    names = notebook.names_in_log(name)
    for event in notebook.history():
        body = event.body
        match body:
            case NoteSaved() if body.name in names:
                found.append(NoteChange(event.at, "saved", body.rev, body.by, body.reason, body.evidence))
            case NoteForgotten() if body.name in names:
                found.append(NoteChange(event.at, body.how, body.rev, body.by, body.reason, body.evidence))
            case _:
                continue
    return tuple(found)


def _cited(home: Home, histories: dict[str, Notebook], note: Note, cited: str) -> CitedEvent:
    session, _, number = cited.rpartition(":")
    if session.startswith(IMPORT_PREFIX):
        return CitedEvent(cited, session, "import", note.backstory)
    if session == HAND:
        return CitedEvent(cited, session, "hand", "the file was written by hand")
    if session.startswith(LOG_PREFIX):
        return _command(histories.get(session), cited, session, int(number))
    if session not in set(home.store.sessions()):
        return CitedEvent(cited, session, "deleted", "the session was deleted")
    try:
        with Log.open(home.store, session, home.clock) as log:
            event = log.event(int(number))
    except BadInput:
        return CitedEvent(cited, session, "unreadable", "the session has no such event")
    except PalimpsestError as error:
        return CitedEvent(cited, session, "unreadable", f"the session cannot be read: {error.message}")
    speaker, text = _said(event)
    return CitedEvent(cited, session, "found", redact(_relevant_part(text, note)), event.at, speaker)


def _command(notebook: Notebook | None, cited: str, session: str, number: int) -> CitedEvent:
    event = None if notebook is None else next((each for each in notebook.history() if each.seq == number), None)
    if event is None or not isinstance(event.body, NoteSaved):
        return CitedEvent(cited, session, "unreadable", "the log of these notes has no such event")
    return CitedEvent(cited, session, "command", f"{event.body.reason or 'saved'} by a command of the user", event.at, "user")


def _said(event: Event) -> tuple[Quoted, str]:
    match event.body:
        case UserSaid(parts=parts):
            return "user", _shown_text(parts)
        case ModelReplied(parts=parts):
            return "assistant", _shown_text(parts)
        case ToolReturned(result=result):
            return "tool", _shown_text(result.parts)
        case _:
            return "", type(event.body).__name__


def _shown_text(parts: tuple[Content, ...]) -> str:
    shown = (part.text if isinstance(part, Text) else text_of(part) for part in parts if isinstance(part, Text | ToolCall))
    return "\n".join(shown)[:_LONGEST_EVENT]


def _relevant_part(text: str, note: Note) -> str:
    """Return a short text whole, and of a long one the part that shares most with the note."""
    if len(text) <= LONGEST_QUOTATION:
        return text
    from palimpsest.memory.recall_index import RecallIndex  # few events are long, and commands start in milliseconds
    from palimpsest.memory.recall_ranking import rank
    from palimpsest.memory.recall_terms import RecallUnit, cut

    parts = list(cut(text, _WORDS_A_PART))
    index = RecallIndex(RecallUnit(str(number), part, session="event", position=number) for number, part in enumerate(parts))
    hits = rank(index, f"{note.about}\n{note.body}", most=1)
    best = hits[0].unit.text if hits else parts[0]
    return f"… {best[:LONGEST_QUOTATION]} …"


def changed_files(root: Path, note: Note) -> tuple[str, ...]:
    """Return the cited files whose bytes are no longer those that the note was true of; a file outside of the project counts as changed."""
    return StaleFiles(root).changed(note)
