"""Tools of MCP servers as tools of an agent, their prompts as commands, and the tools that list and read their resources."""

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from typing import Annotated, Any, Final

import mcp_types as types
import msgspec
from msgspec import Meta, Raw, Struct

from palimpsest.agent.tool import AgentTool, ToolError, ToolOutput, bounded, define, one_line
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.mcp.connection import ServerConnection, blocks_output, call_output, contents_output, visible
from palimpsest.core.errors import BadInput
from palimpsest.core.items import Part, Text
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


def prompt_commands(connection: ServerConnection) -> tuple[tuple[str, types.Prompt], ...]:
    """The prompts of a server, each with the command that inserts it."""
    return tuple((f"/{tool_name(connection.label, prompt.name)}", prompt) for prompt in connection.catalogue.prompts)


async def expanded_prompt(text: str, connections: Sequence[ServerConnection], workspace: Workspace) -> tuple[Part, ...]:
    """The message that a prompt makes of the user's text: a line that names it, and then the messages of the server.

    The words behind the name are the arguments in their order; the last one takes all words that are left. Raises `BadInput` if there is no
    such prompt or an argument is missing, `ToolError` if the server does not give it.
    """
    command, _, rest = text.strip().partition(" ")
    known = [(name, prompt, each) for each in connections for name, prompt in prompt_commands(each)]
    found = next(((prompt, each) for name, prompt, each in known if name == command), None)
    if found is None:
        names = ", ".join(name for name, _, _ in known) or "none"
        raise BadInput(
            f"there is no prompt {one_line(command, 80)}; the prompts of the connected MCP servers are: {one_line(names, 1_000)}"
        )
    prompt, connection = found
    result = await connection.get_prompt(prompt.name, _arguments(prompt, rest, command))
    parts: list[Part] = [
        Text(f"The prompt {one_line(prompt.name, 100)} of the MCP server {connection.label}, which I inserted:", attached=True)
    ]
    for message in result.messages:
        output = blocks_output((message.content,), workspace.keep)
        # A server may propose replies; they are shown as what they are.
        lead = "" if message.role == "user" else "[proposed reply]\n"
        parts += (Text(f"{lead}{output.text}", attached=True),) if output.text else ()
        parts += output.parts
    return tuple(parts)


def _arguments(prompt: types.Prompt, text: str, command: str) -> dict[str, str]:
    declared = prompt.arguments or []
    try:
        words = shlex.split(text)
    except ValueError:
        # An apostrophe is no open quote to a person.
        words = text.split()
    if len(words) > len(declared) > 0:
        words = [*words[: len(declared) - 1], " ".join(words[len(declared) - 1 :])]
    if words and not declared:
        raise BadInput(f"the prompt {command} has no arguments")
    given = dict(zip((each.name for each in declared), words, strict=False))
    missing = [each.name for each in declared if each.required and each.name not in given]
    if missing:
        raise BadInput(f"the prompt {command} needs the arguments {one_line(', '.join(each.name for each in declared))}")
    return given


LIST: Final = "list_mcp_resources"
READ: Final = "read_mcp_resource"
_LONGEST_LIST: Final = 50_000


class ResourceList(Struct, frozen=True, forbid_unknown_fields=True):
    """`server` limits the list to one server."""

    server: str = ""


class ResourceAddress(Struct, frozen=True, forbid_unknown_fields=True):
    """The server and the URI of a resource."""

    server: str
    uri: Annotated[str, Meta(min_length=1, max_length=4_000)]


def resource_tools(connections: Callable[[], Sequence[ServerConnection]], kind: ToolKind) -> tuple[AgentTool, AgentTool]:
    """The two tools over the servers of now. The list is the one that the servers gave last; reading asks the server, with class `kind`."""

    async def listed(arguments: ResourceList, _: Workspace) -> ToolOutput:
        lines = [line for each in _chosen(connections(), arguments.server) for line in _lines(each)]
        return ToolOutput(bounded("\n".join(lines), _LONGEST_LIST, "name a server") or "No server offers a resource.")

    async def read(arguments: ResourceAddress, workspace: Workspace) -> ToolOutput:
        (connection,) = _chosen(connections(), arguments.server)
        result = await connection.read_resource(arguments.uri)
        return contents_output(result.contents, workspace.keep)

    return (
        define(
            ResourceList,
            listed,
            name=LIST,
            description="List the resources that the connected MCP servers offer, by address; templates have `{names}` to fill in.",
            kind="reports",
            parallel=True,
        ),
        define(
            ResourceAddress,
            read,
            name=READ,
            description=f"Read a resource of an MCP server by its address. `{LIST}` lists the servers and addresses.",
            kind=kind,
        ),
    )


def _chosen(connections: Iterable[ServerConnection], server: str) -> list[ServerConnection]:
    """The server of a name, or all for an empty one. Raises `ToolError` if there is none."""
    known = list(connections)
    found = [each for each in known if server in ("", each.label)]
    if server and not found:
        raise ToolError(f"there is no MCP server {server!r}; the servers are: {', '.join(each.label for each in known) or 'none'}")
    return found


def _lines(connection: ServerConnection) -> Iterable[str]:
    catalogue = connection.catalogue
    for resource in catalogue.resources:
        yield _line(connection.label, resource.uri, resource)
    for template in catalogue.templates:
        yield _line(connection.label, template.uri_template, template)


def _line(label: str, address: str, offered: types.Resource | types.ResourceTemplate) -> str:
    kind = f" ({one_line(offered.mime_type, 60)})" if offered.mime_type else ""
    described = f": {one_line(offered.description)}" if offered.description else ""
    return f"{label} {one_line(address, 500)}{kind} {one_line(offered.name, 100)}{described}"
