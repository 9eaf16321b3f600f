"""Asks the user of an editor whether a tool call may run, and maps the answer to an approval."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from acp import RequestError
from acp.interfaces import Client
from acp.schema import AllowedOutcome, ContentToolCallContent, PermissionOption, ToolCallProgress, ToolCallStart, ToolCallUpdate
from pydantic import ValidationError

from palimpsest.apps.acp.calls import ShownCall
from palimpsest.apps.acp.texts import fenced, text_block, valid
from palimpsest.apps.acp.updates import SessionUpdates, Update
from palimpsest.core.events import PermissionAsked
from palimpsest.core.log.log import Log
from palimpsest.tools.permissions.decision import Approval
from palimpsest.tools.tool import one_line

_ONCE, _ALWAYS, _NO = "once", "always", "no"
# Events before the newest in which a question of this session stands; those of sub-agents stand in other logs.
_RECENT: Final = 200
_REJECTED: Final = "the user rejected it in the editor"
_DISMISSED: Final = "the user dismissed the question in the editor"


class EditorApproval:
    """Asks by `session/request_permission`. `shown` waits until the editor has seen a question's call; `send` sends an update."""

    def __init__(
        self,
        client: Client,
        log: Log,
        updates: SessionUpdates,
        shown: Callable[[PermissionAsked], Awaitable[None]],
        send: Callable[[Update], Awaitable[None]],
    ) -> None:
        self._client = client
        self._log = log
        self._updates = updates
        self._shown = shown
        self._send = send

    async def __call__(self, asked: PermissionAsked) -> Approval:
        """Return the answer of the user; a question that is dismissed or cannot be asked is answered with no."""
        if self._is_own(asked):
            await self._shown(asked)
            return await self._ask(asked, asked.call_id, self._updates.open.get(asked.call_id))
        return await self._ask_for_sub_agent(asked)

    def _is_own(self, asked: PermissionAsked) -> bool:
        """Whether the question stands in this log as it is; ids of sub-agents may be equal to ours."""
        newest = self._log.tip
        return any(event.body == asked for event in self._log.reader.run(max(1, newest - _RECENT), newest))

    async def _ask_for_sub_agent(self, asked: PermissionAsked) -> Approval:
        call_id = f"sub-agent {asked.call_id}"
        title = valid(one_line(asked.tool))
        await self._send(ToolCallStart(session_update="tool_call", tool_call_id=call_id, title=title, kind="other", status="pending"))
        answer = Approval("no", "user", _DISMISSED)
        try:
            answer = await self._ask(asked, call_id, ShownCall(title, "other", [], []))
        finally:
            status: Any = "failed" if answer.answer == "no" else "completed"
            await self._send(ToolCallProgress(session_update="tool_call_update", tool_call_id=call_id, status=status))
        return answer

    async def _ask(self, asked: PermissionAsked, call_id: str, shown: ShownCall | None) -> Approval:
        question = ContentToolCallContent(type="content", content=text_block(fenced(asked.question)))
        call = ToolCallUpdate(
            tool_call_id=call_id,
            title=valid(one_line(asked.tool)) if shown is None else shown.title,
            kind="other" if shown is None else shown.kind,
            status="pending",
            content=[question, *(() if shown is None else shown.diffs)],
            locations=None if shown is None else shown.locations or None,
            raw_input=None if shown is None else shown.raw,
        )
        try:
            response = await self._client.request_permission(session_id=self._log.session, tool_call=call, options=_options(asked))
        except (RequestError, ValidationError, ConnectionError) as error:
            return Approval("no", "editor", f"the editor could not ask the user ({one_line(str(error), 200)})")
        outcome = response.outcome
        if not isinstance(outcome, AllowedOutcome):
            return Approval("no", "user", _DISMISSED)
        if outcome.option_id == _ALWAYS and asked.rule:
            return Approval("always")
        return Approval("once") if outcome.option_id == _ONCE else Approval("no", "user", _REJECTED)


def _options(asked: PermissionAsked) -> list[PermissionOption]:
    """The answers: once, always with the rule that it creates where one is safe, and no."""
    once = PermissionOption(option_id=_ONCE, name="Allow once", kind="allow_once")
    always = PermissionOption(option_id=_ALWAYS, name=valid(f"Always allow {one_line(asked.rule, 120)}"), kind="allow_always")
    no = PermissionOption(option_id=_NO, name="Reject", kind="reject_once")
    return [once, always, no] if asked.rule else [once, no]
