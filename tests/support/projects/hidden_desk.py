"""An agent with its own tools, home and project, and a model that fetches what is hidden by what it is shown, and by nothing else."""

import asyncio
import json
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any, TypeAlias

from palimpsest.agent.agent import Agent
from palimpsest.agent.decision import Mode
from palimpsest.coding.build import equip
from palimpsest.coding.settings import CodingSettings, McpSettings
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Opaque, Text, ToolCall
from palimpsest.core.ports import Sendable
from palimpsest.policies.named import profile
from palimpsest.providers.scripted import Scripted, ScriptedAnswer
from palimpsest.stores.home import FolderHome, Home
from palimpsest.stores.in_memory import FixedClock
from palimpsest.stores.memory_config import MemoryConfig

NOON = 1_780_000_000_000
QUIET = MemoryConfig(jobs="off", extract_every=0, running_notes="off")
Call: TypeAlias = tuple[str, dict[str, Any]]
Play: TypeAlias = Generator[Call, str, None]
"""What a model does in one turn: it yields calls of tools, and is sent the text of each result."""
Fetch: TypeAlias = Generator[Call, str, str]
"""The same, which returns the text that it has put together from the results."""
SUMMARY = "<analysis>Thought about it.</analysis><summary>The work was summed up.</summary>"
BLOCK = ModelReplied(
    (Opaque("anthropic", "claude-sonnet-4-6", '{"type":"compaction","content":"The work was summed up.","signature":"s"}', "Summed up."),)
)
MODES: tuple[Mode, ...] = ("ask", "plan", "auto")


def calls(*made: Call) -> Play:
    """A turn of calls whose results do not matter."""
    for each in made:
        _ = yield each


class HiddenDesk:
    """A home and a project in a folder; the model of a turn is a generator. `requests` are the bodies that it was sent."""

    def __init__(self, folder: Path, way: str, mode: Mode = "ask", *, on_disk: bool = True) -> None:
        self.clock = FixedClock(NOON, 1_000)
        self.home: Home = FolderHome(folder / "home", self.clock) if on_disk else Home.in_memory(self.clock)
        self.root = folder / "project"
        self.root.mkdir(parents=True)
        self.way, self.mode = way, mode
        self.session = ""
        self.requests: list[Any] = []

    def turn(self, prompt: str, play: Play) -> None:
        """One turn of a session that is opened for it, as `pal -p` does: the first is new, the others resume it."""

        async def scenario() -> None:
            # Under one profile the provider itself compacts, which not all models do.
            compacts = self.way.startswith("provider")
            model, summaries = Scripted(*[_Player(self, play)] * 300), Scripted(*[BLOCK if compacts else SUMMARY] * 300)
            way = profile(self.way)
            settings = CodingSettings(mode=self.mode, sandbox="off", snapshots=False, tools=(), mcp=McpSettings(active=False), memory=QUIET)
            made = Agent(
                "claude-sonnet-4-6" if compacts else "claude-sonnet-4-5",
                provider=lambda _, purpose: model if purpose == "turn" else summaries,
                cwd=self.root,
                home=self.home,
                profile=way,
                resume=self.session,
            )
            equip(made, self.home, settings)
            async with made as agent:
                self.session = agent.id
                answer = await agent.ask(prompt)
                assert answer.stop == "done", answer

        asyncio.run(scenario())

    def shown(self) -> str:
        """What the model was shown last, as one text."""
        return "\n".join(texts_of(self.requests[-1]))


class _Player:
    """Answers the requests of one turn from a generator."""

    def __init__(self, desk: HiddenDesk, play: Play) -> None:
        self._desk, self._play, self._started = desk, play, False

    def __call__(self, request: Sendable) -> ScriptedAnswer:
        body = json.loads(request.body)
        self._desk.requests.append(body)
        try:
            tool, arguments = self._play.send(newest_result(body)) if self._started else next(self._play)
        except StopIteration:
            return "Done."
        self._started = True
        number = len(self._desk.requests)
        return ModelReplied((Text("I look.", "assistant"), ToolCall(f"call_{number}", tool, json.dumps(arguments))))


def newest_result(body: Any) -> str:
    """The text of the newest tool result of a request; empty if a compaction has hidden it."""
    blocks = [block for message in body["messages"] if isinstance(message["content"], list) for block in message["content"]]
    content = next((block.get("content", "") for block in reversed(blocks) if block["type"] == "tool_result"), "")
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def texts_of(body: Any) -> list[str]:
    """All texts of a request of Anthropic Messages, in order."""
    found: list[str] = []
    for message in body["messages"]:
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            inner = block.get("content", block.get("text", ""))
            found += [inner] if isinstance(inner, str) else [part.get("text", "") for part in inner]
    return found


_RECALL = re.compile(r"recall id (\S+?)[\],]")
_STUB = re.compile(r"(?:\[|, )id (\S+?)\]")
_SAVED = re.compile(r"(?:saved to: |Read it at: )(\S+)")
_GO_ON = re.compile(r"\n?\[bytes [\d,]+ to [\d,]+ of [\d,]+; go on with offset (\d+)\]\Z")
_MORE_LINES = re.compile(r"\n?\[lines [\d,]+ to [\d,]+ of ([\d,]+); go on with offset (\d+)\]\Z")
_MORE_COLUMNS = re.compile(r" \[[\d,]+ more characters; go on with offset (\d+) and column (\d+)\]\Z")


def fetch(stub: str) -> Fetch:
    """Fetch all that a stub stands for, by the tool that it names in the way it names it."""
    saved = _SAVED.search(stub)
    # Of a home in memory no file can be read, and the stub names an id too.
    if saved is not None and not saved[1].startswith("memory:"):
        return (yield from read_whole(saved[1]))
    named = _RECALL.search(stub) or _STUB.search(stub)
    assert named is not None, f"nothing says how to get it back: {stub[-500:]}"
    return (yield from recall_whole(named[1]))


def part_of(stub: str, first: int, last: int) -> Call:
    """The call for some lines of what a stub stands for."""
    saved = _SAVED.search(stub)
    if saved is not None:
        return "read", {"path": saved[1], "offset": first, "limit": last - first + 1}
    named = _RECALL.search(stub)
    assert named is not None
    return "recall", {"id": named[1], "lines": f"{first}-{last}"}


def recall_whole(item_id: str) -> Fetch:
    """All pages of an item."""
    pages, offset = list[str](), 0
    while True:
        page = yield "recall", {"id": item_id, **({"offset": offset} if offset else {})}
        head, _, rest = page.partition("\n")
        assert head.startswith(("[item ", "[events ")), page[:300]
        more = _GO_ON.search(rest)
        pages.append(rest[: more.start()] if more is not None else rest)
        if more is None:
            return "".join(pages)
        offset = int(more[1])


def read_whole(path: str) -> Fetch:
    """All lines of a file, those that are cut too."""
    lines, offset, end = list[str](), 1, 0
    while True:
        page = yield "read", {"path": path, "offset": offset}
        more = _MORE_LINES.search(page)
        # A transcript grows by each page that is read of it.
        end = end or (int(more[1].replace(",", "")) if more is not None else 0)
        for row in (page[: more.start()] if more is not None else page).split("\n"):
            number, _, text = row.partition("\t")
            assert number.strip().isdecimal(), row[:300]
            while (cut := _MORE_COLUMNS.search(text)) is not None:
                rest = yield "read", {"path": path, "offset": int(cut[1]), "column": int(cut[2])}
                text = text[: cut.start()] + rest.partition("\t")[2]
            lines.append(text)
        if more is None or len(lines) >= end:
            return "\n".join(lines)
        offset = int(more[2])
