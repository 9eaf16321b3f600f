"""The contract of a tool, and tools from plain Python functions and from packages."""

import asyncio
import inspect
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar, get_type_hints

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from palimpsest.agent.workspace import Workspace
from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.core.events import NoteForgotten, NoteSaved, ProcessEnded, ProcessStarted, SeenFile, TaskChanged
from palimpsest.core.items import Part, Text, ToolCall
from palimpsest.wire.request import Tool, ToolKind

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

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


GROUP: Final = "palimpsest.tools"
"""The entry point group of tools of other packages."""
LONGEST_RESULT: Final = 100_000
"""Bytes of the text that a function returns."""
SECONDS: Final = 120.0
_PARAMETERS: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class InstalledTools(NamedTuple):
    """The tools of other packages, and a line for each entry point that could not be used."""

    tools: tuple[AgentTool, ...] = ()
    problems: tuple[str, ...] = ()


def tool_from(
    function: Callable[..., Any], *, name: str = "", kind: ToolKind = "runs", parallel: bool = False, seconds: float = SECONDS
) -> AgentTool:
    """A tool that calls a function, sync or async, whose parameters are annotated and whose docstring tells the model what it does.

    A parameter of type `Workspace` gets the workspace and is not declared. The function may return a text, a `ToolOutput`, or any value
    that JSON can express. What it raises becomes an error result of one line. After `seconds` the model gets an error; an async function
    is cancelled then, but a sync function goes on in its thread. Raises `BadInput` if no tool can be made of the function.
    """
    called = name or getattr(function, "__name__", "")
    arguments, workspaces = _arguments(function, called)

    async def run(decoded: Struct, workspace: Workspace) -> ToolOutput:
        given = msgspec.structs.asdict(decoded) | dict.fromkeys(workspaces, workspace)
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                if inspect.iscoroutinefunction(function):
                    value = await function(**given)
                else:
                    value = await asyncio.to_thread(function, **given)
            return _output(value)
        except PalimpsestError:
            raise
        except Exception as error:  # noqa: BLE001 - what a foreign function raises is a result for the model, and must not end the turn
            if limit.expired():
                return ToolOutput(f"{called} took more than {seconds:g} s", error=True)
            return ToolOutput(f"{called} failed: {one_line(f'{type(error).__name__}: {error}')}", error=True)

    description = inspect.getdoc(function)
    if not description:
        raise BadInput(f"the function {called} has no docstring; the model reads it to know what the tool does")
    try:
        return define(arguments, run, name=called, description=description, kind=kind, parallel=parallel)
    except (TypeError, RecursionError) as error:
        raise BadInput(f"the parameters of {called} have types that no JSON schema can express: {one_line(str(error))}") from error


def _arguments(function: Callable[..., Any], name: str) -> tuple[type[Struct], tuple[str, ...]]:
    """The struct of the declared parameters, and the names of those that get the workspace."""
    if not name.isidentifier():
        raise BadInput(f"a tool cannot be called {name!r}; give it a name of letters, digits and underscores")
    try:
        hints = get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters.values()
    except (NameError, TypeError, ValueError) as error:
        raise BadInput(f"the signature of {name} cannot be read: {one_line(str(error))}") from error
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    workspaces: list[str] = []
    for parameter in parameters:
        if parameter.kind not in _PARAMETERS:
            raise BadInput(f"the parameter {parameter.name} of {name} has no name for the model; use plain parameters")
        if parameter.name not in hints:
            raise BadInput(f"the parameter {parameter.name} of {name} has no annotation; the model needs its type")
        hint = hints[parameter.name]
        if hint is Workspace:
            workspaces.append(parameter.name)
        elif parameter.default is inspect.Parameter.empty:
            fields.append((parameter.name, hint))
        else:
            fields.append((parameter.name, hint, parameter.default))
    try:
        return msgspec.defstruct(name, fields, frozen=True, forbid_unknown_fields=True, kw_only=True), tuple(workspaces)
    except (TypeError, ValueError) as error:
        raise BadInput(f"the parameters of {name} cannot be declared: {one_line(str(error))}") from error


def _output(value: object) -> ToolOutput:
    match value:
        case ToolOutput():
            return value
        case None:
            return ToolOutput("[no output]")
        case str():
            return ToolOutput(bounded(value, LONGEST_RESULT))
        case _:
            return ToolOutput(bounded(msgspec.json.encode(value, enc_hook=str).decode(), LONGEST_RESULT))


def installed_tools(entries: "Iterable[EntryPoint] | None" = None, taken: Iterable[str] = ()) -> InstalledTools:
    """The tools that other packages offer in the group `palimpsest.tools`.

    An entry point names a function, an `AgentTool`, or a tuple or list of them. One that cannot be loaded costs only its own tools. A tool
    with a name that is `taken` is left out, so that no package can replace a tool of another.
    """
    names = set(taken)
    tools: list[AgentTool] = []
    problems: list[str] = []
    for entry in sorted(entry_points(GROUP) if entries is None else entries, key=lambda each: (each.name, each.value)):
        try:
            loaded = tuple(_tools_in(entry.load()))
        except Exception as error:  # noqa: BLE001 - a package can raise anything when it is imported, and must not keep the agent from starting
            problems.append(f"the tools of {entry.name} ({entry.value}) cannot be loaded: {one_line(f'{type(error).__name__}: {error}')}")
            continue
        for tool in loaded:
            if tool.name in names:
                problems.append(f"the tool {tool.name} of {entry.name} ({entry.value}) is left out: its name is taken")
            else:
                names.add(tool.name)
                tools.append(tool)
    return InstalledTools(tuple(tools), tuple(problems))


def entry_points(group: str) -> "Iterable[EntryPoint]":
    """The entry points of a group in all installed packages."""
    name = group.encode()
    if not any(_may_offer(place, name) for place in sys.path) and not any(
        hasattr(finder, "find_distributions") for finder in sys.meta_path if finder is not PathFinder
    ):
        return ()
    from importlib.metadata import entry_points as installed

    return installed(group=group)


def _may_offer(place: str, group: bytes) -> bool:
    """Whether a place of the import path has a package that names the group, or is no folder of packages that can be listed."""
    if place.lower().endswith(".egg"):
        return True
    try:
        with os.scandir(place or ".") as entries:
            names = [entry.name for entry in entries if entry.name.lower().endswith((".dist-info", ".egg-info"))]
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return any(_names_group(Path(place, name, "entry_points.txt"), group) for name in names)


def _names_group(declaration: Path, group: bytes) -> bool:
    try:
        return group in declaration.read_bytes()
    except OSError:
        return False


def _tools_in(value: object) -> Iterator[AgentTool]:
    match value:
        case AgentTool():
            yield value
        case tuple() | list():
            for each in value:
                yield from _tools_in(each)
        case _ if inspect.isfunction(value):
            yield tool_from(value)
        case _:
            raise BadInput(f"{type(value).__name__} is no tool; an entry point names a function, an AgentTool, or a list of them")


def tools_by_name(tools: Iterable[AgentTool | Callable[..., Any]]) -> dict[str, AgentTool]:
    """Return the tools by name, functions as tools. Raises `BadInput` if two of them have one name: the model could call only one."""
    found: dict[str, AgentTool] = {}
    for given in tools:
        tool = given if isinstance(given, AgentTool) else tool_from(given)
        if tool.name in found:
            raise BadInput(f"two tools are called {tool.name!r}; give one of them another name")
        found[tool.name] = tool
    return found
