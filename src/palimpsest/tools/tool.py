"""The contract of a tool: how it is declared to the model, what it gets, and what it returns."""

from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import NoteForgotten, NoteSaved, ProcessEnded, ProcessStarted, TaskChanged
from palimpsest.core.events.tools import SeenFile
from palimpsest.core.items import Part, Text, ToolCall
from palimpsest.tools.workspace import Workspace
from palimpsest.wire.request import Tool, ToolKind

CURRENT_CALL: Final[ContextVar[str]] = ContextVar("current_call", default="")
"""The id of the call for which a tool runs; the loop sets it for tools that record something about their call."""

Arguments = TypeVar("Arguments", bound=Struct)


ToolEvent: TypeAlias = TaskChanged | ProcessStarted | ProcessEnded | NoteSaved | NoteForgotten
"""An event that a tool may record beside its result."""


class ToolError(PalimpsestError):
    """A tool cannot do what it was asked; the model gets the message as an error result."""

    kind = "tool"


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool returns. `paths` are the files it read or wrote, `exit` is the exit code of a command.

    `events` are recorded by the loop before the result. `seen` are the versions of the files that were read or written whole. `paged`
    is a bounded page of a longer text that says how to go on; no limit of the profile shortens it again.
    `blob` is the address of the full output of a tool that has bounded its text itself.
    """

    text: str = ""
    parts: tuple[Part, ...] = ()
    error: bool = False
    exit: int | None = None
    paths: tuple[str, ...] = ()
    events: tuple[ToolEvent, ...] = ()
    seen: tuple[SeenFile, ...] = ()
    paged: bool = False
    blob: str = ""

    def contents(self) -> tuple[Part, ...]:
        """The parts of the tool result: the text first."""
        return ((Text(self.text),) if self.text or not self.parts else ()) + self.parts


def unchanged(text: str) -> str:
    """Return the arguments as the model wrote them."""
    return text


async def unchecked(_: str, __: Workspace) -> ToolOutput | None:
    """Return `None`: nothing is known about a call before it runs."""
    return None


@dataclass(frozen=True, slots=True)
class AgentTool:
    """A tool that the loop can run. `parallel` tools may run beside other calls of one reply.

    `polls` marks a tool that waits for something, so that equal calls in a row are expected and not a sign of a model in a loop.
    `seconds` is the time limit of a call; 0 for that of the loop. `check` returns the error of a call that is bound to fail and changes
    nothing; the user is not asked about such a call.

    A tool may be one of ours under the name and in the form that some models know: `own` is ours then, and `reads` turns what the model
    wrote into the arguments of that. Rules, hooks and snapshots are about our own.
    """

    declaration: Tool
    parallel: bool
    run: Callable[[str, Workspace], Coroutine[Any, Any, ToolOutput]]
    polls: bool = False
    seconds: float = 0.0
    check: Callable[[str, Workspace], Coroutine[Any, Any, ToolOutput | None]] = unchecked
    own: "AgentTool | None" = None
    reads: Callable[[str], str] = unchanged

    @property
    def name(self) -> str:
        """The name that the model calls it by."""
        return self.declaration.name

    @property
    def kind(self) -> ToolKind:
        """What it does to the world, as declared."""
        return self.declaration.kind


def call_text(tool: AgentTool, call: ToolCall) -> str:
    """The arguments of a call in the form that its tool reads: free text becomes the one text that a tool with JSON arguments needs."""
    if call.form != "free" or tool.declaration.form == "free":
        return call.args
    schema = msgspec.json.decode(tool.declaration.schema, type=_DeclaredFields)
    texts = [name for name in schema.required if schema.properties.get(name, {}).get("type") == "string"]
    return msgspec.json.encode({texts[0]: call.args}).decode() if len(texts) == len(schema.required) == 1 else call.args


def own_call(tool: AgentTool, call: ToolCall) -> tuple[AgentTool, ToolCall]:
    """Our own tool that a call is about, and the call in its words."""
    text = call_text(tool, call)
    if tool.own is None:
        return tool, call if text is call.args else replace(call, args=text, form="json")
    return tool.own, replace(call, tool=tool.own.name, args=tool.reads(text), form="json")


class _DeclaredFields(Struct):
    properties: dict[str, dict[str, Any]] = {}
    required: tuple[str, ...] = ()


def presented(own: AgentTool, declaration: Tool, reads: Callable[[str], str]) -> AgentTool:
    """One of our tools under another declaration; `reads` turns what the model wrote into our arguments, and never raises."""

    async def run(text: str, workspace: Workspace) -> ToolOutput:
        return await own.run(reads(text), workspace)

    async def check(text: str, workspace: Workspace) -> ToolOutput | None:
        return await own.check(reads(text), workspace)

    return AgentTool(declaration, own.parallel, run, own.polls, own.seconds, check, own, reads)


def define(
    arguments: type[Arguments],
    run: Callable[[Arguments, Workspace], Awaitable[ToolOutput]],
    *,
    name: str,
    description: str,
    kind: ToolKind,
    parallel: bool = False,
    polls: bool = False,
    check: Callable[[Arguments, Workspace], Awaitable[object]] | None = None,
) -> AgentTool:
    """A tool whose arguments are a frozen struct: its schema is declared to the model, and what the model sends is checked against it.

    `check` raises what `run` would raise for the state of files and of the session, and changes nothing.
    """
    decoder = msgspec.json.Decoder(arguments)

    async def attempted(text: str, work: Callable[[Arguments], Awaitable[ToolOutput | None]]) -> ToolOutput | None:
        try:
            decoded = decoder.decode(text or "{}")
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            return ToolOutput(
                f"The arguments of {name} are not valid: {error}. Call it again with arguments that match its schema.", error=True
            )
        try:
            return await work(decoded)
        except PalimpsestError as error:
            return ToolOutput(error.message, error=True)
        except OSError as error:
            # Files and processes change while a tool looks at them; that is a result for the model and must not end the turn.
            return ToolOutput(f"{name} failed: {one_line(str(error))}", error=True)

    async def checked_run(text: str, workspace: Workspace) -> ToolOutput:
        return await attempted(text, lambda decoded: run(decoded, workspace)) or ToolOutput()

    async def only_checked(text: str, workspace: Workspace) -> ToolOutput | None:
        async def work(decoded: Arguments) -> ToolOutput | None:
            if check is not None:
                await check(decoded, workspace)
            return None

        return await attempted(text, work)

    declaration = Tool(name, description, Raw(msgspec.json.encode(schema_of(arguments))), kind=kind)
    return AgentTool(declaration, parallel, checked_run, polls, check=only_checked)


def schema_of(arguments: type[Struct]) -> dict[str, Any]:
    """The JSON schema of the arguments, with the references of msgspec resolved: providers want one plain object."""
    whole = msgspec.json.schema(arguments)
    definitions: dict[str, Any] = whole.get("$defs", {})

    def resolved(value: Any) -> Any:  # any JSON
        if isinstance(value, dict):
            reference = value.get("$ref")
            if isinstance(reference, str):
                return resolved(definitions[reference.rpartition("/")[2]])
            return {key: resolved(each) for key, each in value.items() if key not in ("$defs", "title")}
        return [resolved(each) for each in value] if isinstance(value, list) else value

    schema: dict[str, Any] = resolved(whole)
    return schema | {"additionalProperties": False}


def bounded(text: str, limit: int, advice: str = "") -> str:
    """A text of at most `limit` bytes in UTF-8, and a line that says how many were left out, with some advice."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    return f"{data[:limit].decode('utf-8', 'ignore')}\n[{len(data) - limit:,} bytes left out{'; ' if advice else ''}{advice}]"


def one_line(text: str, limit: int = 300) -> str:
    """A text without line breaks, of at most `limit` characters."""
    joined = " ".join(text.split())
    return joined if len(joined) <= limit else f"{joined[: limit - 1]}…"
