"""The thinking of a list that another program owns: what still fits the list that is sent, by what each reply answered."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from palimpsest.core.errors import BadInput
from palimpsest.core.events import CallStarted
from palimpsest.core.items import seq_of
from palimpsest.engine.session import Session
from palimpsest.mirror.mirror import Mirror
from palimpsest.mirror.plain import plain_value
from palimpsest.wire.binding import (
    Binding,
    BlockFactsCache,
    SentList,
    fitting,
    listed_bindings,
    read_messages,
    reply_bindings,
    thinking_key,
    without_thinking,
)
from palimpsest.wire.json_reading import Json, tables_at
from palimpsest.wire.past_requests import ThinkingFit

_NO_CALL: Final = CallStarted("", "")


class FollowedThinking:
    """What the thinking of a followed list is bound to: that of a reply to the request that it answers, as the log has it.

    Other thinking is bound to where it stands in the list as its owner wrote it. Used by one thread at a time.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        # The request that the reply of an event answered.
        self._calls: dict[int, CallStarted] = {}
        self._facts = BlockFactsCache()

    def fitted(self, mirror: Mirror, system: object, tools: Sequence[Any], sent: Sequence[Any]) -> tuple[Sequence[Any], ThinkingFit]:
        """Return the messages without the thinking that no longer fits them, and what is recorded about it."""
        known = mirror.plain_messages()
        by_identity = {id(message): plain for message, plain in known}
        listed = [plain for _, plain in known]
        plain = [by_identity.get(id(message)) or plain_value(message) for message in sent]
        about = plain_value(system), [plain_value(tool) for tool in tools]
        reading = read_messages(*about, plain, self._facts)
        if not reading.thinking:
            return sent, ThinkingFit(reading.end)
        items = mirror.thinking_items()
        bindings = self._bindings(items, listed, read_messages(*about, listed, self._facts))
        fits = fitting(reading.thinking, bindings)
        keys = [block.key for block in reading.thinking]
        after = next((key for key in reversed(keys) if key in fits), "")
        left_out = tuple(items[key] for key in keys if key not in fits and key in items)
        fit = ThinkingFit(reading.end, after, left_out, tuple(items[key] for key in keys if key in fits and key in items))
        if fits.issuperset(keys):
            return sent, fit
        return self.without(sent, plain, fits), fit

    def without(self, sent: Sequence[Any], plain: Sequence[Any], fits: frozenset[str]) -> list[Any]:
        """Return messages with no thinking but the given; those that lose none are the same objects."""
        given = {id(value): message for value, message in zip(plain, sent, strict=True)}
        return [given.get(id(message), message) for message in without_thinking(plain, fits)]

    def _bindings(self, items: Mapping[str, str], listed: Sequence[Json], reading: SentList) -> Mapping[str, Binding]:
        bindings = listed_bindings(reading)
        for number in dict.fromkeys(block.message for block in reading.thinking):
            blocks = tables_at(listed[number], "content")
            name = next((items[key] for block in blocks if (key := thinking_key(block)) in items), "")
            call = self._call_of(name) if name else _NO_CALL
            if call.prefix:
                bindings |= reply_bindings(call.prefix, call.after, blocks)
        return bindings

    def _call_of(self, item: str) -> CallStarted:
        """The request that the reply with this item answered; one without a prefix if it is not known."""
        seq, log = seq_of(item), self._session.log
        if seq not in self._calls:
            self._calls[seq] = _NO_CALL
            call = getattr(log.event(seq).body, "call", None)
            try:
                body = log.event(call).body if isinstance(call, int) else None
            except BadInput:
                body = None
            if isinstance(body, CallStarted):
                self._calls[seq] = body
        return self._calls[seq]
