"""Trajectories of SWE-agent and of mini-swe-agent: one JSON document for each run."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Raw

from palimpsest.core.events import (
    Body,
    ContextStated,
    ForeignNoted,
    ModelReplied,
    SessionOpened,
    Statement,
    ToolReturned,
    TurnEnded,
    UserSaid,
)
from palimpsest.core.items import Content, Signature, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.ports import Blobs
from palimpsest.foreign.reading.documents import Growing, begins, document_in, unread
from palimpsest.foreign.reading.files import changed, decoded, digest_of, files_below, reason, rest_of
from palimpsest.foreign.reading.forgetting import Covering
from palimpsest.foreign.reading.parts import call_of, chat_usage, milliseconds, parts_of, provider_of, texts_of
from palimpsest.foreign.reading.transcript import Answer, BadLine, Made, Mark, Source, Told
from palimpsest.wire.json_reading import Json, dump, is_json, table_at, tables_at, text

Kind = Literal["swe", "mini"]
_MINI_PLACE = ".config/mini-swe-agent"
_REPEATED = {"action", "observation", "response", "thought", "query", "messages"}
_SAID = ("content", "tool_calls", "thinking_blocks", "role")


class SweAgentFormat:
    """SWE-agent 0.x and 1.x (`.traj`), and mini-swe-agent 1.x and 2.x (`.traj.json`)."""

    name = "swe-agent"

    def places(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """Where mini-swe-agent keeps its last run; SWE-agent writes below the folder that it was started in."""
        return (Path(environment.get("MSWEA_GLOBAL_CONFIG_DIR") or home / _MINI_PLACE),)

    def sources(self, path: Path) -> Iterator[Source | BadLine]:
        """One session for each trajectory."""
        for file in files_below(path, lambda name: name.endswith((".traj", ".traj.json"))):
            if isinstance(file, BadLine):
                yield file
                continue
            try:
                if _looks(file):
                    yield Source(self.name, str(file), _session(file), changed(file))
            except OSError as error:
                yield BadLine(str(file), reason(error))

    def read(self, source: Source, blobs: Blobs, mark: Mark | None = None) -> Iterator[Told | BadLine | Mark]:
        """The messages of a run in order."""
        path = Path(source.path)
        document = document_in(path)
        kind = _kind(document)
        if not is_json(document) or kind is None:
            yield from unread(path)
            return
        messages = _messages(document, kind)
        growing = Growing(mark)
        start = growing.after(messages)
        times = (milliseconds(table_at(each, "extra").get("timestamp")) for each in messages if is_json(each))
        # Old runs tell no times; when the file was written is the nearest that is known.
        run = _Run(document, kind, blobs, next((at for at in times if at), int(path.stat().st_mtime) * 1000))
        if not start:
            yield run.opened(source)
        for index, message in enumerate(messages):
            facts = list(run.take(index, message))
            if index >= start:
                yield from facts
        yield from run.ended(len(messages))
        yield growing.mark(messages)


def _looks(path: Path) -> bool:
    if begins(path, b'"history"', b'"trajectory"') or begins(path, b'"messages"', b'"trajectory_format"'):
        return True
    return path.name.endswith((".traj", ".traj.json")) and _kind(document_in(path)) is not None


def _session(path: Path) -> str:
    """A run has no id of its own: its instance and the folder of its experiment name it."""
    stem = path.name.removesuffix(".json").removesuffix(".traj")
    return stem if path.parent.name in {"", stem} else f"{path.parent.name}.{stem}"


def _kind(document: object) -> Kind | None:
    if not is_json(document):
        return None
    if isinstance(document.get("history"), list) and isinstance(document.get("trajectory"), list):
        return "swe"
    mini = text(document, "trajectory_format").startswith("mini-swe-agent") or "mini_version" in table_at(document, "info")
    return "mini" if isinstance(document.get("messages"), list) and mini else None


def _messages(document: Json, kind: Kind) -> list[object]:
    found = document["history" if kind == "swe" else "messages"]
    messages: list[object] = list(found) if isinstance(found, list) else []
    if kind == "swe" and text(table_at(document, "info"), "exit_status"):
        messages += _unseen(messages, tables_at(document, "trajectory"))
    return messages


def _unseen(history: list[object], steps: list[Json]) -> list[object]:
    """The result of a last action: the run ended with it, so it stands in the trajectory only."""
    last = history[-1] if history else None
    if not is_json(last) or text(last, "role") != "assistant" or not steps or not text(last, "action"):
        return []
    step = steps[-1]
    if text(step, "action") != text(last, "action") or "observation" not in step:
        return []
    calls = [text(call, "id") for call in tables_at(last, "tool_calls")]
    return [{"role": "tool" if calls else "user", "content": step["observation"], "tool_call_ids": calls, "unseen": True}]


class _Run:
    """One pass over the messages of a run."""

    def __init__(self, document: Json, kind: Kind, blobs: Blobs, at: int) -> None:
        self._kind = kind
        self._document = document
        self._blobs = blobs
        self._info = table_at(document, "info")
        self._model = _model(document)
        self._at = at
        # The calls of the newest reply that have no id, by its key and their places in it: the next messages answer them in order.
        self._open: list[tuple[str, int]] = []
        self._tools: dict[str, str] = {}
        self._replied = 0
        self._steps = tables_at(document, "trajectory") if kind == "swe" else []
        self._results: dict[int, str] = {}
        self._covers: dict[int, str] = {}

    def opened(self, source: Source) -> Told:
        config = table_at(self._info, "config")
        facts = {
            "version": text(self._info, "mini_version") or text(self._info, "swe_agent_version"),
            "environment": text(self._document, "environment"),
            "program": "mini-swe-agent" if self._kind == "mini" else "SWE-agent",
        }
        cwd = text(table_at(config, "environment"), "cwd")
        meta = {name: value for name, value in facts.items() if value}
        left = ("history", "trajectory", "messages", "info")
        # What happened to the run later must not change how it began.
        return Told(
            SessionOpened(source.session, cwd, "swe-agent", model=self._model, meta=meta),
            self._at,
            "opened",
            line=rest_of(self._document, *left),
        )

    def take(self, index: int, message: object) -> Iterator[Told]:
        key = f"{index}-{digest_of(msgspec.json.encode(message))}"
        if not is_json(message):
            yield Told(ForeignNoted("swe-agent", (key,)), self._at, key, line=Raw(msgspec.json.encode(message)))
            return
        self._at = milliseconds(table_at(message, "extra").get("timestamp") or message.get("timestamp")) or self._at
        match text(message, "role"):
            case "assistant":
                yield from self._reply(index, key, message)
            case "system" if not self._replied:
                yield self._told(key, ContextStated(head=(Statement("system", texts_of(message.get("content")), "system"),)), message)
            case "tool" | "user" | "system":
                yield self._answer(index, key, message)
            case _ if text(message, "type") == "function_call_output":
                yield self._answer(index, key, message)
            case _ if text(message, "object") == "response":
                yield from self._reply(index, key, message)
            case _:
                yield self._told(key, ForeignNoted("swe-agent", (key,)), message, whole=True)

    def _told(self, key: str, body: Body | Made, message: Json, *, whole: bool = False) -> Told:
        return Told(body, self._at, key, line=rest_of(message, *(() if whole else _SAID)))

    def _reply(self, index: int, key: str, message: Json) -> Iterator[Told]:
        yield from self._hidden(index)
        step = self._steps[self._replied] if self._replied < len(self._steps) else {}
        # The step repeats the message; only what it says beside it is kept.
        if left := {name: value for name, value in step.items() if name not in _REPEATED}:
            message = {**message, "step": left}
        self._replied += 1
        extra = table_at(message, "extra")
        response = table_at(extra, "response") or (message if text(message, "object") == "response" else {})
        model = text(response, "model") or self._model
        parts = (*self._thoughts(message, model), *self._parts(message))
        calls = [part for part in parts if isinstance(part, ToolCall)]
        self._open = [(key, number) for number, part in enumerate(parts) if isinstance(part, ToolCall) and not part.call_id]
        self._tools |= {call.call_id: call.tool for call in calls}
        yield Told(call_of(model), milliseconds(response.get("created")) or self._at, f"{key}/call")
        choice = next(iter(tables_at(response, "choices")), {})
        body = ModelReplied(
            parts,
            usage=chat_usage(table_at(response, "usage")),
            stop=text(choice, "finish_reason") or ("tool_use" if calls else "end_turn"),
            model=model,
            message=text(response, "id"),
        )
        yield self._told(key, body, message, whole=not message.get("tool_calls") and bool(calls))

    def _thoughts(self, message: Json, model: str) -> Iterator[Thinking]:
        if text(message, "reasoning_content") and not message.get("thinking_blocks"):
            yield Thinking(text(message, "reasoning_content"))
        for block in tables_at(message, "thinking_blocks"):
            thought, sealed = text(block, "thinking"), text(block, "signature")
            seal = Signature(provider_of(model), model.rpartition("/")[2], sealed) if sealed else None
            if thought or seal:
                yield Thinking(thought, seal, "whole" if thought else "sealed")

    def _parts(self, message: Json) -> Iterator[Content]:
        """Words and calls; a command that was written into the words is a call too, and leaves them."""
        if text(message, "object") == "response":
            yield from _outputs(message)
            return
        requests = tables_at(message, "tool_calls")
        said, action = texts_of(message.get("content")), text(message, "action")
        actions = [text(each, "command") for each in tables_at(table_at(message, "extra"), "actions")]
        if requests:
            if said.strip():
                yield Text(said, "assistant")
            for request in requests:
                function = table_at(request, "function")
                args = function.get("arguments")
                yield ToolCall(text(request, "id"), text(function, "name"), args if isinstance(args, str) else dump(args or {}))
            return
        commands = (
            [command for command in (actions or [action or _fenced(said)]) if command.strip()] if self._kind == "mini" or action else []
        )
        words = text(message, "thought") if self._kind == "swe" and commands else _before(said, commands)
        if words.strip():
            yield Text(words, "assistant")
        for command in commands:
            yield ToolCall("", "bash", dump({"command": command}))

    def _answer(self, index: int, key: str, message: Json) -> Told:
        content = message.get("content", message.get("output"))
        named = message.get("tool_call_ids")
        listed = [each for each in named if isinstance(each, str)] if isinstance(named, list) else []
        call_id = text(message, "tool_call_id") or text(message, "call_id") or (listed[0] if listed else "")
        unnamed = self._open.pop(0) if not call_id and self._open and text(message, "role") != "system" else None
        answers = bool(call_id) or unnamed is not None
        demo = message.get("is_demo") is True or text(message, "message_type") == "demonstration"
        extra = table_at(message, "extra")
        if demo or (not answers and self._notice(message, extra)):
            return self._told(key, ContextStated((Statement("demonstration" if demo else "notice", texts_of(content)),)), message)
        parts = parts_of(content, self._blobs)
        if not answers:
            return self._told(key, UserSaid(parts) if parts else ForeignNoted("swe-agent", (key,)), message)
        self._results[index] = key
        code = extra.get("returncode", message.get("returncode"))
        result = ToolResult(call_id, parts, error=bool(text(extra, "exception_info")))
        body = ToolReturned(result, self._tools.get(call_id, ""), code if type(code) is int else None)
        return self._told(key, body if unnamed is None else Answer(*unnamed, body), message)

    def _notice(self, message: Json, extra: Json) -> bool:
        """Whether the program speaks and not a person: nobody can speak into a run of SWE-agent."""
        if text(message, "role") == "system":
            return True
        if self._kind == "swe":
            return self._replied > 0
        return text(extra, "interrupt_type") not in {"", "UserInterruption"}

    def _hidden(self, index: int) -> Iterator[Told]:
        """What the program showed in the place of old results, where it kept the messages that it sent."""
        step = self._steps[self._replied] if self._replied < len(self._steps) else {}
        query = tables_at(step, "query")
        if len(query) != index:
            return
        for place, key in self._results.items():
            shown = texts_of(query[place].get("content"))
            if shown != self._covers.get(place, _shown_first(self._document, place)):
                self._covers[place] = shown
                yield Told(Covering("swe-agent", "old results are shortened", key, shown), self._at, f"{key}/hidden-{index}")

    def ended(self, count: int) -> Iterator[Told]:
        status = text(self._info, "exit_status")
        if status:
            yield Told(TurnEnded(status), self._at, f"ended-{count}-{status}", line=rest_of(self._info))


def _shown_first(document: Json, place: int) -> str:
    """The text of a message as it was first shown."""
    history = document.get("history")
    message = history[place] if isinstance(history, list) and place < len(history) else None
    return texts_of(message.get("content")) if is_json(message) else ""


def _model(document: Json) -> str:
    info = table_at(document, "info")
    config = table_at(table_at(info, "config"), "model")
    if text(config, "model_name"):
        return text(config, "model_name")
    replay = document.get("replay_config")
    given = decoded(replay.encode("utf-8", "replace")) if isinstance(replay, str) else replay
    agent = table_at(given, "agent") if is_json(given) else {}
    return text(table_at(agent, "model"), "name")


def _outputs(message: Json) -> Iterator[Content]:
    """The items of a reply in the shape of OpenAI's Responses."""
    for item in tables_at(message, "output"):
        match text(item, "type"):
            case "function_call":
                yield ToolCall(text(item, "call_id"), text(item, "name"), text(item, "arguments"))
            case "reasoning":
                thought = texts_of(item.get("summary")) or texts_of(item.get("content"))
                yield Thinking(thought, form="digest" if thought else "sealed")
            case _:
                if said := texts_of(item.get("content")):
                    yield Text(said, "assistant")


def _fenced(said: str) -> str:
    """The one command of a reply that wrote it between fences, as the first versions of mini-swe-agent ask for."""
    blocks = said.split("```")
    found = [block.partition("\n")[2] for block in blocks[1::2] if block.partition("\n")[0].strip() in {"bash", "mswea_bash_command"}]
    return found[0] if len(found) == 1 else ""


def _before(said: str, commands: list[str]) -> str:
    """The words before the first command; all of them if it does not stand there as it was run."""
    if not commands:
        return said
    head, found, _ = said.partition(commands[0].strip())
    return head.rpartition("```")[0] if found and "```" in head else said
