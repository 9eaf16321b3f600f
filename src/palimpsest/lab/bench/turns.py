"""What a turn costs before its request leaves: the bytes of the request, and the decision whether there is room."""

import time
from collections.abc import Iterator

from palimpsest.core.budget import decide, used
from palimpsest.core.budget_rules import palimpsest_budget
from palimpsest.core.log import Log
from palimpsest.core.sizes import palimpsest_size
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.tokens import FAMILY_FACTORS
from palimpsest.lab.bench.bars import Bar, bar, peer_of
from palimpsest.lab.bench.material import MODEL, Material
from palimpsest.lab.bench.peer_langchain import NAME, Langchain
from palimpsest.lab.bench.room import Room
from palimpsest.wire.cards import card
from palimpsest.wire.encode import Encoder

_CARD = card(MODEL)
_BUDGET = palimpsest_budget(_CARD.window, _CARD.reply)


class Turns:
    """One session that goes on: each sample appends a round and then times what the next call needs."""

    def __init__(self, log: Log, material: Material) -> None:
        self._log = log
        self._material = material
        self._encoder = Encoder(_CARD)
        self._counter = TokenCounter(palimpsest_size, FAMILY_FACTORS["claude"])
        self.deciding = 0.0
        self.take()

    def take(self) -> float:
        """Seconds of one turn: the view, the decision that comes before a call, and the request."""
        for body in self._material.round():
            self._log.append(body)
        begun = time.perf_counter()
        view = self._log.view
        seen = time.perf_counter()
        decide(used(view, self._counter), _BUDGET)
        decided = time.perf_counter()
        self._encoder.encode(view)
        ended = time.perf_counter()
        self.deciding = decided - seen
        return ended - begun

    def last_decision(self) -> float:
        """Seconds that the decision of the newest turn took."""
        return self.deciding


def measure_turns(room: Room, wanted: frozenset[str]) -> Iterator[Bar]:
    """`turn_*` and `decide`."""
    peer = Langchain.find(room)
    deciding: dict[str, float] = {}
    for length in room.sizes.lengths:
        name = f"turn_{length}"
        if name not in wanted and "decide" not in wanted:
            continue
        room.tell(f"turns after {room.sizes.lengths[length]:,} events")
        log, material = room.writer(length)
        with log:
            turns = Turns(log, material)
            whole, deciding[length] = room.unit.of_timed(room.sizes.rounds, turns.take, turns.last_decision)
        if name in wanted:
            yield bar(name, whole, peer_of(NAME, peer and peer.turn(length)))
    if "decide" in wanted:
        yield bar("decide", max(deciding.values()), peer_of(NAME, peer and peer.decide()), **deciding)
