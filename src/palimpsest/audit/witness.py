"""Everything beside the view that policies look at, kept up to date as events come."""

from collections.abc import Callable, Iterable, Mapping
from typing import Self

import msgspec
from msgspec import Raw

from palimpsest.audit.cached import CacheProjection
from palimpsest.audit.evidence import EvidenceProjection
from palimpsest.audit.rent import rent_of_call
from palimpsest.audit.tools import Action, ToolClass
from palimpsest.audit.uses import UsesProjection
from palimpsest.core.edits import Fold
from palimpsest.core.events import CallStarted, Event, ViewEdited
from palimpsest.core.items import Content, ToolResult, Value
from palimpsest.core.log import Log
from palimpsest.core.project import ViewProjection
from palimpsest.core.situation import PARTS, Cache, Card, Evidence, Use
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.view import EMPTY, View

VERSION = 1


class _Memo(Value, frozen=True):
    """What a checkpoint keeps of a witness, so that resuming need not look at the whole log again."""

    evidence: Evidence
    uses: dict[str, Use]
    cache: Cache
    rent: float
    v: int = VERSION


_memos = msgspec.json.Decoder(_Memo)
_encode = msgspec.json.Encoder().encode


class Witness:
    """Sees every event of one session, along its path; `counter` and `card` may change when the model does.

    `declared` says what tools are for that tell more of themselves than their names do.
    """

    def __init__(
        self,
        counter: TokenCounter,
        card: Card,
        tools_tokens: int = 0,
        parts: int = PARTS,
        *,
        declared: Mapping[str, ToolClass] | None = None,
    ) -> None:
        self.counter = counter
        self.card = card
        self.tools_tokens = tools_tokens
        self._parts = parts
        self.rent = 0.0
        self._evidence = EvidenceProjection()
        self._uses = UsesProjection()
        self._cache = CacheProjection()
        self.declared = declared
        self._follow_declarations()

    @classmethod
    def of(
        cls,
        log: Log,
        counter: TokenCounter,
        card: Card,
        tools_tokens: int = 0,
        parts: int = PARTS,
        *,
        declared: Mapping[str, ToolClass] | None = None,
    ) -> Self:
        """A witness of all that a log tells; with a memo only what came after it is looked at."""
        witness = cls(counter, card, tools_tokens, parts, declared=declared)
        start, view = witness._recall(log)
        witness._follow_declarations()
        path = log.path
        projection = ViewProjection(view, log.reader.skip(path), log.reader.item)
        for run in path.runs:
            for event in log.reader.run(max(run.first, start + 1), run.last) if run.last > start else ():
                projection.take(event)
                witness.take(event, projection.view)
        return witness

    def ask_for_names(
        self, names_shown: Callable[[ToolResult, Action | None], tuple[str, ...]], names_told: Callable[[Content], Iterable[str]]
    ) -> None:
        """Have the names of results and replies told by somebody who remembers them from another session of the same ones."""
        self._uses.names_shown = names_shown
        self._uses.names_told = self._evidence.names_told = names_told

    @property
    def evidence(self) -> Evidence:
        """What the log proves."""
        return self._evidence.value()

    @property
    def uses(self) -> dict[str, Use]:
        """The life of every result that shows."""
        return self._uses.value()

    @property
    def cache(self) -> Cache:
        """What we believe to be cached."""
        return self._cache.value()

    def take(self, event: Event, view: View) -> None:
        """Look at one event and the view after it."""
        self._evidence.take(event)
        self._uses.take(event, view)
        self._cache.take(event, view, self.counter, self.card)
        body = event.body
        if isinstance(body, CallStarted) and body.purpose == "turn":
            self.rent += rent_of_call(view, self.evidence, self.counter, self.card, tools=self.tools_tokens, parts=self._parts)
        elif isinstance(body, ViewEdited) and any(isinstance(edit, Fold) for edit in body.edits):
            self.rent = 0.0

    def _follow_declarations(self) -> None:
        self._evidence.declared = self._uses.declared = self.declared

    def memo(self) -> Raw:
        """What a checkpoint should keep."""
        return Raw(_encode(_Memo(self.evidence, self.uses, self.cache, self.rent)))

    def _recall(self, log: Log) -> tuple[int, View]:
        """Go on from the memo of the checkpoint, if there is one of this version and the path did not change its shape since."""
        remembered = log.remembered
        if remembered is None or bytes(remembered[1]) == b"null":
            return -1, EMPTY
        seq, raw = remembered
        later = any(at > seq for at, _ in log.reader.jumps) or any(at > seq for at, _ in log.reader.undone)
        try:
            memo = _memos.decode(raw)
        except msgspec.DecodeError:
            return -1, EMPTY
        if memo.v != VERSION or later or seq not in log.path:
            return -1, EMPTY
        state = log.state_at(seq)
        view = state.view
        self.rent = memo.rent
        self._evidence = EvidenceProjection.of(memo.evidence)
        self._uses = UsesProjection.of(memo.uses, view, state.health.calls)
        self._cache = CacheProjection.of(memo.cache, view)
        return seq, view
