"""The tools of MCP servers as tools of an agent: their names, declarations and calls."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from typing import Any, Final

import mcp_types as types
import msgspec
from msgspec import Raw

from palimpsest.tools.mcp.connection import ServerConnection
from palimpsest.tools.mcp.results import call_output, visible
from palimpsest.tools.tool import AgentTool, ToolOutput, one_line
from palimpsest.tools.workspace import Workspace
from palimpsest.wire.request import Tool, ToolKind

PREFIX: Final = "mcp__"
LONGEST_NAME: Final = 64
LONGEST_DESCRIPTION: Final = 2_000
"""Characters; every declared tool is part of every request."""
LARGEST_SCHEMA: Final = 20_000
"""Bytes."""
_UNSUITED: Final = re.compile(r"[^a-zA-Z0-9_-]+")
_PROPERTY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
# Providers refuse a request with a tool whose schema has one of these at its root, so that one tool would end the session.
_NOT_AT_ROOT: Final = ("$schema", "$id", "oneOf", "anyOf", "allOf", "not", "enum", "const")
# What stands below these is data and no schema.
_DATA: Final = frozenset({"default", "examples", "example", "enum", "const"})


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Which tools of a server are used, and whether its claim that a tool only reads is believed."""

    only: frozenset[str] | None = None
    without: frozenset[str] = frozenset()
    reads: bool = False


def server_tools(connection: ServerConnection, choice: ToolChoice, taken: Iterable[str] = ()) -> tuple[list[AgentTool], list[str]]:
    """The tools of a server in its own order, and a line for each that cannot be used. Names are unique, also among the `taken` ones.

    A tool may do anything, so it is of the class `runs`; with `choice.reads`, one that the server calls read-only is of the class `reads`.
    """
    names = set(taken)
    tools: list[AgentTool] = []
    problems: list[str] = []
    seen: set[str] = set()
    for tool in connection.catalogue.tools:
        if tool.name in choice.without or (choice.only is not None and tool.name not in choice.only):
            continue
        if tool.name in seen:
            problems.append(f"the tool {one_line(tool.name, 80)} of the MCP server {connection.label} is listed twice")
            continue
        seen.add(tool.name)
        try:
            schema = declared_schema(tool.input_schema)
        except ValueError as error:
            problems.append(f"the tool {one_line(tool.name, 80)} of the MCP server {connection.label} is left out: {error}")
            continue
        name = tool_name(connection.label, tool.name, names)
        names.add(name)
        hinted = tool.annotations is not None and tool.annotations.read_only_hint is True
        kind: ToolKind = "reads" if choice.reads and hinted else "runs"
        tools.append(_agent_tool(connection, tool, Tool(name, _description(tool), Raw(schema), kind=kind)))
    return tools, problems


def tool_name(label: str, name: str, taken: Iterable[str] = ()) -> str:
    """The name of a tool for the model, `mcp__SERVER__TOOL`; a digest is added where it would be too long, empty or taken."""
    suited = _UNSUITED.sub("_", name).strip("_")
    whole = f"{PREFIX}{label}__{suited}"
    if suited and len(whole) <= LONGEST_NAME and whole not in taken:
        return whole
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{whole[: LONGEST_NAME - len(digest) - 1].rstrip('_')}_{digest}" if suited else f"{PREFIX}{label}__tool_{digest}"


def _description(tool: types.Tool) -> str:
    return visible(tool.description or tool.title or tool.name, LONGEST_DESCRIPTION)


def _agent_tool(connection: ServerConnection, tool: types.Tool, declaration: Tool) -> AgentTool:
    async def run(text: str, workspace: Workspace) -> ToolOutput:
        try:
            arguments = msgspec.json.decode(text or "{}", type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeError) as error:
            return ToolOutput(f"The arguments of {declaration.name} are not valid: {error}. Call it again.", error=True)
        return call_output(await connection.call_tool(tool.name, arguments), workspace.keep)

    return AgentTool(declaration, parallel=declaration.kind == "reads", run=run)


def declared_schema(schema: Mapping[str, Any]) -> bytes:
    """The schema of a tool as it is declared. Raises `ValueError` with a reason if providers would refuse the request because of it."""
    mended = {key: value for key, value in schema.items() if key not in _NOT_AT_ROOT}
    if mended.setdefault("type", "object") != "object":
        raise ValueError("its arguments are no object")
    mended.setdefault("properties", {})
    # By name, because the package has no types.
    jsonschema = import_module("jsonschema")
    try:
        encoded = msgspec.json.encode(mended)
        if len(encoded) > LARGEST_SCHEMA:
            raise ValueError(f"its schema has {len(encoded):,} bytes; at most {LARGEST_SCHEMA:,} are declared")
        _check(mended)
        jsonschema.Draft202012Validator.check_schema(mended)
    except (TypeError, RecursionError, msgspec.MsgspecError) as error:
        raise ValueError(f"its schema cannot be declared ({one_line(str(error))})") from error
    except jsonschema.SchemaError as error:
        raise ValueError(f"its schema is no valid JSON schema ({one_line(error.message)})") from error
    return encoded


def _check(schema: object) -> None:
    """Raise `ValueError` for names of properties that providers refuse, and for references to other documents."""
    if isinstance(schema, list):
        for each in schema:
            _check(each)
    if not isinstance(schema, dict):
        return
    reference = schema.get("$ref")
    if isinstance(reference, str) and not reference.startswith("#"):
        raise ValueError("its schema refers to another document")
    properties = schema.get("properties")
    for name, value in properties.items() if isinstance(properties, dict) else ():
        if _PROPERTY.fullmatch(name) is None:
            raise ValueError(f"the name of its argument {one_line(name, 80)!r} is one that providers refuse")
        _check(value)
    for key, value in schema.items():
        if key not in _DATA and key != "properties":
            _check(value)
