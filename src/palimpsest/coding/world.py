"""The world that sources observe, such as files, git, clock and web pages, and the saved results that an agent may read."""

import ipaddress
import os
import platform
import re
import socket
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

from msgspec import structs

from palimpsest.agent.business import BusinessState
from palimpsest.agent.children import ChildAgents
from palimpsest.agent.context import tasks_are_due
from palimpsest.agent.session import Session
from palimpsest.agent.tool import AgentTool
from palimpsest.agent.tool_calls import DeferredTools
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.gatekeeper import Gatekeeper, LiveMode
from palimpsest.coding.mcp_servers import McpServers
from palimpsest.coding.settings import CodingSettings
from palimpsest.coding.tools.globs import glob_expression
from palimpsest.coding.tools.sandbox import Area, Sandbox
from palimpsest.coding.tools.search import SKIPPED
from palimpsest.coding.tools.skills import FindsSkills, KnownSkill
from palimpsest.coding.tools.tasks import TODOS, TaskGraph, rendered, todo_list
from palimpsest.core.errors import PalimpsestError, StoreError
from palimpsest.core.events import Event, TaskChanged
from palimpsest.core.items import EMPTY_MAPPING, Part, text_of
from palimpsest.core.log import Log
from palimpsest.core.ports import Clock, SessionArchive
from palimpsest.core.reading import LogReader
from palimpsest.memory.session_memory import SessionMemory
from palimpsest.sources.instructions import nested_instructions
from palimpsest.sources.source import FolderEntry, GitFacts, NetworkPolicy, SessionState, folded_at
from palimpsest.stores.sessions import ResultFiles
from palimpsest.stores.shadow_git import Wrap, borrowed_git, bounded_file

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
    hides: Callable[[str], bool] = field(kw_only=True, repr=False, compare=False)
    wrap: Wrap = field(kw_only=True, repr=False, compare=False)
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


def unconfined(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command as it is, for a world whose git runs in no sandbox."""
    return arguments


def git_facts(cwd: str, wrap: Wrap, temp: Path | None = None) -> GitFacts | None:
    """Return the state of the repository that holds a folder; `None` if there is none, or no git.

    What git does not say in time, or of a repository that leads out of its folder, is stated as unknown.
    """
    if not any(os.path.lexists(folder / ".git") for folder in (Path(cwd).resolve(), *Path(cwd).resolve().parents)):
        return None
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
                    return _page_text(response.iter_bytes(), limit, deadline)
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        return _NoPage(" ".join(str(error).split())[:_LINE_CHARS] or type(error).__name__)
    return _NoPage(f"it was redirected more than {_REDIRECTS} times")


def _page_text(chunks: Iterator[bytes], limit: int, deadline: float) -> str | _NoPage:
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


class ContextParts(NamedTuple):
    """What of a session its context states beside its project: what confines commands, and the parts whose state changes."""

    sandbox: Sandbox
    area: Area
    mode: LiveMode
    gate: Gatekeeper
    tasks: TaskGraph
    deferred: DeferredTools
    servers: McpServers
    children: ChildAgents
    business: BusinessState | None = None


class WorldNow:
    """The world of a session as it is when it is called: files, git, date, tasks, and what commands may do.

    `fixed_texts` are stated by the sources of their keys as long as the session is open; `texts` returns those that change, such as notes.
    """

    def __init__(
        self,
        session: Session,
        workspace: Workspace,
        settings: CodingSettings,
        around: ContextParts,
        *,
        fixed_texts: Mapping[str, str] = EMPTY_MAPPING,
        texts: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._session = session
        self._workspace = workspace
        self._root = workspace.root
        self._settings = settings
        self._around = around
        self._mode, self._tasks = around.mode, around.tasks
        self._wrap = around.sandbox.wrap(around.area)
        self._domains = around.gate.domains
        self._world: LocalWorld | None = None
        self._head: str | None = None
        self._texts = texts
        self._last_texts: Mapping[str, str] = {}
        self._fixed_texts = fixed_texts
        self._todo_event: tuple[Event, ...] = ()
        self._todos_read = -1

    def __call__(self) -> LocalWorld:
        """Return the world for one observation."""
        known: dict[str, Any] = {
            "sandbox": "workspace-write" if self._around.sandbox.confines else "full-access",
            "network": self._network(),
            "folders": tuple(folder.as_posix() for folder in self._workspace.extra),
            "writable": (self._root.as_posix(), *(folder.as_posix() for folder in self._settings.folders)),
            "tasks": self._tasks.open_lines(),
            "mcp": self._around.servers.instructions,
            "agents": self._around.children.roles(),
            "subagents": self._around.children.live(),
            "texts": self._texts_now(),
            **self._changing(),
        }
        state = session_state(self._session, self._root, **known)
        clock = self._session.environment.clock
        # Asking git starts processes; while its statement is visible, only another branch or commit is worth stating.
        head, previous = git_head(self._root), self._head
        same = "git_status" in self._session.log.view.facts and head is not None and head == previous
        world = (
            LocalWorld(state, clock, wrap=self._wrap, temp=self._around.area.temp, hides=self._around.gate.hides)
            if self._world is None
            else self._world.observing(state, same_commit=same)
        )
        self._world, self._head = world, head
        return world

    def _network(self) -> NetworkPolicy | None:
        """What the network policy of the user is: that of the sandbox, and the domains of rules; `None` without either."""
        allowed, denied = self._domains
        if not (self._around.sandbox.confines or allowed or denied):
            return None
        return NetworkPolicy(self._settings.network or not self._around.sandbox.confines, allowed, denied)

    def _texts_now(self) -> Mapping[str, str]:
        """Return the texts for sources; the last ones if they cannot be read now, so that nothing is concluded from that."""
        with suppress(PalimpsestError):
            self._last_texts = self._texts()
        return {**self._last_texts, **self._fixed_texts}

    def renewed(self) -> LocalWorld | None:
        """Return the world of the last call with what the session itself changed since, and without asking git again; `None` before it."""
        # Here and not where the user changes it, for that may be in the middle of a model call.
        self._mode.record()
        if self._world is None:
            return None
        # Reading the tasks again is needed only after a fold.
        tasks: dict[str, Any] = {"tasks": self._tasks.open_lines()} if tasks_are_due(self._session.log.view) else {}
        return replace(self._world, state=structs.replace(self._world.state, **self._changing(), **tasks))

    def _changing(self) -> dict[str, Any]:
        return {
            "approval": self._mode.current,
            # The other modes are about approvals only.
            "mode": "plan" if self._mode.current == "plan" else self._mode.collaboration,
            "personality": self._session.profile.personality,
            "tools": self._session.tools,
            "deferred": self._around.deferred.declarations,
            "business": None if self._around.business is None else self._around.business.value(),
            "folded": folded_at(self._session.log.view) >= 0,
            "todos": self._todo_lines() if folded_at(self._session.log.view) >= 0 else (),
        }

    def _todo_lines(self) -> tuple[str, ...]:
        """Return the todo list, if it has open items and no visible result shows it; that of another program by its open items."""
        evidence, view = self._session.derived.evidence.value(), self._session.log.view
        numbered = len(evidence.numbered)
        listed = evidence.tasks[: len(evidence.tasks) - numbered]
        foreign = evidence.tasks[len(listed) :]
        # Tasks with numbers are those of a graph, which has a source of its own where its files are here.
        others = tuple(f"[ ] {task}" for task in foreign) if foreign and not self._tasks.files.load() else ()
        if not listed:
            return others
        own = todo_list(self._todo_events())
        is_own = tuple(dict.fromkeys(item.text for item in own if item.status != "completed")) == listed
        text = rendered(own) if is_own else "\n".join(f"[ ] {task}" for task in listed)
        if any(item.kind == "result" and item.mask is None and text_of(item.content) == text for item in view.items):
            return others
        return (*text.splitlines(), *others)

    def _todo_events(self) -> tuple[Event, ...]:
        """Return the newest event with a todo list, if there is one. What was read before is not read again."""
        log = self._session.log
        for event in log.reader.run(self._todos_read + 1, log.tip):
            if isinstance(event.body, TaskChanged) and event.body.task == TODOS:
                self._todo_event = (event,)
        self._todos_read = log.tip
        return self._todo_event

    def attached(self, tool: AgentTool, paths: tuple[str, ...]) -> tuple[Part, ...]:
        """Return the instruction files of the folders of files that were read, if the view does not show them yet."""
        if tool.kind != "reads" or self._world is None:
            return ()
        view, world = self._session.log.view, self._world
        return tuple(text for path in paths for text in nested_instructions(view, world, (self._root / path).as_posix()))


def skills_of(session: Session, root: Path, hides: Callable[[str], bool]) -> FindsSkills:
    """Return what finds the skills of a session: those that its profile lists, so that what is listed can be loaded."""

    def find() -> tuple[KnownSkill, ...]:
        world = LocalWorld(session_state(session, root), session.environment.clock, hides=hides, wrap=unconfined)
        return tuple(KnownSkill(skill.name, skill.description, skill.path) for skill in session.profile.skills(world))

    return find


# As in `memory.work_store`, which a start without summaries need not load.
_SUMMARIES = "rollouts"


def shelf_of(log: Log, store: SessionArchive, memory: Callable[[], tuple[Path, ...]]) -> Callable[[], tuple[Path, ...]]:
    """Return a function for `Workspace.shelf`; `memory` returns the folders of memory on it.

    A fork shows what its bases have hidden, so theirs is on it; no other session's is.
    """

    def shelf() -> tuple[Path, ...]:
        sessions = (*_with_bases(log), *(child.session for child in log.children))
        return (*(place for session in dict.fromkeys(sessions) for place in _places(store, session)), *memory())

    return shelf


def _with_bases(log: Log) -> Iterator[str]:
    with log.locked():
        reader: LogReader | None = log.reader
        while reader is not None:
            yield reader.session
            reader = reader.base


def _places(store: SessionArchive, session: str) -> tuple[Path, ...]:
    files = store.result_files(session)
    if not isinstance(files, ResultFiles):
        return ()
    return (files.folder.resolve(), *(() if files.log is None else (files.log.resolve(),)))


def memory_shelf(memory: SessionMemory | None) -> tuple[Path, ...]:
    """Return folders that exist; none without memory, and none that is a link."""
    if memory is None or memory.home.local_folder is None or not memory.has_summaries():
        return ()
    folder, root = memory.home.local_folder / "memory", memory.session.profile.notes.root
    scopes = (notebook.scope for notebook in memory.memories.notebooks) if not root else ()
    places = (folder / root,) if root else tuple(folder / scope / _SUMMARIES for scope in scopes)
    return tuple(place.resolve() for place in places if place.is_dir() and not place.is_symlink())
