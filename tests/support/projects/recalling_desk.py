"""An agent with notes, for tests of recall: real files, a scripted model."""

import asyncio
from collections.abc import Callable
from dataclasses import replace as replaced
from pathlib import Path

from msgspec.structs import replace

from palimpsest.agent.agent import Agent
from palimpsest.coding.build import equip
from palimpsest.coding.settings import CodingSettings, McpSettings
from palimpsest.core.events import Body, Recalled
from palimpsest.core.items import Text, text_of
from palimpsest.core.view import shown
from palimpsest.memory.changes import AcceptedChange
from palimpsest.memory.note import Note
from palimpsest.memory.notebook import Memories, memories_of
from palimpsest.policies.named import profile
from palimpsest.providers.scripted import Scripted, ScriptedReply
from palimpsest.stores.home import FolderHome
from palimpsest.stores.in_memory import FixedClock
from palimpsest.stores.memory_config import MemoryConfig

NOON = 1_780_000_000_000
QUIET = MemoryConfig(jobs="off", extract_every=0, running_notes="off")
TABS = Note(
    name="feedback_tabs",
    kind="feedback",
    about="indent Makefiles with tabs",
    backstory="said when a recipe failed",
    when="2026-05-01T10:00:00Z",
    evidence=("s1:1",),
    trust="stated",
    body="Makefiles are indented with tabs, never with spaces.\n",
)


def note(name: str, about: str, body: str = "", **fields: object) -> Note:
    """A note like `TABS` of another name; the kind is that of the name."""
    told = {"backstory": "the user said so in a session", **fields}
    return replace(TABS, name=name, kind=name.partition("_")[0], about=about, body=body or f"{about}.\n", **told)


class Desk:
    """A home and a project in a folder, with the notes of both."""

    def __init__(self, folder: Path) -> None:
        self.clock = FixedClock(NOON)
        self.home = FolderHome(folder / "home", self.clock)
        self.root = folder / "project"
        self.root.mkdir(parents=True, exist_ok=True)
        self.model = Scripted()

    @property
    def memories(self) -> Memories:
        found = memories_of(self.home, self.root)
        assert found is not None
        return found

    def save(self, *notes: Note) -> None:
        """Write notes into the scopes that their kinds belong to."""
        for each in notes:
            self.memories.place_of(each.kind).apply(AcceptedChange((each,), reason="added"), "remember")

    def agent(
        self,
        *replies: ScriptedReply,
        way: str = "palimpsest",
        config: MemoryConfig = QUIET,
        resume: str = "",
        change: Callable[[Agent], None] | None = None,
    ) -> Agent:
        """An agent in the project that answers with these replies."""
        self.model = Scripted(*replies)
        agent = Agent("claude-sonnet-4-5", provider=self.model, cwd=self.root, home=self.home, profile=profile(way), resume=resume)
        settings = CodingSettings(sandbox="off", snapshots=False, tools=(), mcp=McpSettings(active=False), memory=config)
        equip(agent, self.home, replaced(settings, only=frozenset({"recall", "read"})))
        if change is not None:
            change(agent)
        return agent


def ask(agent: Agent, *prompts: str) -> Agent:
    """The agent after it was asked each prompt."""

    async def scenario() -> None:
        for prompt in prompts:
            await agent.ask(prompt)

    asyncio.run(scenario())
    return agent


def bodies(agent: Agent, kind: type[Body]) -> list[Body]:
    """The bodies of one kind in the log of an agent."""
    log = agent.session.log
    return [event.body for event in log.reader.run(0, log.tip) if isinstance(event.body, kind)]


def recalled(agent: Agent) -> list[tuple[str, ...]]:
    """The names of the notes that each prompt recalled."""
    return [body.notes for body in bodies(agent, Recalled) if isinstance(body, Recalled)]


def recalled_text(agent: Agent) -> str:
    """All texts of recalled notes."""
    parts = [part for body in bodies(agent, Recalled) if isinstance(body, Recalled) for part in body.parts]
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def view_text(agent: Agent) -> str:
    """What the model sees, head included, masks applied."""
    view = agent.session.log.view
    contents = (shown(item) for item in (*view.head, *view.items))
    return "\n".join(text_of(content) for content in contents if content is not None)
