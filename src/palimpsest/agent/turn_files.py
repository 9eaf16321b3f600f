"""Snapshots around a turn: before its first tool that may change files, and when it ends."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final, Literal

from palimpsest.agent.session import Session
from palimpsest.agent.tool import AgentTool
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.events import Failed, FilesSnapshotted
from palimpsest.core.items import ToolCall
from palimpsest.stores.home import Home
from palimpsest.stores.shadow_git import Shadow
from palimpsest.stores.snapshots import LIMITS, LeftOut, SnapshotLimits, TakenSnapshot, take_snapshot

SNAPSHOT: Final = "file snapshot"
"""What a `Failed` event names if the state of the files could not be kept."""
MOST_NAMED: Final = 20
_LONGEST_NAME: Final = 300
# Ignored files come last, because there are many of them and the user has named them.
_NAMED_FIRST: Final = ("large", "nested", "unreadable", "ignored", "folder")


def always_changes(tool: AgentTool, call: ToolCall) -> bool:
    """Whether a call may change files: by the kind of its tool."""
    return tool.kind in ("edits", "runs")


async def nothing_to_settle() -> None:
    """Do nothing."""


def turn_files(
    home: Home,
    folders: tuple[Path, ...],
    limits: SnapshotLimits,
    may_change: Callable[[AgentTool, ToolCall], bool],
    settle: Callable[[], Awaitable[None]] = nothing_to_settle,
) -> tuple["TurnSnapshots", tuple[str, ...]]:
    """What keeps the state of some folders around the turns of a session, and what the user should know: folders that cannot be kept.

    `settle` ends what would still change files after the turn. A home in memory has no place for snapshots, so it keeps nothing.
    """
    shadows: list[Shadow] = []
    notices: list[str] = []
    place = home.local_folder
    if place is None:
        return TurnSnapshots(), ()
    for folder in folders:
        if any(folder.is_relative_to(shadow.root) for shadow in shadows):
            continue
        try:
            shadows.append(Shadow(place, folder))
        except BadInput as error:
            notices.append(f"Changes of files cannot be undone in {error.where}: {error.message}.")
    return TurnSnapshots(tuple(shadows), limits, may_change, settle if shadows else nothing_to_settle), tuple(notices)


class TurnSnapshots:
    """Keeps the state of each folder before and after every turn that may change files, and records both; without folders nothing.

    A snapshot that fails is recorded and does not stop the turn; the folder then gets none for the rest of the turn. `may_change` tells
    calls that change nothing, such as commands that only read. `settle` is awaited before the state after a turn is kept.
    """

    def __init__(
        self,
        shadows: tuple[Shadow, ...] = (),
        limits: SnapshotLimits = LIMITS,
        may_change: Callable[[AgentTool, ToolCall], bool] = always_changes,
        settle: Callable[[], Awaitable[None]] = nothing_to_settle,
    ) -> None:
        self._shadows = shadows
        self._limits = limits
        self._may_change = may_change
        self._settle = settle
        self._before: dict[Path, str] | None = None
        self._has_effects = False

    async def before_tools(self, session: Session, calls: Iterable[tuple[ToolCall, AgentTool]]) -> None:
        """Keep the state before the first call of the turn that may change files."""
        if any(self._may_change(tool, call) for call, tool in calls):
            if self._before is None:
                await self._keep_before(session)
            self._has_effects = True

    async def before_calls(self, session: Session) -> None:
        """Keep the state before the first request, if the profile wants it so early."""
        if session.profile.snapshot_first and self._before is None:
            await self._keep_before(session)

    async def after_turn(self, session: Session) -> None:
        """Keep the state after the turn. A turn whose calls changed nothing needs no second look at the files."""
        if self._before is None:
            return
        await self._settle()
        before, self._before = self._before, None
        has_effects, self._has_effects = self._has_effects, False
        for shadow in self._shadows:
            known = before.get(shadow.root)
            if known is None:
                continue
            if not has_effects:
                session.log.append(FilesSnapshotted(known, moment="after", root=recordable(str(shadow.root))))
                continue
            taken = await self._take(session, shadow)
            if taken is not None:
                session.log.append(_event(shadow, taken, "after"))

    async def _keep_before(self, session: Session) -> None:
        self._before = {}
        for shadow in self._shadows:
            taken = await self._take(session, shadow)
            if taken is not None:
                self._before[shadow.root] = taken.id
                session.log.append(_event(shadow, taken, "before"))

    async def _take(self, session: Session, shadow: Shadow) -> TakenSnapshot | None:
        def work() -> TakenSnapshot:
            with own.locked():
                taken = take_snapshot(own, self._limits)
                # Before the lock is released, because another process may remove what no session needs.
                own.keep(session.log.session, taken.id)
                return taken

        try:
            own = shadow.again()
            running = asyncio.ensure_future(session.environment.offload_long(work))
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                # A first snapshot can take minutes, and a thread ends only with what it waits for.
                own.git.stop()
                running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
                await asyncio.wait((running,))
                raise
        except (PalimpsestError, OSError) as error:
            kind = error.kind if isinstance(error, PalimpsestError) else "store"
            session.log.append(Failed(SNAPSHOT, kind, f"{_shown(str(error))}; what this turn changes in files cannot be undone"))
            return None


def _event(shadow: Shadow, taken: TakenSnapshot, moment: Literal["before", "after"]) -> FilesSnapshotted:
    names = tuple(_shown(each.path) for each in sorted(taken.left_out, key=_rank) if each.reason != "folder")
    return FilesSnapshotted(
        taken.id,
        moment=moment,
        root=recordable(str(shadow.root)),
        left_out=names[:MOST_NAMED],
        left_out_count=len(names),
        took_ms=taken.took_ms,
    )


def _rank(left_out: LeftOut) -> int:
    return _NAMED_FIRST.index(left_out.reason)


def recordable(name: str) -> str:
    """A path that can be recorded: bytes that are not UTF-8 are escaped."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _shown(name: str) -> str:
    """A name that can be recorded, cut if it is long."""
    text = recordable(name)
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"
