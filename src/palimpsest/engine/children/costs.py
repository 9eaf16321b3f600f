"""What sub-agents cost, read from their files: the file of a session is the only account of its calls."""

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import Usage
from palimpsest.core.items import Value
from palimpsest.core.log.log import Log
from palimpsest.core.projections.ledger import total_of
from palimpsest.engine.loop.limits import spent_in_events
from palimpsest.stores.home import AnyHome
from palimpsest.wire.models.cards import ModelCard


class Spent(Value, frozen=True):
    """Tokens and US dollars of one session, and the US dollars of the sub-agents below it."""

    usage: Usage = Usage()
    usd: float = 0.0
    children_usd: float = 0.0


class FileMeter:
    """What the calls in the file of an open session have cost so far; each call is priced once."""

    def __init__(self, log: Log, cards: tuple[ModelCard, ...]) -> None:
        self._log = log
        self._cards = cards
        # The calls before the first event of a fork are those of its base.
        self._priced_to = log.reader.first - 1
        self._usage = Usage()
        self._usd = 0.0

    def read(self) -> tuple[Usage, float]:
        """Tokens and US dollars of all calls."""
        tip = self._log.tip
        if tip > self._priced_to:
            usage, usd = spent_in_events(self._log, self._cards, self._priced_to + 1, tip)
            self._usage, self._usd, self._priced_to = total_of((self._usage, usage)), self._usd + usd, tip
        return self._usage, self._usd


def recorded_spending(home: AnyHome, session: str, known: frozenset[str] = frozenset()) -> Spent:
    """What a session and those below it have cost by their files; nothing for a file that is missing or cannot be read.

    `known` are the sessions above, so that files which name each other end.
    """
    try:
        with Log.open(home.store, session, home.clock) as log:
            usage, usd = FileMeter(log, home.cards()).read()
            below = {child.session for child in log.children} - known - {session}
    except PalimpsestError:
        return Spent()
    inner = [recorded_spending(home, child, known | {session}) for child in sorted(below)]
    return Spent(usage, usd, sum(spent.usd + spent.children_usd for spent in inner))
