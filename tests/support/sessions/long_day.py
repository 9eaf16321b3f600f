"""One long scripted day: a hundred turns with reads, changes, plans, skills, notes, sub-agents, another model, and a window that fills."""

import json
import re
import threading
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from live_agent import text_of, unmarked
from streaming_model import Call, Part, Spent, StreamingModel, model_streaming
from wire_server import Said, WireServer, wire_server

from palimpsest.core.items import Text, ToolCall, ToolResult
from palimpsest.core.tokens import palimpsest_size

TURNS = 100
MODEL, SMALLER = "day-large", "day-small"
CARDS = f"""[cards.{MODEL}]
like = "claude-sonnet-4-5"
window = 60000
reply = 4000

[cards.{SMALLER}]
like = "claude-haiku-4-5"
window = 60000
reply = 4000
"""
RULES = ("read", "edit", "write", "bash(wc:*)")
_CHILD = "You count lines"
SKILL = "Run the tests, then tag."
# What no policy clears, so that a fold is due even where results are cleared.
_REPORT = "\n".join(f"In row {row} the till counts as many coins as the ledger has, and the drawer was opened once." for row in range(150))
# What a request for a summary that has the tools of the conversation ends with.
_ASIDE = ("You are handing this work over", "Sum up")
# Under some profiles notes are files that the model writes.
_MEMORY = re.compile(r"memory of plain files in `([^`]+)`")
_SESSION = re.compile(r"\d{8}-\d{6}-[0-9a-z]+")
SUMMARY = "<analysis>All of it.</analysis>\n<summary>\n## Objective\nThe shop has a till. Files were read and changed; go on.\n</summary>"


@dataclass(frozen=True)
class DayTurn:
    """A prompt, the mode and model in which it is worked on, the calls that the model makes, step by step, and what it says in the end."""

    number: int
    prompt: str
    mode: str
    model: str
    steps: tuple[tuple[Part, ...], ...]
    said: str


def day(turns: int = TURNS, smaller: str = SMALLER) -> tuple[DayTurn, ...]:
    """The turns of the day, or the first of them; for ten turns another model works, which is `smaller`."""
    return tuple(_turn(number, smaller) for number in range(1, turns + 1))


def _turn(number: int, smaller: str) -> DayTurn:
    big, small = f"part{number % 7}.txt", f"note{number % 3}.md"
    read, look = (Call("read", {"path": big}),), (Call("read", {"path": small}),)
    steps: dict[int, tuple[tuple[Part, ...], ...]] = {
        0: (),
        1: (read,),
        2: ((_REPORT, Call("bash", {"command": f"wc -l {big}"})),),
        3: (look, (Call("edit", {"path": small, "old": "Line one", "new": f"Line one, seen in {number}", "all": False}),)),
        4: ((Call("todo", {"items": [{"id": "1", "text": f"part {number}", "status": "in_progress"}]}),),),
        5: ((Call("skill", {"name": "release"}),),),
        6: (look, (Call("write", {"path": f"made{number}.txt", "content": "too early\n"}),), read),
        7: ((_REPORT, Call("write", {"path": f"made{number}.txt", "content": f"made in {number}\n"})),),
        8: ((Call("spawn_agent", {"message": f"{_CHILD} of {big}, for {number}.", "nickname": f"Ada{number}"}),),),
        9: ((Call("read", {"path": big}), Call("read", {"path": f"part{(number + 3) % 7}.txt"})),),
    }
    prompts = {0: f"remember: the port of till {number} is 8{number:03}", 6: f"[{number}] Plan the next part.", 7: f"[{number}] Build it."}
    mode = "plan" if number % 10 == 6 else "edits"
    model = smaller if 30 <= number < 40 else MODEL
    return DayTurn(number, prompts.get(number % 10, f"[{number}] Go on."), mode, model, steps[number % 10], f"Turn {number} is done.")


CODEX_CARDS = "".join(
    f'[cards.{name}]\nlike = "gpt-5.2-codex"\nprovider = "lab"\nwindow = 60000\nreply = 4000\n\n' for name in (MODEL, SMALLER)
)


def furnish(home: Path, pal_home: Path, project: Path) -> None:
    """Write the files of the project, the skill, the cards of the models and the rules."""
    for number in range(7):
        lines = (f"part {number} line {line}: the till {number * line} counts {line * line} coins" for line in range(180))
        (project / f"part{number}.txt").write_text("\n".join(lines) + "\n")
    for number in range(3):
        (project / f"note{number}.md").write_text(f"# Note {number}\nLine one\nLine two\n")
    for place in (home / ".claude/skills/release", project / ".agents/skills/release"):
        place.mkdir(parents=True)
        (place / "SKILL.md").write_text(f"---\nname: release\ndescription: How a release is made.\n---\n{SKILL}\n")
    pal_home.mkdir(parents=True, exist_ok=True)
    (pal_home / "cards.toml").write_text(CARDS)
    (pal_home / "config.toml").write_text(f"[permissions]\nallow = {json.dumps(RULES)}\n")


_TOOLS = "tools"
_Block: TypeAlias = tuple[bytes, int]


@dataclass
class DayModel:
    """The model of the day: it works on the turn that `begin` names, and sums up where it is asked to.

    asides: how many requests stood beside the conversation, such as those for a summary. `children`: how many came from sub-agents.
    """

    turns: tuple[DayTurn, ...]
    asides: int = 0
    children: int = 0
    step: int = 0
    current: DayTurn = field(init=False)
    _cached: dict[str, list[list[_Block]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, turn: DayTurn) -> None:
        """Expect the requests of a turn."""
        self.current, self.step = turn, 0

    def answer(self, request: Any) -> tuple[Part, ...]:
        """The reply to a request, which reports the tokens of a request of its size, and those that the cache has of an earlier one."""
        with self._lock:
            parts, blocks = self._parts(request), _blocks(request)
            known = self._cached.setdefault(request["model"], [])
            shared = max((_shared(blocks, earlier) for earlier in known), default=0)
            self._cached[request["model"]] = [*known[-3:], blocks]
            read, written = (sum(size for _, size in some) for some in (blocks[:shared], blocks[shared:]))
            return (*parts, Spent(new=0, read=read, written=written, output=sum(map(_said_size, parts))))

    def _parts(self, request: Any) -> tuple[Part, ...]:
        # Requests beside the conversation have no tools, but for a summary by the live prefix, which ends with its prompt.
        if not request.get("tools") or any(line in text for text in _last_texts(request) for line in _ASIDE):
            self.asides += 1
            return (SUMMARY,)
        if _CHILD in json.dumps(request["messages"][0]):
            self.children += 1
            return ("It has 180 lines.",)
        self.step += 1
        steps = self.current.steps
        if self.step <= len(steps):
            return steps[self.step - 1]
        if not steps and self.step == 1 and (folder := _MEMORY.search(json.dumps(request.get("system", "")))):
            name, said = f"till_{self.current.number}", self.current.prompt.partition(": ")[2]
            note = f"---\nname: {name}\ndescription: {said}\ntype: project\n---\n{said}\n"
            return (Call("write", {"path": f"{folder[1]}/{name}.md", "content": note}),)
        calls = [part.tool for step in steps for part in step if isinstance(part, Call)]
        spawned = calls == ["spawn_agent"] and self.step == 2
        if spawned:
            found = _SESSION.search(json.dumps(request["messages"][-1]))
            if found is not None:
                return (Call("wait_agent", {"ids": [found[0]]}),)
        return (self.current.said,)


class CodexDayModel(DayModel):
    """The model of the day on OpenAI Responses, which reads and changes files by commands and patches, as models of Codex do."""

    def said(self, request: Any) -> Said:
        """The reply to a request of Responses."""
        parts = self.answer(_as_messages(request))
        tools = {tool.get("name") for tool in request.get("tools", [])}
        calls = [_as_codex(part, tools) for part in parts if isinstance(part, Call)]
        functions = tuple((call.tool, json.dumps(call.args)) for call in calls if call.tool != _PATCH)
        patches = tuple({"type": "custom_tool_call", "name": _PATCH, **call.args} for call in calls if call.tool == _PATCH)
        spent = next(part for part in parts if isinstance(part, Spent))
        text = "\n".join(part for part in parts if isinstance(part, str))
        return Said(text, functions, prompt=spent.read + spent.written, output=spent.output, items=patches)


_PATCH = "apply_patch"


def _as_codex(call: Call, tools: AbstractSet[str]) -> Call:
    """A call of the day with the tools of Codex."""
    match call.tool, call.args:
        case "read", {"path": path}:
            return _command(f"cat {path}", tools)
        case "bash", {"command": command}:
            return _command(command, tools)
        case "edit", {"path": path, "new": new}:
            # A patch names whole lines, and that of the day has changed before.
            heading = path.removesuffix(".md").replace("note", "# Note ")
            return Call(_PATCH, {"input": f"*** Begin Patch\n*** Update File: {path}\n@@\n {heading}\n+{new}\n*** End Patch\n"})
        case "write", {"path": path, "content": content}:
            return Call(_PATCH, {"input": f"*** Begin Patch\n*** Add File: {path}\n+{content}*** End Patch\n"})
        case _:
            return call


def _command(line: str, tools: AbstractSet[str]) -> Call:
    if "exec_command" in tools:
        return Call("exec_command", {"cmd": line})
    return Call("shell", {"command": ["bash", "-lc", line]})


def _as_messages(request: Any) -> dict[str, Any]:
    """A request of Responses in the shape in which the model of the day reads one: neighbours of one side are one message."""
    messages: list[dict[str, Any]] = []
    for item in request["input"]:
        role, blocks = _as_blocks(item)
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})
    shown = {name: request[name] for name in ("model", _TOOLS) if name in request}
    return {**shown, "system": request.get("instructions", ""), "messages": messages}


def _as_blocks(item: Any) -> tuple[str, list[dict[str, Any]]]:
    match item["type"]:
        case "message":
            texts = [{"type": "text", "text": part.get("text", "")} for part in item["content"]]
            return ("assistant" if item["role"] == "assistant" else "user"), texts
        case "function_call":
            made = {"id": item["call_id"], "name": item["name"], "input": json.loads(item["arguments"])}
            return "assistant", [{"type": "tool_use", **made}]
        case "custom_tool_call":
            return "assistant", [{"type": "tool_use", "id": item["call_id"], "name": item["name"], "input": {"input": item["input"]}}]
        case _:
            return "user", [{"type": "tool_result", "tool_use_id": item["call_id"], "content": item["output"]}]


def _blocks(request: Any) -> list[_Block]:
    """The tools, the system prompt and each block of each message, without marks of the cache, with the tokens of each."""
    blocks = [(_TOOLS, request.get("tools", [])), *[("system", block) for block in _listed(request.get("system", []))]]
    blocks += [(message["role"], block) for message in request["messages"] for block in _listed(message["content"])]
    return [(json.dumps([role, unmarked(block)], ensure_ascii=False).encode(), _size(role, block)) for role, block in blocks]


def _listed(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _size(role: str, block: Any) -> int:
    """The tokens of a block, by the estimate that a replay calibrates."""
    if role == _TOOLS:
        return len(json.dumps(block)) // 4
    match block["type"]:
        case "tool_use":
            return palimpsest_size(ToolCall(block["id"], block["name"], json.dumps(block["input"])))
        case "tool_result":
            return palimpsest_size(ToolResult(block["tool_use_id"], (Text(text_of(block["content"])),)))
        case _:
            return palimpsest_size(Text(block.get("text", "")))


def _said_size(part: Part) -> int:
    return palimpsest_size(ToolCall("call", part.tool, json.dumps(part.args)) if isinstance(part, Call) else Text(str(part)))


def _shared(one: list[_Block], two: list[_Block]) -> int:
    return next((place for place, (left, right) in enumerate(zip(one, two, strict=False)) if left != right), min(len(one), len(two)))


def _last_texts(request: Any) -> list[str]:
    content = request["messages"][-1]["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [block["text"] for block in blocks if block["type"] == "text"]


@contextmanager
def model_of(turns: tuple[DayTurn, ...]) -> Iterator[tuple[DayModel, StreamingModel]]:
    """The model of some turns, and the server that it answers on."""
    model = DayModel(turns)
    with model_streaming(answer=model.answer) as server:
        yield model, server


@contextmanager
def codex_model_of(turns: tuple[DayTurn, ...]) -> Iterator[tuple[DayModel, WireServer]]:
    """The model of some turns that speaks Responses, and the server that it answers on."""
    model = CodexDayModel(turns)
    with wire_server(answer=model.said) as server:
        yield model, server
