"""The mode of an agent, which the user can change at any moment, also in the middle of a turn."""

from contextlib import suppress
from typing import Final, get_args

from palimpsest.core.errors import BadInput, CallOpen
from palimpsest.core.events import ModeChanged
from palimpsest.engine.children.roles import narrower_mode
from palimpsest.engine.session import Session
from palimpsest.tools.permissions.decision import Mode

DEFAULT_COLLABORATION: Final = "default"
"""Ends a way of working together, where a profile has such ways."""


class LiveMode:
    """The mode of a session, and under some profiles a way of working together beside it, such as pair programming.

    The mode of a sub-agent follows `parent` and is never wider than `widest`, the mode of its role.
    """

    def __init__(self, session: Session, mode: Mode, parent: "LiveMode | None" = None, widest: Mode | None = None) -> None:
        self._session = session
        self._own = mode
        self._parent = parent
        self._widest = widest
        self._collaboration = session.log.view.collaboration or session.profile.collaboration

    @property
    def collaborations(self) -> tuple[str, ...]:
        """The ways of working together that the profile of the session has."""
        return self._session.profile.collaborations

    @property
    def collaboration(self) -> str:
        """The way of working together; empty for none."""
        return self._collaboration if self._collaboration in self.collaborations else ""

    @property
    def current(self) -> Mode:
        """The mode that decides about the next tool call."""
        return self._own if self._parent is None else narrower_mode(self._parent.current, self._widest)

    def change(self, mode: str) -> None:
        """Decide by another mode from the next tool call on, for the sub-agents too. Raises `BadInput` if there is no such mode."""
        if self._parent is not None:
            raise BadInput("a sub-agent follows the mode of the agent that started it; change that one")
        if mode in self.collaborations or (self.collaborations and mode == DEFAULT_COLLABORATION):
            self._collaboration = "" if mode == DEFAULT_COLLABORATION else mode
            self._record(self._own)
            return
        found: Mode | None = next((known for known in get_args(Mode) if known == mode), None)
        if found is None:
            known = (*get_args(Mode), *self.collaborations, *([DEFAULT_COLLABORATION] if self.collaborations else []))
            raise BadInput(f"there is no mode {mode!r}; the modes are {', '.join(known)}", where="mode")
        self._record(found)
        self._own = found

    def record(self) -> None:
        """Record the mode if the log has another one. During a model call nothing is recorded; the next safe point does it."""
        self._record(self.current)

    def _record(self, mode: Mode) -> None:
        view = self._session.log.view
        if (view.mode, view.collaboration) != (mode, self.collaboration):
            with suppress(CallOpen):
                self._session.log.append(ModeChanged(mode, view.mode, self.collaboration))
