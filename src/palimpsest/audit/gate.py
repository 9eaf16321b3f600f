"""Nothing is installed unchecked: what an edit must keep, and what makes it refused."""

from typing import Literal, TypeAlias

from palimpsest.core.items import Value
from palimpsest.core.policy import Edits
from palimpsest.core.situation import Situation
from palimpsest.core.view import View

Strictness: TypeAlias = Literal["full", "alive"]


class Verdict(Value, frozen=True):
    """The edits as they may be installed, or why they may not; `removed` are lines of a narrative that nothing in the log supports."""

    edits: Edits = ()
    refused: str = ""
    removed: tuple[str, ...] = ()


def judge(edits: Edits, after: View, situation: Situation, *, shrinks: bool, strictness: Strictness = "full") -> Verdict:
    """Whether edits may be installed; `after` is the view that they would leave."""
    before = situation.scale.total(situation.view)
    if shrinks and situation.scale.total(after) >= before:
        return Verdict(refused="the view would not be smaller")
    return Verdict(edits)
