"""The server by the official SDK: handlers of its requests, and an HTTP application that wants a token."""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import mcp_types as types
from mcp import MCPError
from mcp.server import Server, ServerRequestContext

from pal.mcp.answers import Answers, answer_or_error
from pal.mcp.greeting import INSTRUCTIONS, NAME, TITLE, VERSION
from palimpsest.core.errors import PalimpsestError

_MARKDOWN: Final = "text/markdown"
_Context = ServerRequestContext[Any]
_Scope = MutableMapping[str, Any]
_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[_Scope, _Receive, _Send], Awaitable[None]]


def server_of(answers: Answers) -> Server[Any]:
    """Return the server; each request is answered in a thread, because it reads files and databases."""
    declared = [types.Tool.model_validate(tool.declaration()) for tool in answers.tools.values()]

    async def list_tools(_: _Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=declared)

    async def call_tool(_: _Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        text, is_error = await asyncio.to_thread(answer_or_error, answers, params.name, params.arguments or {})
        return types.CallToolResult(content=[types.TextContent(text=text)], is_error=is_error)

    async def list_resources(_: _Context, __: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        offered = await _guarded(answers.resources)
        return types.ListResourcesResult(
            resources=[types.Resource(uri=each.uri, name=each.name, title=each.title, mime_type=_MARKDOWN) for each in offered]
        )

    async def read_resource(_: _Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        text = await _guarded(lambda: answers.read(str(params.uri)))
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=str(params.uri), mime_type=_MARKDOWN, text=text)])

    return Server(
        NAME,
        version=VERSION,
        title=TITLE,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )


async def _guarded(read: Callable[[], Any]) -> Any:
    try:
        return await asyncio.to_thread(read)
    except PalimpsestError as error:
        raise MCPError(code=types.INVALID_PARAMS, message=error.message) from error


def with_token(app: _App, token: str) -> _App:
    """Return an ASGI application that answers 401 to every request without the header `Authorization: Bearer TOKEN`."""
    wanted = f"Bearer {token}".encode()

    async def checked(scope: _Scope, receive: _Receive, send: _Send) -> None:
        given = next((value for name, value in scope.get("headers", ()) if name == b"authorization"), b"")
        if scope["type"] == "lifespan" or hmac.compare_digest(given, wanted):
            await app(scope, receive, send)
        elif scope["type"] == "http":
            await send(
                {"type": "http.response.start", "status": 401, "headers": [(b"www-authenticate", b"Bearer"), (b"content-length", b"0")]}
            )
            await send({"type": "http.response.body", "body": b""})

    return checked
