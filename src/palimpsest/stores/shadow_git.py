"""Git with a folder of ours: the shadow repository of a project, and safe reading of the user's own repository."""

import fcntl
import io
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha1, sha256
from pathlib import Path
from threading import Timer
from time import monotonic, sleep
from typing import IO, Final, NamedTuple, TypeAlias

from palimpsest.core.errors import BadInput, GitStopped, Locked, StoreError
from palimpsest.stores.files import make_private_folder, open_in_folder, store_error, store_errors, write_private

Wrap: TypeAlias = Callable[[tuple[str, ...]], tuple[str, ...]]
"""Returns the arguments that run a command in a sandbox."""
SECONDS: Final = 300.0
_LARGEST_OUTPUT: Final = 256 * 1024 * 1024
_MESSAGE_BYTES: Final = 2_000
_GRACE_SECONDS: Final = 2.0
_SETTINGS: Final = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.untrackedCache=false", "core.autocrlf=false", "core.eol=lf"),
    *("core.symlinks=true", "core.fileMode=true", "core.excludesFile=/dev/null", "core.attributesFile=/dev/null", "core.quotePath=false"),
    *("gc.auto=0", "maintenance.auto=false", "protocol.allow=never", "advice.addEmbeddedRepo=false", "core.preloadIndex=false"),
    # Git would start git in nested repositories, with the configuration that they have.
    *("diff.ignoreSubmodules=all", "status.submoduleSummary=false", "submodule.recurse=false"),
    *("core.pager=cat", "core.editor=false", "core.askPass=false", "credential.helper=", "gpg.program=false", "color.ui=false"),
    # A snapshot that a power cut damages would damage every later one, since the index trusts the objects that it names.
    *("core.fsync=loose-object,pack", "core.fsyncMethod=batch"),
)
# Variables of ours only: those of the user hold keys, and could name another repository, index or program.
_VARIABLES: Final[Mapping[str, str]] = {
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    # A missing object is an error; it is not fetched.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_PROTOCOL_FROM_USER": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_SSH_COMMAND": "false",
    "GIT_ASKPASS": "false",
    "GIT_EDITOR": "false",
    "GIT_PAGER": "cat",
    # Bytes of one piece of memory: a small file can claim to hold an object of any size.
    "GIT_ALLOC_LIMIT": str(1024 * 1024 * 1024),
}
_SHELL: Final = "/bin/sh"
# It makes the kernel end git when we are killed; that of busybox cannot.
_ENDS_WITH_US: Final = ("/usr/bin/setpriv", "--pdeathsig", "KILL") if os.path.realpath("/usr/bin/setpriv") == "/usr/bin/setpriv" else ()
# Files that git reads in every folder of a work tree. It waits for ever if one is a named pipe.
_READ_EVERYWHERE: Final = (".gitignore", ".gitattributes")
_PRIVATE: Final = 0o077


def find_git(root: Path, search_path: str | None = None) -> str | None:
    """The absolute path of git; `None` if there is none.

    Relative folders are not searched, nor those in `root` and in the project in which this process works, which could bring its own git.
    """
    words = (os.environ.get("PATH", os.defpath) if search_path is None else search_path).split(os.pathsep)
    projects = (root, *_working_project())
    safe = [word for word in words if Path(word).is_absolute() and not any(Path(word).resolve().is_relative_to(each) for each in projects)]
    return shutil.which("git", path=os.pathsep.join(safe))


def _working_project() -> tuple[Path, ...]:
    """The repository around the working folder, else that folder; nothing if the folder is gone, or around the home of the user."""
    try:
        here = Path.cwd()
        top = next((folder for folder in (here, *here.parents) if os.path.lexists(folder / ".git")), here)
        return tuple(folder for folder in (here, top) if not Path.home().resolve().is_relative_to(folder))
    except OSError:
        return ()


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """Ask first: what starts a sandbox ends all that is in there, which need not be in its group."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_SECONDS)
    _kill_group(process)


class ShadowGit:
    """Git commands with one git folder, whose configuration must be ours. `seconds` is the time limit of each.

    New files are for their owner alone, unless another `umask` is given; -1 is that of this process.
    """

    def __init__(self, program: str, folder: Path, seconds: float = SECONDS, umask: int = _PRIVATE) -> None:
        self._program = program
        self.folder = folder
        self._seconds = seconds
        self._umask = umask
        self._running: subprocess.Popen[bytes] | None = None
        self.is_stopped = False

    def stop(self) -> None:
        """Kill the command that runs, perhaps in another thread, and let every later one fail with `StoreError`."""
        self.is_stopped = True
        if self._running is not None:
            _kill_group(self._running)

    def run(
        self, *arguments: str, tree: Path | None = None, index: Path | None = None, data: bytes = b"", settings: tuple[str, ...] = ()
    ) -> bytes:
        """The output of a command in a work tree. Raises `StoreError` if it fails, takes too long or prints more than 256 MiB."""
        with self.stream(*arguments, tree=tree, index=index, data=data, settings=settings) as output:
            found = output.read(_LARGEST_OUTPUT + 1)
            if len(found) > _LARGEST_OUTPUT:
                raise StoreError("git printed more than 256 MiB; the folder has too many files", where=str(tree or self.folder))
            return found

    def answers(
        self, commands: tuple[tuple[str, ...], ...], tree: Path, index: Path, wrap: Wrap, *, most: int, settings: tuple[str, ...] = ()
    ) -> tuple[str | None, ...]:
        """The output of each command that only reads, without the line end; `None` for one that failed or came too late.

        They run in one shell in a sandbox, because each start of one takes 10 to 100 ms, and have `most` bytes and the seconds together;
        what comes later is cut off. None of these outputs may have a zero byte.
        """
        run = (self._program, *_flags(settings))
        script = "; ".join(f"{shlex.join((*run, *command))}; printf '\\0%s\\0' \"$?\"" for command in commands)
        environment = {**self._environment(tree, index), "GIT_OPTIONAL_LOCKS": "0"}
        try:
            process = _start(wrap((_SHELL, "-c", script)), tree, environment, subprocess.DEVNULL, subprocess.DEVNULL)
        except OSError:
            return (None,) * len(commands)
        with self._watched(process, _end_group), process:
            data = b"" if process.stdout is None else process.stdout.read(most)
            if len(data) >= most:
                _end_group(process)
        # The output of each command is followed by its exit code; that of the last one may be cut.
        parts = data.decode("utf-8", "replace").split("\0")
        found = [text.rstrip("\n") if code == "0" else None for text, code in zip(parts[::2], parts[1::2], strict=False)]
        if len(data) >= most and len(parts) % 2:
            found.append(parts[-1])
        return (*found, *(None for _ in commands))[: len(commands)]

    @contextmanager
    def stream(
        self, *arguments: str, tree: Path | None = None, index: Path | None = None, data: bytes = b"", settings: tuple[str, ...] = ()
    ) -> Iterator[IO[bytes]]:
        """The output of a command, to be read to its end. Raises `StoreError` if it fails, `GitStopped` if it takes too long."""
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as errors:
            # In a file, because a pipe could be full while git waits for its output to be read.
            given.write(data)
            given.seek(0)
            started = (*_ENDS_WITH_US, self._program, *_flags(settings), *arguments)
            pipes: list[str] = []
            try:
                process = _start(started, tree or self.folder, self._environment(tree, index), given, errors, umask=self._umask)
            except OSError as error:
                raise StoreError(f"git cannot be started: {error.strerror}", where=self._program) from error
            with self._watched(process), _unless_pipes(process, tree, self._seconds / 60, pipes), process:
                yield process.stdout if process.stdout is not None else io.BytesIO()
            if process.returncode != 0:
                errors.seek(0)
                said = errors.read(_MESSAGE_BYTES).decode("utf-8", "backslashreplace").strip().replace("\n", "; ")
                killed = process.returncode == -signal.SIGKILL
                late = "it was stopped" if self.is_stopped else f"it took more than {self._seconds:g} seconds"
                late = f"{pipes[0]} is a named pipe, which it would wait for; remove it" if pipes else late
                reason = late if killed else said or f"exit code {process.returncode}"
                failure = GitStopped if killed and not pipes else StoreError
                command = next(word for word in arguments if not word.startswith("-"))
                raise failure(f"git {command} failed: {reason}", where=str(tree or self.folder))

    @contextmanager
    def _watched(
        self, process: "subprocess.Popen[bytes]", end: Callable[["subprocess.Popen[bytes]"], None] = _kill_group
    ) -> Iterator[None]:
        """End a process after the time limit, if this is stopped, and if the block fails."""
        timer = Timer(self._seconds, end, (process,))
        timer.start()
        self._running = process
        if self.is_stopped:
            # Asked for before there was a process to kill.
            _kill_group(process)
        try:
            yield
        except BaseException:
            _kill_group(process)
            raise
        finally:
            timer.cancel()
            self._running = None

    def _environment(self, tree: Path | None, index: Path | None) -> Mapping[str, str]:
        found = {
            **_VARIABLES,
            "PATH": os.pathsep.join((str(Path(self._program).parent), os.defpath)),
            "HOME": str(self.folder),
            "XDG_CONFIG_HOME": str(self.folder),
            "GIT_DIR": str(self.folder),
            "GIT_INDEX_FILE": str(index or self.folder / "index"),
        }
        return found if tree is None else {**found, "GIT_WORK_TREE": str(tree)}


@contextmanager
def _unless_pipes(process: "subprocess.Popen[bytes]", tree: Path | None, seconds: float, pipes: list[str]) -> Iterator[None]:
    """Kill a process that takes longer if there is a named pipe in the work tree for which git waits; it is added to `pipes`."""

    def look() -> None:
        for folder, _, names in () if tree is None else os.walk(tree):
            if process.returncode is not None:
                return
            found = (os.path.join(folder, name) for name in _READ_EVERYWHERE if name in names)  # noqa: PTH118 - in every folder
            with suppress(OSError):
                pipes.extend(path for path in found if stat.S_ISFIFO(os.lstat(path).st_mode))
            if pipes:
                _kill_group(process)
                return

    timer = Timer(seconds, look)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _flags(settings: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for setting in (*_SETTINGS, *settings) for word in ("-c", setting))


def _start(
    arguments: tuple[str, ...],
    cwd: Path,
    environment: Mapping[str, str],
    given: IO[bytes] | int,
    errors: IO[bytes] | int,
    *,
    umask: int = -1,
) -> "subprocess.Popen[bytes]":
    """Start git in a group of its own. Raises `OSError`."""
    return subprocess.Popen(  # noqa: S603  # a fixed program with arguments of ours
        arguments, cwd=cwd, env=environment, stdin=given, stdout=subprocess.PIPE, stderr=errors, start_new_session=True, umask=umask
    )


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


_LARGEST_POINTER: Final = 4_096
_LARGEST_CONFIG: Final = 1_000_000
_LARGEST_LIST: Final = 64 * 1024 * 1024
_HEAD: Final = re.compile(rb"ref: refs/[^\x00-\x20\x7f]+\n?|[0-9a-f]{40,64}\n?")
_SHA256: Final = re.compile(rb"^\s*objectformat\s*=\s*\"?sha256\"?\s*$", re.IGNORECASE | re.MULTILINE)
# What a file system can do, as `git init` found out. These are the only values that are taken from a configuration.
_FILE_SYSTEM: Final = re.compile(
    rb"^\s*(filemode|symlinks|ignorecase|precomposeunicode)\s*=\s*(true|false)\s*$", re.IGNORECASE | re.MULTILINE
)


class Repository(NamedTuple):
    """A repository of the user: its work tree, its git folder, and the folder with the objects and names, which work trees share."""

    tree: Path
    folder: Path
    shared: Path

    @property
    def branch(self) -> str:
        """The branch that is checked out; empty if it is none, or its name is kept in a table, where HEAD names an invalid one."""
        head = bounded_file(self.folder / "HEAD", _LARGEST_POINTER).decode("utf-8", "replace")
        return "" if head.startswith("ref: refs/heads/.invalid") or not head.startswith("ref: refs/heads/") else head[16:].rstrip("\n")


class BorrowedGit(NamedTuple):
    """Git on a repository of the user: reading commands, and `run` for those that add an object and a name."""

    git: ShadowGit
    repository: Repository
    settings: tuple[str, ...]

    def run(self, *arguments: str, data: bytes = b"", settings: tuple[str, ...] = ()) -> bytes:
        """The output of a command. Raises `StoreError` if it fails, takes too long or prints too much."""
        given = (*self.settings, *settings)
        return self.git.run("--no-optional-locks", *arguments, tree=self.repository.tree, index=self._index, data=data, settings=given)

    def answers(self, *commands: tuple[str, ...], wrap: Wrap, most: int) -> tuple[str | None, ...]:
        """The output of each command in a sandbox; `None` for one that failed."""
        return self.git.answers(commands, self.repository.tree, self._index, wrap, most=most, settings=self.settings)

    @property
    def _index(self) -> Path:
        return self.repository.folder / "index"


def find_repository(folder: Path) -> Repository | None:
    """The repository that holds a folder. `None` if there is none.

    Raises `StoreError` for one that is not read, since it leads out of its own folder: by links, by other object folders, or by a file
    that names a git folder which does not name it in turn. Such files come with an archive, or from a command in a sandbox.
    """
    for place in (folder, *folder.parents):
        entry = place / ".git"
        try:
            facts = entry.lstat()
        except (OSError, ValueError):
            continue
        if stat.S_ISDIR(facts.st_mode):
            if not os.path.lexists(entry / "HEAD"):
                # Git goes on above a folder that only has the name.
                continue
            return _plain(Repository(place, entry, entry))
        if stat.S_ISREG(facts.st_mode):
            return _plain(_linked(entry))
        raise _refused(entry, "is a link")
    return None


@contextmanager
def borrowed_git(folder: Path, *, seconds: float, temp: Path | None = None) -> Iterator[BorrowedGit | None]:
    """Git for the repository that holds a folder; `None` if there is no repository or no git. Raises `StoreError` as `find_repository`.

    Git gets a new git folder with a configuration of ours. Settings, hooks, attributes, remotes, replaced objects and work trees that the
    repository configures are in its own git folder, which git does not look into. `temp` is where the new folder is made.
    """
    root = folder.resolve()
    repository = find_repository(root)
    program = None if repository is None else find_git(repository.tree)
    if repository is None or program is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="pal-git-", dir=temp) as name:
        # A command in the sandbox may put a link in its place at any moment: what is written goes to the folder that is open here.
        place = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            settings = _borrow(repository, place)
        finally:
            os.close(place)
        yield BorrowedGit(ShadowGit(program, Path(name), seconds, umask=-1), repository, settings)


def bounded_file(path: Path, most: int) -> bytes:
    """The content of a regular file that is no link; empty if there is none, or it is larger."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            data = file.read(most + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except (OSError, ValueError):
        return b""
    return data if len(data) <= most else b""


def _refused(place: Path, why: str) -> StoreError:
    return StoreError(f"the repository is not read: this {why}", where=str(place))


def _linked(entry: Path) -> Repository:
    """The repository of a work tree or a submodule, whose `.git` is a file."""
    folder = _path_named_in(entry, "gitdir: ")
    if folder is None:
        raise _refused(entry, "does not name a git folder")
    if _path_named_in(folder / "gitdir", "") == entry:
        shared = _path_named_in(folder / "commondir", "")
        if shared is not None and folder.parent == shared / "worktrees":
            return Repository(entry.parent, folder, shared)
    # The git folder of a submodule lies in the one of the repository around it.
    if any((parent / ".git" / "modules") in folder.parents for parent in entry.parent.parents):
        return Repository(entry.parent, folder, folder)
    raise _refused(entry, "names a git folder that does not belong to it")


def _path_named_in(file: Path, prefix: str) -> Path | None:
    text = os.fsdecode(bounded_file(file, _LARGEST_POINTER)).rstrip("\n")
    return (file.parent / text.removeprefix(prefix)).resolve() if text.startswith(prefix) and text and "\0" not in text else None


def _plain(found: Repository) -> Repository:
    """The same repository. Raises `StoreError` if one of its parts leads elsewhere."""
    if found.folder == found.shared and os.path.lexists(found.folder / "commondir"):
        raise _refused(found.folder / "commondir", "names another git folder")
    objects, names = found.shared / "objects", found.shared / "refs"
    for place in (found.folder, found.shared, objects, names):
        if place.is_symlink() or not place.is_dir():
            raise _refused(place, "is not a folder")
    for name in ("alternates", "http-alternates"):
        if os.path.lexists(objects / "info" / name):
            raise _refused(objects / "info" / name, "names objects of other repositories")
    # Git writes there for `notes`.
    for folder in (objects, names):
        with os.scandir(folder) as entries:
            if linked := next((entry.path for entry in entries if entry.is_symlink()), None):
                raise _refused(Path(linked), "is a link")
    if waiting := next(filter(_is_no_file, _entries_below(names)), None):
        raise _refused(Path(waiting.path), "is not a regular file, and git would wait for it")
    return found


def _entries_below(top: Path) -> Iterator["os.DirEntry[str]"]:
    """Everything below a folder but folders; links are not followed."""
    folders = [str(top)]
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    yield entry


def _is_no_file(entry: "os.DirEntry[str]") -> bool:
    """Whether reading an entry may wait for ever: it is a named pipe or the like, or a link to one."""
    return not entry.is_file() and (not entry.is_symlink() or Path(entry.path).exists())


def _borrow(found: Repository, place: int) -> tuple[str, ...]:
    """Fill a new git folder that is open, and return the settings that describe the file system."""
    config = bounded_file(found.shared / "config", _LARGEST_CONFIG)
    tables = found.shared / "reftable"
    extensions = [("objectformat", "sha256")] * bool(_SHA256.search(config)) + [("refstorage", "reftable")] * tables.is_dir()
    lines = [f"[core]\nrepositoryformatversion = {int(bool(extensions))}\nbare = false\n[extensions]\n"]
    _put(place, "config", "".join((*lines, *(f"{name} = {value}\n" for name, value in extensions))).encode())
    head = bounded_file(found.folder / "HEAD", _LARGEST_POINTER)
    if not _HEAD.fullmatch(head):
        raise _refused(found.folder / "HEAD", "does not name a commit")
    _put(place, "HEAD", head)
    for name in ("packed-refs", "shallow"):
        if data := bounded_file(found.shared / name, _LARGEST_LIST):
            _put(place, name, data)
    os.mkdir("info", 0o700, dir_fd=place)
    info = os.open("info", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
    try:
        _put(info, "exclude", bounded_file(found.shared / "info" / "exclude", _LARGEST_CONFIG) + b"\n" + _user_excludes())
    finally:
        os.close(info)
    for source in (found.shared / "objects", found.shared / "refs", *([tables] if tables.is_dir() and not tables.is_symlink() else [])):
        os.symlink(source, source.name, dir_fd=place)
    return tuple(f"core.{name.decode()}={value.decode()}" for name, value in _FILE_SYSTEM.findall(config))


def _put(folder: int, name: str, data: bytes) -> None:
    """Write a new file in a folder that is open."""
    with os.fdopen(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder), "wb") as file:
        file.write(data)


def _user_excludes() -> bytes:
    """The ignore rules that the user has for all repositories, at their usual place."""
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return bounded_file(Path(folder) / "git" / "ignore", _LARGEST_CONFIG)
