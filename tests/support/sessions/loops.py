"""Turns of a scripted model with tools that are plain functions, and what they leave in the log."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from workplace import answered_by, work

from palimpsest.agent.decision import Approval, Decision
from palimpsest.agent.feed import Feed, Piece, unfollowed
from palimpsest.agent.limits import NO_LIMITS, Limits
from palimpsest.agent.session import Session
from palimpsest.agent.tool import AgentTool, ToolOutput
from palimpsest.agent.tool_calls import Toolbox, allow_all, no_approver
from palimpsest.agent.turn import Loop
from palimpsest.agent.workspace import Workspace
from palimpsest.core.budget import Budget
from palimpsest.core.events import Body, ModelReplied, PermissionAsked, ToolReturned, UserTyped
from palimpsest.core.items import Text, ToolCall, text_of
from palimpsest.policies.profile import Profile
from palimpsest.providers.scripted import Scripted, ScriptedReply
from palimpsest.wire.request import Tool

PROFILE = Profile("test", (), lambda card: Budget(card.window))


def tool(name: str, run: Callable[[str], Awaitable[str]], *, parallel: bool = False) -> AgentTool:
    async def answer(args: str, _: Workspace) -> ToolOutput:
        return ToolOutput(await run(args))

    return AgentTool(Tool(name), parallel, answer)


async def echo(args: str) -> str:
    return f"echo {args}"


ECHO = tool("echo", echo)


def calls(*asked: tuple[str, str, str], text: str = "") -> ModelReplied:
    said = (Text(text, "assistant"),) if text else ()
    return ModelReplied((*said, *(ToolCall(call_id, name, args) for call_id, name, args in asked)))


def loop_of(
    *replies: ScriptedReply,
    tools: tuple[AgentTool, ...] = (ECHO,),
    limits: Limits = NO_LIMITS,
    profile: Profile = PROFILE,
    decide: Callable[[AgentTool, ToolCall], Decision] = allow_all,
    approve: Callable[[PermissionAsked], Awaitable[Approval]] = no_approver,
    publish: Callable[[Piece], None] | None = None,
) -> Loop:
    session = answered_by(work(profile), Scripted(*replies))
    toolbox = Toolbox({each.name: each for each in tools}, Workspace(Path("/")), decide, approve)
    feed = unfollowed(session.log) if publish is None else Feed(session.log, publish)
    return Loop(session, toolbox, feed, limits)


def typed(session: Session, text: str) -> None:
    session.log.append(UserTyped((Text(text),)))


def bodies(session: Session, *skipped: type) -> list[Body]:
    return [event.body for event in session.log.events() if not isinstance(event.body, skipped)]


def kinds(session: Session) -> list[str]:
    return [type(body).__name__ for body in bodies(session)]


def shown(session: Session) -> list[tuple[str, str]]:
    return [(item.kind, text_of(item.content)) for item in session.log.view.items]


def results(session: Session) -> list[tuple[str, str]]:
    return [(body.result.call_id, text_of(body.result)) for body in bodies(session) if isinstance(body, ToolReturned)]
