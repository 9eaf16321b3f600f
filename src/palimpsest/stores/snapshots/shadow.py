"""The shadow repository of a project folder: its place in the home, its lock, its objects, and the sessions that need them."""

import fcntl
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha1, sha256
from pathlib import Path
from time import monotonic, sleep
from typing import Final, NamedTuple

from palimpsest.core.errors import BadInput, Locked, StoreError
from palimpsest.stores.files import make_private_folder, open_in_folder, store_error, store_errors, write_private
from palimpsest.stores.snapshots.git import ShadowGit, find_git

FOLDER: Final = "snapshots"
LOCK_SECONDS: Final = 60.0
_SESSION: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_SNAPSHOT: Final = re.compile(r"[0-9a-f]{40}")
_CONFIG: Final = b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"
# Contents are kept byte for byte: the attributes of a project must neither convert them nor start a filter.
_ATTRIBUTES: Final = b"* -text -crlf !eol -filter -ident !working-tree-encoding\n"
_POLL_SECONDS: Final = 0.02


class SavedFile(NamedTuple):
    """A file of a snapshot. `mode` is that of git (`100644`, `100755`, `120000`), or `large` for one whose content was left out.

    `oid` is the id of its content; for a large file its size and time of change, by which it can be compared but not restored.
    """

    mode: str
    oid: str

    @property
    def is_kept(self) -> bool:
        """Whether the content is in the snapshot."""
        return self.mode != LARGE


LARGE: Final = "large"


def blob_id(data: bytes) -> str:
    """The id that git gives to a content."""
    return sha1(b"blob %d\0%b" % (len(data), data), usedforsecurity=False).hexdigest()


class Shadow:
    """The repository that keeps the snapshots of one project folder. It is made with the first snapshot.

    Raises `BadInput` if the folder cannot have one: there is no git, or the folder holds the user's whole home.
    """

    def __init__(self, home: Path, root: Path, *, search_path: str | None = None) -> None:
        self.root = root.resolve()
        self.home = home.resolve()
        # Git runs in the project, where a relative path would lead elsewhere.
        self.folder = self.home / FOLDER / f"{sha256(os.fsencode(self.root)).hexdigest()[:32]}.git"
        if Path.home().resolve().is_relative_to(self.root):
            raise BadInput("the folder holds the whole home folder, which is too much for snapshots", where=str(self.root))
        program = find_git(self.root, search_path)
        if program is None:
            raise BadInput("snapshots of files need git, which is not installed", where=str(self.root))
        self.git = ShadowGit(program, self.folder)
        self._search_path = search_path
        self._is_held = False

    def again(self) -> "Shadow":
        """The same repository for work of its own, which can be stopped alone. Raises as making one does."""
        return Shadow(self.home, self.root, search_path=self._search_path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the repository, which is made if it is missing; reentrant. Raises `Locked` if another process holds it for over a minute."""
        if self._is_held:
            yield
            return
        place = self.folder.with_suffix(".lock")
        with store_errors(place, "lock the snapshots with"):
            handle = open_in_folder(place, os.O_RDWR | os.O_CREAT)
        try:
            _lock(handle, place, lambda: self.git.is_stopped)
            self._make()
            self._is_held = True
            yield
        finally:
            self._is_held = False
            os.close(handle)

    def _make(self) -> None:
        """Write the repository, if it is missing, and remove locks of git that a crash left, for no other process is at work."""
        with store_errors(self.folder, "write"):
            if not (self.folder / "HEAD").exists():
                for name in ("objects", "refs", "info"):
                    make_private_folder(self.folder / name)
                write_private(self.folder / "config", _CONFIG)
                write_private(self.folder / "info" / "attributes", _ATTRIBUTES)
                write_private(self.folder / "root", os.fsencode(self.root) + b"\n")
                write_private(self.folder / "HEAD", b"ref: refs/heads/none\n")
            for left in self.folder.glob("*.lock"):
                left.unlink(missing_ok=True)

    def add_object(self, kind: str, data: bytes) -> str:
        """Keep an object, durably, and return its id. Starting git for a single object would take longer than writing it."""
        whole = b"%b %d\0%b" % (kind.encode(), len(data), data)
        name = sha1(whole, usedforsecurity=False).hexdigest()
        path = self.folder / "objects" / name[:2] / name[2:]
        if not path.exists():
            with store_errors(path, "write"):
                make_private_folder(path.parent)
                write_private(path, zlib.compress(whole, 1))
        return name

    def keep(self, session: str, snapshot: str) -> None:
        """Keep a snapshot as long as the session exists. Raises `BadInput` if one of the names is none."""
        if not _SESSION.fullmatch(session) or ".." in session or not _SNAPSHOT.fullmatch(snapshot):
            raise BadInput(f"{session!r} and {snapshot!r} do not name a session and a snapshot")
        place = self.folder / "refs" / "sessions" / session / snapshot
        if not place.exists():
            with store_errors(place, "write"):
                make_private_folder(place.parent)
                write_private(place, f"{snapshot}\n".encode())

    def contents(self, oids: tuple[str, ...]) -> Iterator[bytes]:
        """Yield the contents with these ids, in order. Raises `StoreError` if one is missing or damaged."""
        if not oids:
            return
        names = "".join(f"{oid}\n" for oid in oids).encode()
        with self.git.stream("cat-file", "--batch", data=names) as output:
            for oid in oids:
                words = output.readline().split()
                if len(words) != 3:
                    raise StoreError(f"the snapshot lacks the content {oid}", where=str(self.folder))
                data = output.read(int(words[2]))
                output.read(1)
                yield data


def _lock(handle: int, place: Path, is_stopped: Callable[[], bool] = lambda: False) -> None:
    """Lock a file, waiting at most a minute, or until that is stopped. Raises `Locked`."""
    end = monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if is_stopped():
                raise Locked("another process took a snapshot when this one was stopped", where=str(place)) from None
            if monotonic() > end:
                raise Locked("another process has been taking a snapshot for over a minute; try again later", where=str(place)) from None
            sleep(_POLL_SECONDS)
        except OSError as error:
            raise store_error(error, place, "lock the snapshots with") from error
        else:
            return


def forget_session(home: Path, session: str) -> int:
    """Delete what only the snapshots of one session need, in all repositories of a home. Returns how many repositories it was in.

    A repository that no session needs is removed whole. Raises `StoreError`, and `Locked` while a snapshot is taken.
    """
    if not _SESSION.fullmatch(session):
        return 0
    count = 0
    for refs in sorted((home.resolve() / FOLDER).glob(f"*.git/refs/sessions/{session}")):
        folder = refs.parents[2]
        place = folder.with_suffix(".lock")
        with store_errors(place, "lock the snapshots with"):
            handle = open_in_folder(place, os.O_RDWR | os.O_CREAT)
        try:
            _lock(handle, place)
            _forget(folder, refs)
        finally:
            os.close(handle)
        count += 1
    return count


def _forget(folder: Path, refs: Path) -> None:
    with store_errors(refs, "delete"):
        shutil.rmtree(refs)
        with suppress(OSError):
            refs.parent.rmdir()
        if not refs.parent.exists():
            shutil.rmtree(folder)
            return
        program = find_git(folder)
        if program is not None:
            # The indexes name contents that no snapshot may need; without them the next one reads every file again.
            for index in folder.glob("index*"):
                index.unlink()
            git = ShadowGit(program, folder)
            git.run("repack", "-a", "-d", "-q")
            git.run("prune", "--expire=now")
