"""Tools from plain typed Python functions, and from other packages by entry point."""

import asyncio
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_type_hints

import msgspec
from msgspec import Struct

from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.tools.tool import AgentTool, ToolOutput, bounded, define, one_line
from palimpsest.tools.workspace import Workspace
from palimpsest.wire.request import ToolKind

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

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
    from importlib.metadata import entry_points as installed  # noqa: PLC0415 - 20 ms, and most installations have no such package

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
