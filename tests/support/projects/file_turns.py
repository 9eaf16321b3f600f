"""Sessions of a coding agent that change files, one turn after the other, and their rewinds."""

import asyncio
import json
from pathlib import Path

from git_projects import Project

from palimpsest.agent.agent import Agent
from palimpsest.agent.decision import Approval
from palimpsest.coding.build import equip
from palimpsest.coding.file_undo import FileRewinding, RewindPlan
from palimpsest.coding.settings import CodingSettings
from palimpsest.core.events import ModelReplied, PermissionAsked, TurnStarted
from palimpsest.core.items import ToolCall
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.home import FolderHome
from palimpsest.stores.snapshots import SnapshotLimits


def call(tool: str, **arguments: object) -> ModelReplied:
    """A reply that calls one tool."""
    return ModelReplied((ToolCall(f"{tool}{len(str(arguments))}", tool, json.dumps(arguments)),))


async def allow_once(asked: PermissionAsked) -> Approval:
    """The user allows every call."""
    return Approval("once")


LARGEST = 1_000


class Sessions:
    """A session in a project, one turn after the other, and its rewinds."""

    def __init__(self, folder: Path, profile: str = "palimpsest") -> None:
        self.root, self.home, self.profile = folder / "project", FolderHome(folder / "home"), profile
        self.root.mkdir()
        self.project = Project(self.root)
        self.session = ""
        self.largest = LARGEST

    def turn(self, *replies: ModelReplied | str, fold: bool = False) -> None:
        async def work() -> None:
            provider = Scripted(*replies, "done", "the summary")
            agent = Agent("claude-sonnet-4-5", provider=provider, cwd=self.root, home=self.home, profile=self.profile, resume=self.session)
            async with agent:
                self.session = agent.id
                equip(agent, self.home, CodingSettings(mode="edits", sandbox="off", tools=(), largest_saved=self.largest), allow_once)
                assert (await agent.ask("work")).stop == "done"
                if fold:
                    await agent.compact()

        asyncio.run(work())

    def shell(self, command: str, *, fold: bool = False) -> None:
        self.turn(call("bash", command=command), fold=fold)

    def starts(self) -> list[int]:
        with self.home.open(self.session, write=False) as log:
            return [event.seq for event in log.events() if isinstance(event.body, TurnStarted)]

    def rewind(self, to: int | None, *, partial: bool = False, unsure: bool = False) -> RewindPlan:
        """Go to an event, or take the last rewind back."""
        with self.home.open(self.session) as log:
            rewinding = FileRewinding(log, self.home.folder, SnapshotLimits(self.largest))
            plan = rewinding.plan_undo() if to is None else rewinding.plan(to, unsure=unsure)
            rewinding.carry_out(plan, partial=partial)
        return plan

    def back(self, turns: int = 1, *, partial: bool = False, unsure: bool = False) -> RewindPlan:
        """Go back by some turns."""
        return self.rewind(self.starts()[-turns] - 1, partial=partial, unsure=unsure)

    def files(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.root)): path.read_text()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and ".git" not in path.parts
        }
