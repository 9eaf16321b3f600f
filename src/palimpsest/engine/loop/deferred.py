"""Deferred tools: those beyond a budget of tokens are listed by name only, and declared to the model after it searched for them."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.tokens.estimate import estimate
from palimpsest.engine.session import Session
from palimpsest.sources.tools import search_tools
from palimpsest.tools.session.tool_search import SEARCH, tool_search_tool
from palimpsest.tools.tool import AgentTool
from palimpsest.wire.request import Tool

KEY: Final = "deferred_tools"
"""The key of the source that lists them."""
WINDOW_SHARE: Final = 10
"""Tool declarations may take one part in so many of the window before the rest is deferred."""


def tool_budget(session: Session) -> int | None:
    """Tokens of all declarations above which tools are deferred; `None` if the profile has no source that would list them."""
    listed = any(source.key == KEY for source in session.profile.sources.sources)
    return session.card.window // WINDOW_SHARE if listed else None


def declared_tokens(tool: Tool) -> int:
    """Estimated tokens of a declaration."""
    return estimate(tool.name + tool.description + bytes(tool.schema).decode("utf-8", "replace"))


def within_budget(own: Sequence[AgentTool], others: Iterable[AgentTool], budget: int | None) -> tuple[list[AgentTool], list[AgentTool]]:
    """Return the tools to declare and those to defer. Our own are always declared; the others in order, as long as they fit."""
    loaded = list(own)
    if budget is None:
        return [*loaded, *others], []
    room = budget - sum(declared_tokens(tool.declaration) for tool in own)
    deferred: list[AgentTool] = []
    for tool in others:
        room -= declared_tokens(tool.declaration)
        # Once one is deferred all later ones are, so that what is loaded does not depend on the sizes of single tools.
        (loaded if room >= 0 and not deferred else deferred).append(tool)
    return loaded, deferred


class DeferredTools:
    """The deferred tools of a session. Loading one adds it to `tools`, which the loop looks up calls in, and offers it.

    `offered_before` is the blob of the tools that the session was offered before this process: those that join late are loaded again.
    """

    def __init__(self, tools: dict[str, AgentTool], deferred: Iterable[AgentTool], offered_before: str = "") -> None:
        self._tools = tools
        self._offered_before = offered_before
        self._deferred = {tool.name: tool for tool in deferred}
        self.offer: Callable[[], None] = lambda: None
        if self._deferred:
            tools[SEARCH] = tool_search_tool(self.load)

    @property
    def declarations(self) -> tuple[Tool, ...]:
        """All of them, loaded or not; the source tells them apart by the tools that are offered."""
        return tuple(tool.declaration for tool in self._deferred.values())

    def join(self, session: Session, tools: Iterable[AgentTool]) -> None:
        """Add tools that came during a session, and offer them: declared as long as the budget has room, else deferred."""
        declared = list(self._tools.values())
        loaded, rest = within_budget(declared, tools, tool_budget(session))
        self._tools.update((tool.name, tool) for tool in loaded)
        self._deferred.update((tool.name, tool) for tool in rest)
        if self._deferred and SEARCH not in self._tools:
            self._tools[SEARCH] = tool_search_tool(self.load)
        self.load_again(session)
        self.offer()

    def load(self, query: str) -> tuple[Tool, ...]:
        """Load the tools that fit a query, best first, and return their declarations; empty if none fits."""
        found = search_tools(query, self.declarations)
        self._add(tool.name for tool in found)
        return found

    def load_again(self, session: Session) -> None:
        """Load the tools that a resumed session was offered last, or had in its last call."""
        call = session.log.view.call
        for blob in dict.fromkeys(("" if call is None else call.tools, self._offered_before)):
            if blob and self._deferred:
                from palimpsest.wire.past_requests import recorded_tools  # a new session has no past request

                # Without the record the model finds them again.
                with suppress(PalimpsestError):
                    self._add(tool.name for tool in recorded_tools(blob, session.environment.blobs.get))

    def _add(self, names: Iterable[str]) -> None:
        new = [name for name in names if name in self._deferred and name not in self._tools]
        if new:
            self._tools.update((name, self._deferred[name]) for name in new)
            self.offer()
