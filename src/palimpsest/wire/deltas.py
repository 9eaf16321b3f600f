"""What a stream brings, piece by piece, and the shape of whoever puts the pieces together."""

from collections.abc import Iterable
from typing import Protocol, TypeAlias

from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Value
from palimpsest.wire.lenient import Json


class TextDelta(Value, frozen=True, tag="text_delta"):
    """A piece of what the model says."""

    text: str


class ThinkingDelta(Value, frozen=True, tag="thinking_delta"):
    """A piece of what the model thinks aloud."""

    text: str


class CallDelta(Value, frozen=True, tag="call_delta"):
    """A piece of the arguments of a call; the first one of a call is empty and tells that it began."""

    call_id: str
    tool: str
    args: str


Delta: TypeAlias = TextDelta | ThinkingDelta | CallDelta


class Assembler(Protocol):
    """Puts the events of one reply of one wire together."""

    @property
    def complete(self) -> bool:
        """Whether the provider said that the reply is whole."""
        ...

    def take(self, event: Json) -> Iterable[Delta]:
        """One event of the stream; an error in it is raised."""
        ...

    def reply(self) -> ModelReplied:
        """What has arrived so far."""
        ...
