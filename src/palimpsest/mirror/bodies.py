"""Messages as event bodies, each with a record of the message it comes from; the system prompt as a head, and declared tools."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Raw
from msgspec.structs import replace

from palimpsest.core.edits import Put
from palimpsest.core.events import Body, ContextStated, ForeignNoted, ModelReplied, Statement, ToolReturned, UserSaid
from palimpsest.core.items import Content, Kind, Text, ToolCall, ToolResult, kind_of, text_of
from palimpsest.mirror.elements import FORMAT, Added, Splice, record_of
from palimpsest.mirror.shapes.shape import MessageShape, PartRead, part_of
from palimpsest.wire.json_reading import Json, dump, is_json, table_at, text
from palimpsest.wire.request import Tool

SYSTEM: Final = "owner.system"
"""The source of the system prompt, and the beginning of the sources of system messages."""


class NewMessage(NamedTuple):
    """A message that is not in the log yet, and its digest."""

    plain: Json
    digest: str


class _EventRun:
    """Contents that become one event, and how many of them belong to which message."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.contents: list[Content] = []
        self.added: list[Added] = []

    def add(self, contents: Sequence[Content], digest: str) -> None:
        self.contents += contents
        self.added.append((digest, len(contents)))


def bodies_of(shape: MessageShape, messages: Sequence[NewMessage], tools: Mapping[str, str]) -> list[Body]:
    """Return the events of new messages, in order; `tools` are the names of the tools of earlier calls, by call id."""
    names = dict(tools)
    runs: list[_EventRun] = []
    for message in messages:
        reads = shape.read(message.plain)
        names.update((content.call_id, content.tool) for read in reads if isinstance(content := read.content, ToolCall))
        runs += _runs(shape, reads, message.digest, runs[-1] if runs else None)
    return [_body(run, names) for run in runs]


def _runs(shape: MessageShape, reads: list[PartRead], digest: str, last: _EventRun | None) -> Iterator[_EventRun]:
    """Yield the new runs of one message; output items of one response extend the last run."""
    if not reads:
        run = _EventRun("nothing")
        run.added.append((digest, 0))
        yield run
        return
    has_results = any(isinstance(read.content, ToolResult) for read in reads)
    start = 0
    while start < len(reads):
        kind = _kind(reads[start], beside_results=has_results)
        end = start + 1
        while kind != "result" and end < len(reads) and _kind(reads[end], beside_results=has_results) == kind:
            end += 1
        contents = [read.content for read in reads[start:end]]
        if start == 0 and kind == "model" and shape.wire == "responses" and last is not None and last.kind == "model":
            last.add(contents, digest)
        else:
            run = _EventRun(kind)
            run.add(contents, digest if start == 0 else "")
            last = run
            yield run
        start = end


def _kind(read: PartRead, *, beside_results: bool) -> str:
    if isinstance(read.content, ToolResult):
        return "result"
    return "steering" if read.side == "user" and beside_results else read.side


def _body(run: _EventRun, names: Mapping[str, str]) -> Body:
    foreign = record_of(Splice(tuple(run.added)))
    first = run.contents[0] if run.contents else None
    match run.kind:
        case "model":
            return ModelReplied(tuple(run.contents), foreign=foreign)
        case "result" if isinstance(first, ToolResult):
            return ToolReturned(first, names.get(first.call_id, ""), foreign=foreign)
        case "system":
            source = run.added[0][0][:8]
            return ContextStated(tuple(_statement(each, source, number) for number, each in enumerate(run.contents)), foreign=foreign)
        case "nothing":
            return ForeignNoted(FORMAT, foreign=foreign)
        case _:
            return UserSaid(tuple(part_of(each) for each in run.contents), steering=run.kind == "steering", foreign=foreign)


def _statement(content: Content, source: str, number: int) -> Statement:
    role = content.role if isinstance(content, Text) else "system"
    # A source for each message: none of them replaces another one.
    return Statement(f"{SYSTEM}.{source}.{number}", text_of(content), role)


def head_of(shape: MessageShape, system: object, messages: Sequence[Json], digest: str) -> ContextStated:
    """Return the head: the system prompt, a text or a list of blocks, and the system messages at the beginning of the list."""
    prompts = shape.read({"role": "system", "content": system}) if system else []
    reads = [*prompts, *(read for message in messages for read in shape.read(message))]
    statements = (
        Statement(f"{SYSTEM}.{number}", text_of(read.content), read.content.role if isinstance(read.content, Text) else "system")
        for number, read in enumerate(reads)
    )
    return ContextStated(head=tuple(statements), foreign=record_of(Splice(head=digest)))


def pieces_of(shape: MessageShape, messages: Sequence[NewMessage]) -> tuple[tuple[Put, ...], tuple[Added, ...]]:
    """Return the contents of messages as the new pieces of an edit, and how many of them belong to which message."""
    puts: list[Put] = []
    added: list[Added] = []
    for message in messages:
        reads = shape.read(message.plain)
        puts += [Put(_item_kind(read), read.content) for read in reads]
        added.append((message.digest, len(reads)))
    return tuple(puts), tuple(added)


def _item_kind(read: PartRead) -> Kind:
    if read.side == "model":
        return kind_of(read.content)
    return "result" if isinstance(read.content, ToolResult) else "context" if read.side == "system" else "user"


def with_call(bodies: list[Body], call: int | None, model: str) -> list[Body]:
    """Return the bodies with the first reply as the outcome of an open call, if it is the first of them."""
    if not bodies or not isinstance(bodies[0], ModelReplied):
        return bodies
    return [replace(bodies[0], call=call, model=model), *bodies[1:]]


def tools_of(tools: Sequence[Json]) -> tuple[Tool, ...]:
    """Return the tools that another program declares, in any of the three shapes; what is no declaration of a function is kept whole."""
    return tuple(_tool(tool) for tool in tools)


def _tool(tool: Json) -> Tool:
    function = table_at(tool, "function") or tool
    schema = next((function[key] for key in ("input_schema", "parameters") if is_json(function.get(key))), None)
    name = text(function, "name") or text(tool, "type") or "tool"
    if schema is None:
        return Tool(name, schema=Raw(dump(tool).encode()), native=Raw(dump(tool).encode()))
    return Tool(name, text(function, "description"), Raw(dump(schema).encode()))
