"""Bodies that version 0.1.0 wrote and this one only reads, as the bodies that replaced them."""

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw, Struct

from palimpsest.core.bodies.calls import NULL, ModelReplied, Usage
from palimpsest.core.bodies.context import EditRefused
from palimpsest.core.bodies.tools import ToolRefused
from palimpsest.core.edits import Edit
from palimpsest.core.events import Body
from palimpsest.core.items import Text


class _SideCalled(Struct, frozen=True):
    """A call beside the conversation: one body for the request and its reply."""

    purpose: str
    model: str
    usage: Usage = Usage()
    text: str = ""
    ask: str = ""
    foreign: Raw = NULL


class _Refused(Struct, frozen=True):
    """An edit or a tool call that was not allowed."""

    what: str
    by: str
    why: str
    call_id: str = ""
    edits: tuple[Edit, ...] = ()
    of: str = ""
    foreign: Raw = NULL


_side_calls = msgspec.json.Decoder(_SideCalled)
_refusals = msgspec.json.Decoder(_Refused)
_encode = msgspec.json.Encoder().encode


def _replied(data: bytes) -> Body:
    """A reply without a recorded start; its prompt is kept where only readers of the raw event look."""
    old = _side_calls.decode(data)
    foreign = Raw(_encode({"ask": old.ask})) if old.ask and bytes(old.foreign) == b"null" else old.foreign
    parts = (Text(old.text, "assistant"),) if old.text else ()
    return ModelReplied(parts, usage=old.usage, model=old.model, purpose=old.purpose, foreign=foreign)


def _refused(data: bytes) -> Body:
    old = _refusals.decode(data)
    if old.edits or old.of or old.what == "edit":
        return EditRefused(old.edits, old.of, old.by, old.why, foreign=old.foreign)
    return ToolRefused(old.call_id, old.what, old.by, old.why, foreign=old.foreign)


LEGACY: Mapping[str, Callable[[bytes], Body]] = {"side_called": _replied, "refused": _refused}
