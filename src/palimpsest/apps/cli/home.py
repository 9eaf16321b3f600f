"""Where `pal` keeps things, and how a person names a session."""

import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from palimpsest.core.errors import BadInput, StoreError
from palimpsest.stores.blobs import BlobFolder
from palimpsest.stores.jsonl import SUFFIX, JsonlShelf
from palimpsest.wire.cards import CARDS, ModelCard

NEWEST = "last"
_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"


class SystemClock:
    """The clock of this machine."""

    def now(self) -> int:
        """Milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Home:
    """The folder that holds everything: `sessions/`, `blobs/`, `index.sqlite`, `cards.toml`."""

    folder: Path

    @property
    def shelf(self) -> JsonlShelf:
        """All sessions."""
        return JsonlShelf(self.folder / "sessions")

    @property
    def blobs(self) -> BlobFolder:
        """Contents too large for a line."""
        return BlobFolder(self.folder / "blobs")

    @property
    def index_path(self) -> Path:
        """The search index; it can be deleted without loss."""
        return self.folder / "index.sqlite"

    @property
    def cards_path(self) -> Path:
        """Model cards that the user wrote."""
        return self.folder / "cards.toml"

    def cards(self) -> tuple[ModelCard, ...]:
        """All known model cards; the user's own win over the built-in ones of the same name."""
        own = self.own_cards()
        names = {each.name for each in own}
        return (*own, *(each for each in CARDS if each.name not in names))

    def own_cards(self) -> tuple[ModelCard, ...]:
        """The cards of the user's file, if there is one."""
        try:
            text = self.cards_path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise StoreError(f"cannot read it: {error.strerror}", where=str(self.cards_path)) from error
        except UnicodeDecodeError as error:
            raise BadInput("this is not UTF-8 text", where=str(self.cards_path)) from error
        from palimpsest.wire.card_file import parse_cards  # noqa: PLC0415 - most homes have no such file

        return parse_cards(text, where=str(self.cards_path))


def find_home(folder: str | None = None) -> Home:
    """The home that was named, that of PAL_HOME, or the platform's data folder."""
    named = folder or os.environ.get("PAL_HOME")
    if named:
        return Home(Path(named).expanduser())
    from platformdirs import user_data_dir  # noqa: PLC0415 - needed only where nobody names a home

    return Home(Path(user_data_dir("palimpsest")))


@dataclass(frozen=True)
class Found:
    """A session that somebody named, and the stores it lives in."""

    session: str
    shelf: JsonlShelf
    blobs: BlobFolder

    @property
    def path(self) -> Path:
        """Its file."""
        return self.shelf.path_of(self.session)


def find_session(home: Home, word: str) -> Found:
    """The session that a word means: an id, a prefix that no other id has, a path, or `last`."""
    if word.endswith(SUFFIX) or os.sep in word:
        return _find_file(Path(word).expanduser())
    stats = {session: mtime for session, _, _, mtime in home.shelf.stats()}
    if word in stats:
        return Found(word, home.shelf, home.blobs)
    if not stats:
        raise BadInput(f"there is no session {word!r}: there are none yet; `pal demo` makes one to look at", where=str(home.shelf.folder))
    if word == NEWEST:
        return Found(max(stats, key=lambda session: (stats[session], session)), home.shelf, home.blobs)
    matching = sorted(session for session in stats if word and session.startswith(word))
    if not matching:
        raise BadInput(f"there is no session {word!r}; `pal sessions` lists them")
    if len(matching) > 1:
        some = ", ".join(matching[:4]) + (", …" if len(matching) > 4 else "")
        raise BadInput(f"{word!r} begins the ids of {len(matching)} sessions: {some}; write more of it")
    return Found(matching[0], home.shelf, home.blobs)


def _find_file(path: Path) -> Found:
    if not path.is_file():
        raise BadInput("there is no such file", where=str(path))
    if path.suffix != SUFFIX:
        raise BadInput(f"a session is kept in a file that ends in {SUFFIX}", where=str(path))
    folder = path.resolve().parent
    return Found(path.stem, JsonlShelf(folder), BlobFolder(folder.parent / "blobs"))


def new_session_id(now: int) -> str:
    """An id that sorts by time: date, time and four random letters."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now / 1000))
    return f"{stamp}-{''.join(secrets.choice(_LETTERS) for _ in range(4))}"
