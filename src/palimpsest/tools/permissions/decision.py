"""The decision about a tool call: it runs, it waits for the answer of the user, or it is refused."""

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Allow:
    """The call runs; `by` is the mode or the rule that allows it."""

    by: str


@dataclass(frozen=True, slots=True)
class AskUser:
    """The user must decide; `rule` is the rule that the answer "always" would create, empty where no lasting rule is safe."""

    question: str
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Deny:
    """The call does not run; `by` is the mode or the rule that forbids it, `why` is shown to the model."""

    by: str
    why: str


Decision: TypeAlias = Allow | AskUser | Deny


@dataclass(frozen=True, slots=True)
class Approval:
    """The answer of the user: `always` also creates the rule of the question; `why` of a refusal is shown to the model."""

    answer: Literal["once", "always", "no"]
    by: str = "user"
    why: str = ""
