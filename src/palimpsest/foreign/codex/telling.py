"""Facts of a rollout on their way out: one is open at a time, and what is told is told in order."""

from palimpsest.core.events import Body, ForeignNoted, UserSaid
from palimpsest.core.items import Content
from palimpsest.core.ports import Blobs
from palimpsest.foreign.codex.facts import Aside, Fact, Reply
from palimpsest.foreign.codex.meta import NAME, Opening
from palimpsest.foreign.reading.transcript import ReadEvent


class Telling:
    """What was read and is not told yet. `line` is the line that is being read, and `at` its time."""

    def __init__(self, blobs: Blobs) -> None:
        self.blobs = blobs
        # Lines of a rollout that this one goes on from are read, not kept; their keys begin with its name.
        self.base = ""
        self.line = (0, b"")
        self.at = 0
        self.model = ""
        # When the request left that the next reply answers.
        self.asked = 0
        self.last = ""
        # The newest words of the user, which lines for the screen repeat.
        self.said: tuple[Content, ...] = ()
        self.open: Fact | None = None
        self.opening: Opening | None = None
        # Whether the conversation has begun: a session is opened by then, whether a model was named or not.
        self._spoken = False
        self._out: list[ReadEvent] = []

    def pop(self, *, everything: bool = False) -> list[ReadEvent]:
        """What can be told now, once; or everything, whether later lines could add to it or not."""
        if everything:
            self.close()
        elif self.opening is not None and not (self.model or self._spoken):
            return []
        self._begin()
        if not self._out:
            return self._out
        told, self._out = self._out, []
        return told

    def _begin(self) -> None:
        if self.opening is not None:
            self._out[:0] = self.opening.told(self.model, self.blobs)
            self.opening = None

    def key(self, end: str = "") -> str:
        """The key of a fact that begins with this line."""
        return f"{self.base}{self.line[0]}{end}"

    def note(self) -> None:
        """The line means nothing to a model: it goes with the open fact, or stands alone."""
        if self.base:
            return
        if self.open is not None:
            self.open.lines.append(self.line)
        else:
            self.add(Fact(self.key(), self.at, ForeignNoted(NAME), self.said))

    def tell(self, body: Body, *, after: str = "", end: str = "", line: bool = True) -> None:
        """A fact of this line alone, told after what is open."""
        fact = Fact(self.key(end), self.at, body)
        fact.after = after
        if line and not self.base:
            fact.lines.append(self.line)
        if isinstance(self.open, Reply):
            self.open.following.append(fact)
        else:
            self.close()
            self._say(fact)

    def _say(self, fact: Fact) -> None:
        told = list(fact.told(self.blobs))
        self._out.extend(told)
        if told:
            self.last = told[-1].key

    def add(self, fact: Fact) -> str:
        """A fact that this line tells whole; gives back the key of the one before it."""
        self.close()
        before = self.last
        if not self.base:
            fact.lines.append(self.line)
        if isinstance(fact.body, UserSaid):
            self.said = fact.contents
            self._spoken = True
        self._say(fact)
        return before

    def start(self, fact: Fact) -> None:
        """A fact that later lines may add to, so the one before is whole."""
        self.close()
        self.open = fact
        self._spoken = True
        if not self.base:
            fact.lines.append(self.line)

    def close(self) -> None:
        """Tell what is open."""
        fact, self.open = self.open, None
        if isinstance(fact, Reply) and not fact.parts:
            self._unsaid(fact)
        elif fact is not None:
            self._say(fact)

    def _unsaid(self, reply: Reply) -> None:
        """A reply of which no item came: its lines mean nothing, but its tokens count."""
        if reply.usage is not None:
            fact: Fact = Aside(reply.key, reply.at, reply.model, reply.usage)
        else:
            fact = Fact(reply.key, reply.at, ForeignNoted(NAME), self.said)
        fact.lines = reply.lines
        if fact.lines or reply.usage is not None:
            self._say(fact)
        for each in reply.following:
            self._say(each)

    def reply(self) -> Reply:
        """The reply that the line belongs to: the open one, unless it is settled."""
        if isinstance(self.open, Reply) and not self.open.settled:
            return self.open
        reply = Reply(self.key(), self.at, self.asked or self.at, self.model)
        self.close()
        self.open = reply
        self._spoken = True
        return reply
