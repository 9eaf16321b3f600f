"""What makes a profile: its policies in order, and the numbers that the engine needs beside them."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from palimpsest.audit.gate import Strictness
from palimpsest.core.events import ToolReturned
from palimpsest.core.policy import Answer, Policy, Want
from palimpsest.core.projections.health import CIRCUIT
from palimpsest.core.situation import PARTS
from palimpsest.core.tokens.budget import Budget, used
from palimpsest.core.tokens.view_sizes import CountsTokens
from palimpsest.core.view import View
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.request import DEFAULTS, Params

Arrival: TypeAlias = Callable[[ToolReturned], Generator[Want, Answer, ToolReturned]]
Count: TypeAlias = Callable[[View, CountsTokens, int], int]


def _unchanged(returned: ToolReturned) -> Generator[Want, Answer, ToolReturned]:
    yield from ()
    return returned


def for_all(arrival: Arrival) -> Callable[[ModelCard], Arrival]:
    """What bounds the results of tools in the same way, whichever model reads them."""
    return lambda _: arrival


_UNCHANGED: Final = for_all(_unchanged)


@dataclass(frozen=True, slots=True)
class Profile:
    """A way of working. Policies are asked in this order; `rung` folds without a model when one was asked for and there is none.

    `circuit` failures in a row stop a policy from being tried by itself (0: never), `folds` is how many a turn may have (0: any number).
    `overflow` says what happens when the provider finds a request too long, `insists` that no call is made after a fold that failed.
    A profile that `recounts` forgets after a fold what was reported before it, as its original does. `arrival` bounds a tool's result
    before it is recorded, `parts` is what a fold leaves beside head and messages.
    """

    name: str
    policies: tuple[Policy, ...]
    budget: Callable[[ModelCard], Budget]
    rung: Policy | None = None
    size: str = "palimpsest"
    count: Count = used
    strictness: Strictness = "alive"
    overflow: Literal["stop", "fold"] = "fold"
    insists: bool = False
    recounts: bool = False
    circuit: int = CIRCUIT
    folds: int = 2
    parts: int = PARTS
    arrival: Callable[[ModelCard], Arrival] = _UNCHANGED
    params: Params = DEFAULTS
