"""An open question whether a call may run, as the screen shows it: what is asked, and the keys that answer."""

from typing import Literal, TypeAlias

from msgspec import Struct

from palimpsest.apps.shown_text import plain
from palimpsest.apps.terminal.screen.blocks import ToolBlock
from palimpsest.core.events import PermissionAsked

AnswerKey: TypeAlias = Literal["y", "a", "n", "esc"]


class PermissionQuestion(Struct, frozen=True):
    """One question: what the permissions ask, and the call it is about if the screen knows it."""

    asked: PermissionAsked
    call: ToolBlock | None = None

    @property
    def choices(self) -> tuple[tuple[AnswerKey, str], ...]:
        """The keys that answer, with what each does. `a` exists only where a lasting rule is safe."""
        always: tuple[tuple[AnswerKey, str], ...] = (("a", f"always: allow {plain(self.asked.rule)}"),) if self.asked.rule else ()
        return (("y", "yes, once"), *always, ("n", "no"), ("esc", "no, and stop"))
