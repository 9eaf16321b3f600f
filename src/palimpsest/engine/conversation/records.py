"""What a caller gets about the edits of its list: values that say who, why, how many tokens, at what price, and what is hidden."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from palimpsest.core.edits import Loss, ReasoningLost
from palimpsest.core.events import Event, ViewEdited
from palimpsest.core.log.log import Log


class EditRecord(Struct, frozen=True):
    """One edit of the view: `event` is its number, by which it can be undone; `by` is a policy, or `owner` for the caller's own edit.

    Tokens are those of the request before and after it. `price_usd` is what it costs once; `loss` names what it hides, and
    `reasoning_lost` counts the thinking that is no longer sent because of it.
    """

    event: int
    by: str
    why: str
    moment: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    price_usd: float | None = None
    saved_usd_per_call: float | None = None
    loss: Loss | None = None
    undone: bool = False
    reasoning_lost: ReasoningLost | None = None


class Compacted(Struct, frozen=True):
    """The result of `compact`: the list to send, the edits, and the tokens before and after them.

    `reason` says why the list was left as it is; it is empty if there are edits.
    """

    messages: Sequence[Any]
    edits: tuple[EditRecord, ...] = ()
    tokens_before: int = 0
    tokens_after: int = 0
    reason: str = ""


def edit_records(log: Log) -> Iterator[EditRecord]:
    """Yield the edits of the current path, oldest first."""
    undone = log.reader.undone_edits(log.path)
    for event in log.events():
        if isinstance(event.body, ViewEdited):
            yield edit_record(event, event.body, undone=undone.get(event.seq) == frozenset())


def edit_record(event: Event, edited: ViewEdited, *, undone: bool = False) -> EditRecord:
    """Return one edit as a caller gets it."""
    return EditRecord(
        event.seq,
        edited.by,
        edited.why,
        edited.moment,
        edited.tokens_before,
        edited.tokens_after,
        edited.price_usd,
        edited.saved_usd_per_call,
        edited.loss,
        undone,
        edited.reasoning_lost,
    )
