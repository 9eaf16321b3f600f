"""A world in memory, for sources: files, links, pages, git and a date that a test controls."""

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from palimpsest.agent.session import Session
from palimpsest.coding.tools.globs import glob_expression
from palimpsest.core.events import ContextStated, Event
from palimpsest.core.plans import complete
from palimpsest.sources.source import FolderEntry, GitFacts, SessionState, World, observe, reconcile

DATE = "2026-11-16"
STATE = SessionState(
    cwd="/repo",
    home="/home/u",
    platform="linux",
    os_version="Linux 6.1",
    shell_name="bash",
    timezone="Europe/Berlin",
    model="gpt-5.2",
    window=200_000,
)


@dataclass(frozen=True)
class MemoryWorld:
    """Files by absolute path, links by where they lead, pages by URL; a folder exists if a file lies below it."""

    state: SessionState = STATE
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    pages: Mapping[str, str] = field(default_factory=dict)
    unfetched: Mapping[str, str] = field(default_factory=dict)
    repository: GitFacts | None = None
    date: str = DATE
    asked: list[str] = field(default_factory=list)

    def with_state(self, **changes: Any) -> "MemoryWorld":
        """The same world with another state."""
        return replace(self, state=structs.replace(self.state, **changes))

    def with_files(self, **files: str) -> "MemoryWorld":
        """The same world with more files in `/repo`, whose names are written with `_` for `.`."""
        return replace(self, files={**self.files, **{f"/repo/{name.replace('_', '.')}": text for name, text in files.items()}})

    def _followed(self, path: str) -> str:
        path = posixpath.normpath(path)
        for link, target in self.links.items():
            if path == link or path.startswith(f"{link}/"):
                return self._followed(target + path[len(link) :])
        return path

    def real_path(self, path: str) -> str | None:
        real = self._followed(path)
        exists = real in self.files or any(name.startswith(real.rstrip("/") + "/") for name in self.files)
        return real if exists or real in {self.state.cwd, self.state.home} else None

    def read(self, path: str, limit: int) -> bytes | None:
        self.asked.append(path)
        found = self.files.get(self._followed(path))
        return None if found is None else (found.encode() if isinstance(found, str) else found)[:limit]

    def entries(self, folder: str) -> tuple[FolderEntry, ...]:
        top = self._followed(folder).rstrip("/") + "/"
        below = {name[len(top) :] for name in self.files if name.startswith(top)}
        return tuple(sorted({FolderEntry(name.partition("/")[0], "/" in name) for name in below}))

    def glob(self, folder: str, pattern: str) -> tuple[str, ...]:
        top = self._followed(folder).rstrip("/") + "/"
        wanted = re.compile(glob_expression(pattern))
        return tuple(sorted(name for name in self.files if name.startswith(top) and wanted.fullmatch(name[len(top) :])))

    def fetch(self, url: str, limit: int) -> str | None:
        return self.pages.get(url)

    def git(self) -> GitFacts | None:
        return self.repository

    def today(self) -> str:
        return self.date


async def state_context(session: Session, world: World) -> Event | None:
    """Record the statements that make the view current, as an agent does before a turn; `None` if the view is current."""
    observations = await session.environment.offload(lambda: observe(session.profile.sources, world))
    stated = reconcile(session.log.view, session.profile.sources, observations)
    return None if stated is None else session.log.append(stated)


def state(session: Session, world: World) -> Event | None:
    """Let a session state its context, without an event loop."""
    return complete(state_context(session, world))


def texts(event: Event | None) -> dict[str, str]:
    """What an event states, by source, the head first; empty without an event."""
    if event is None:
        return {}
    assert isinstance(event.body, ContextStated)
    return {each.source: each.text for each in (*(event.body.head or ()), *event.body.items)}
