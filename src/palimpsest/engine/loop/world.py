"""The world as sources observe it: real files, git, the clock and web pages, each bounded in size and time."""

import ipaddress
import os
import platform
import re
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any, Final
from urllib.parse import SplitResult, urljoin, urlsplit

from palimpsest.core.errors import StoreError
from palimpsest.core.ports import Clock
from palimpsest.engine.session import Session
from palimpsest.sources.source import FolderEntry, GitFacts, SessionState
from palimpsest.stores.snapshots.git import Wrap
from palimpsest.tools.files.globs import glob_expression
from palimpsest.tools.files.search import SKIPPED

MOST_ENTRIES: Final = 20_000
MOST_MATCHES: Final = 500
FETCH_SECONDS: Final = 5.0
GIT_SECONDS: Final = 3.0
_GIT_BYTES: Final = 64 * 1024
_COMMITS: Final = 5
_REDIRECTS: Final = 3
_REDIRECTED: Final = frozenset({301, 302, 303, 307, 308})
_MAIN_REFS: Final = ("refs/remotes/origin/HEAD", "refs/heads/main", "refs/heads/master")
_REFS: Final = ("for-each-ref", "--format=%(refname) %(symref)", *_MAIN_REFS)
_LOG: Final = ("log", f"-{_COMMITS}", "--format=%h %s")
# What is in nested repositories is not asked: git would do it with their own configuration.
_STATUS: Final = ("status", "--porcelain", "--ignore-submodules=all")
_STATUS_LINES: Final = 200
_LINE_CHARS: Final = 200
_HEAD_BYTES: Final = 4_096
_UNREAD: Final = "(unknown: git did not answer, or the repository leads out of its folder)"


@dataclass(frozen=True, slots=True)
class LocalWorld:
    """The world of this computer. `observing` returns it with the state of now and without what git said before.

    private_pages: whether pages of private addresses may be fetched, such as those of a server on this computer.
    fetch_seconds: how long a page may take in all.
    pages: the text of each page that was fetched in this session, `None` if it failed, so that a dead one costs its time once;
        `unfetched` has the reason of each that failed.
    hides: whether a rule of the user restricts reading a file, so that nothing may state it.
    wrap: the arguments that run git in the sandbox of the session; `temp` is a folder that is visible in there.
    """

    state: SessionState
    clock: Clock
    private_pages: bool = False
    fetch_seconds: float = FETCH_SECONDS
    pages: dict[str, str | None] = field(default_factory=dict)
    unfetched: dict[str, str] = field(default_factory=dict)
    hides: Callable[[str], bool] = field(default=lambda _: False, repr=False, compare=False)
    wrap: Wrap = field(default=lambda arguments: arguments, repr=False, compare=False)
    temp: Path | None = field(default=None, repr=False, compare=False)
    _git: list[GitFacts | None] = field(default_factory=list, repr=False)

    def observing(self, state: SessionState, *, same_commit: bool = False) -> "LocalWorld":
        """Return this world for one more observation; pages stay known, and the state of git too if nothing was committed or switched."""
        return replace(self, state=state, _git=self._git if same_commit else [])

    def read(self, path: str, limit: int) -> bytes | None:
        """Return at most the first `limit` bytes of a regular file; `None` if there is none that can and may be read."""
        if self.hides(path):
            return None
        try:
            # Opening a pipe would wait for its other end.
            with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
                return file.read(limit) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
        except (OSError, ValueError):
            return None

    def entries(self, folder: str) -> tuple[FolderEntry, ...]:
        """Return at most 20,000 entries of a folder, sorted by name; empty if there is no such folder."""
        found: list[FolderEntry] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    found.append(FolderEntry(entry.name, entry.is_dir(follow_symlinks=False)))
                    if len(found) >= MOST_ENTRIES:
                        break
        except (OSError, ValueError):
            return ()
        return tuple(sorted(found))

    def real_path(self, path: str) -> str | None:
        """Return the absolute path with links followed; `None` if nothing is there."""
        try:
            return Path(path).resolve(strict=True).as_posix()
        except (OSError, RuntimeError, ValueError):
            return None

    def glob(self, folder: str, pattern: str) -> tuple[str, ...]:
        """Return the files below a folder that match a pattern, sorted; at most 500, among the first 20,000 entries."""
        try:
            wanted = re.compile(glob_expression(pattern.removeprefix("./")))
        except re.error:
            return ()
        depth = None if "**" in pattern else pattern.count("/")
        top = Path(folder)
        names = (path for path in _files(top, depth) if wanted.fullmatch(path.relative_to(top).as_posix()))
        return tuple(sorted(path.as_posix() for path in names))[:MOST_MATCHES]

    def today(self) -> str:
        """Return the local date as `YYYY-MM-DD`."""
        return datetime.fromtimestamp(self.clock.now() / 1_000, UTC).astimezone().date().isoformat()

    def git(self) -> GitFacts | None:
        """Return branch, status and recent commits; `None` outside of a repository. Asked once for each observation."""
        if not self._git:
            self._git.append(git_facts(self.state.cwd, self.wrap, self.temp))
        return self._git[0]

    def fetch(self, url: str, limit: int) -> str | None:
        """Return at most the first `limit` bytes of a page; `None` if it fails, is private, or takes more than 5 seconds."""
        if url not in self.pages:
            page = _within(self.fetch_seconds, lambda: _page(url, limit, private=self.private_pages))
            self.pages[url] = None if isinstance(page, _NoPage) else page
            if isinstance(page, _NoPage):
                self.unfetched[url] = page.why
        return self.pages[url]


@dataclass(frozen=True, slots=True)
class _NoPage:
    """Why there is no text of a page."""

    why: str


def _files(top: Path, depth: int | None) -> Iterator[Path]:
    seen = 0
    for folder, folders, names in os.walk(top):
        below = len(Path(folder).relative_to(top).parts)
        folders[:] = sorted(name for name in folders if name not in SKIPPED) if depth is None or below < depth else []
        for name in sorted(names):
            seen += 1
            if seen > MOST_ENTRIES:
                return
            yield Path(folder) / name


def git_facts(cwd: str, wrap: Wrap = lambda arguments: arguments, temp: Path | None = None) -> GitFacts | None:
    """Return the state of the repository that holds a folder; `None` if there is none, or no git.

    What git does not say in time, or of a repository that leads out of its folder, is stated as unknown.
    """
    if not any(os.path.lexists(folder / ".git") for folder in (Path(cwd).resolve(), *Path(cwd).resolve().parents)):
        return None
    from palimpsest.stores.snapshots.repository import borrowed_git

    try:
        with borrowed_git(Path(cwd), seconds=GIT_SECONDS, temp=temp) as git:
            if git is None:
                return None
            refs, commits, changed = git.answers(_REFS, _LOG, _STATUS, wrap=wrap, most=_GIT_BYTES)
            branch = git.repository.branch
    except (OSError, RuntimeError, StoreError):
        branch, refs, commits, changed = "(unknown)", None, None, None
    return GitFacts(
        branch,
        _main_branch(refs or ""),
        status=tuple(line[:_LINE_CHARS] for line in (_UNREAD if changed is None else changed).splitlines()[:_STATUS_LINES]),
        commits=tuple(line[:_LINE_CHARS] for line in (commits or "").splitlines()),
    )


def git_head(folder: Path) -> str | None:
    """Return what the HEAD of the repository that holds a folder says, read from its file; `None` if there is none that can be read."""
    for parent in (folder, *folder.parents):
        place = parent / ".git"
        try:
            if place.is_dir():
                from palimpsest.stores.snapshots.repository import bounded_file

                return bounded_file(place / "HEAD", _HEAD_BYTES).decode("utf-8", "replace") or None
            if place.exists():
                return None
        except OSError:
            return None
    return None


def _main_branch(refs: str) -> str:
    """Return the main branch among lines of ref names and their targets: that of the remote, else the first usual name."""
    found = dict(line.partition(" ")[::2] for line in refs.splitlines())
    remote = found.get(_MAIN_REFS[0], "")
    names = [ref.rpartition("/")[2] for ref in _MAIN_REFS[1:] if ref in found]
    return remote.removeprefix("refs/remotes/origin/") if remote else next(iter(names), "")


def _within(seconds: float, work: Callable[[], str | _NoPage]) -> str | _NoPage:
    """Return the result of work if it takes at most `seconds`, since a name is looked up without a limit of its own."""
    results: list[str | _NoPage] = []
    thread = Thread(target=lambda: results.append(work()), daemon=True)
    thread.start()
    thread.join(seconds)
    return results[0] if results else _NoPage(f"it took more than {seconds:g} seconds")


def _page(url: str, limit: int, *, private: bool) -> str | _NoPage:
    # Imported here because most sessions fetch nothing, and it takes longer than everything else at the start.
    import httpx

    deadline = monotonic() + FETCH_SECONDS
    try:
        with httpx.Client(timeout=FETCH_SECONDS, trust_env=False, follow_redirects=False) as client:
            for _ in range(_REDIRECTS + 1):
                parts = urlsplit(url)
                if parts.scheme not in {"http", "https"} or not parts.hostname:
                    return _NoPage("it is not an address of the web")
                address = _address(parts, private=private)
                if address is None:
                    return _NoPage("it lies in a private network")
                # The request goes to the address that was checked, so that the name cannot lead elsewhere meanwhile.
                target = httpx.URL(url).copy_with(host=address)
                extensions: dict[str, Any] = {"sni_hostname": parts.hostname or ""}
                with client.stream("GET", target, headers={"Host": _host(parts)}, extensions=extensions) as response:
                    if response.status_code in _REDIRECTED and "location" in response.headers:
                        url = urljoin(url, response.headers["location"])
                        continue
                    if not response.is_success:
                        return _NoPage(f"the server answered {response.status_code}")
                    return _text(response.iter_bytes(), limit, deadline)
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        return _NoPage(" ".join(str(error).split())[:_LINE_CHARS] or type(error).__name__)
    return _NoPage(f"it was redirected more than {_REDIRECTS} times")


def _text(chunks: Iterator[bytes], limit: int, deadline: float) -> str | _NoPage:
    data = b""
    for chunk in chunks:
        data += chunk[: limit - len(data)]
        if len(data) >= limit:
            break
        if monotonic() > deadline:
            return _NoPage(f"it took more than {FETCH_SECONDS:g} seconds")
    return data.decode("utf-8", "replace")


def _host(parts: SplitResult) -> str:
    host = parts.hostname or ""
    name = f"[{host}]" if ":" in host else host
    return name if parts.port is None else f"{name}:{parts.port}"


def _address(parts: SplitResult, *, private: bool) -> str | None:
    """Return an address of the host; `None` if it has none, or any of its addresses is private and that is not allowed."""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    found = [str(entry[4][0]) for entry in socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)]
    if not found or (not private and not all(ipaddress.ip_address(name.partition("%")[0]).is_global for name in found)):
        return None
    return found[0]


def session_state(session: Session, cwd: Path, **known: Any) -> SessionState:
    """Return the state of a session in a folder of this computer; `known` are further fields of `SessionState`, which come first.

    No variable of the environment is among it but the name of the shell and the timezone.
    """
    view = session.log.view
    found: dict[str, Any] = {
        "cwd": cwd.resolve().as_posix(),
        "home": Path.home().as_posix(),
        "platform": sys.platform,
        "os_version": f"{platform.system()} {platform.release()}",
        "shell_name": Path(os.environ.get("SHELL", "sh")).name,
        "timezone": local_timezone(),
        "model": session.card.name,
        "window": session.card.window,
        "mode": view.mode,
        "tools": session.tools,
    }
    return SessionState(**found | known)


def local_timezone() -> str:
    """Return the IANA name of the local timezone, else its abbreviation."""
    named = os.environ.get("TZ", "").removeprefix(":")
    if re.fullmatch(r"[A-Za-z_+-]+(?:/[A-Za-z0-9_+-]+){0,2}", named):
        return named
    try:
        target = Path("/etc/localtime").readlink().as_posix()
    except OSError:
        target = ""
    _, marker, name = target.partition("zoneinfo/")
    return name if marker else datetime.now(UTC).astimezone().tzname() or "UTC"
