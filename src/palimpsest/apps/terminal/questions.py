"""Questions whether a call may run: what is asked, in words that can be read, and the keys that answer."""

import asyncio
from collections.abc import Callable
from typing import Final

from palimpsest.apps.terminal.screen.blocks import ToolBlock
from palimpsest.apps.terminal.screen.question import AnswerKey, PermissionQuestion
from palimpsest.core.events import PermissionAsked
from palimpsest.tools.permissions.decision import Approval

UNATTENDED: Final = "no answer came in time"


class Questions:
    """Asks one question at a time; others wait. `changed` is called when another question is open, or none.

    A rule that the user allowed for good answers later questions of the same rule, so none of them is asked twice.
    """

    def __init__(self, changed: Callable[[], None], call_of: Callable[[str], ToolBlock | None], seconds: float | None = None) -> None:
        self._changed = changed
        self._call_of = call_of
        self._seconds = seconds
        self._one = asyncio.Lock()
        self._answer: asyncio.Future[Approval] | None = None
        self._allowed: set[str] = set()
        self.open: PermissionQuestion | None = None

    async def ask(self, asked: PermissionAsked) -> Approval:
        """Return the answer of the user. Without one in time, the call is refused."""
        async with self._one:
            if asked.rule and asked.rule in self._allowed:
                return Approval("once", "user", "allowed for this rule before")
            self._answer = asyncio.get_running_loop().create_future()
            self.open = PermissionQuestion(asked, self._call_of(asked.call_id))
            self._changed()
            try:
                async with asyncio.timeout(self._seconds):
                    approval = await self._answer
            except TimeoutError:
                return Approval("no", "timeout", UNATTENDED)
            finally:
                self.open = self._answer = None
                self._changed()
            if approval.answer == "always":
                self._allowed.add(asked.rule)
            return approval

    def answer(self, key: AnswerKey, why: str = "") -> None:
        """Answer the open question; `why` of a refusal is shown to the model. A key that the question does not offer is ignored."""
        if self.open is None or self._answer is None or self._answer.done():
            return
        if key not in [offered for offered, _ in self.open.choices]:
            return
        match key:
            case "y":
                self._answer.set_result(Approval("once"))
            case "a":
                self._answer.set_result(Approval("always"))
            case "n" | "esc":
                self._answer.set_result(Approval("no", why=why or "the user said no"))
