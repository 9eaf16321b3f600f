"""Typical events for measuring: 3 kB each, and edits that keep the view at about 400 items and 150,000 tokens at any length."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import msgspec

from palimpsest.core.edits import Fold, Keep, Mask, Put
from palimpsest.core.events import (
    Body,
    CallStarted,
    ContextStated,
    ModelReplied,
    SessionOpened,
    Statement,
    ToolReturned,
    ToolStarted,
    TurnEnded,
    Usage,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.items import Content, Text, ToolCall, ToolResult
from palimpsest.core.log import Log
from palimpsest.core.ports import Clock, SessionStore
from palimpsest.lab.prose import Prose

MODEL = "claude-sonnet-4-5"
# Items of the view: folded down from the first number to the second. Results: all but the newest few are masked, some at a time.
_MOST_ITEMS, _FEWEST_ITEMS = 440, 340
_MOST_RESULTS, _FEWEST_RESULTS = 40, 16
_KEPT_MESSAGES = 20
# How many blocks of code a file has, twenty files in a row. As in real sessions, the typical result is a fifth of the mean one.
_BLOCKS = (*(1 for _ in range(9)), 2, 2, 3, 4, 5, 6, 9, 12, 16, 22, 54)
_CLEARED = "[cleared; call recall to see it again]"
_RULES = (
    "Read before you write, run the tests after you wrote, and say what you did in a few words. Show the exit code of what fails.\n" * 60
)


@dataclass
class _Shown:
    """An item of the view, as far as folding and masking need to know it."""

    id: str
    round: int
    kind: str


@dataclass
class Material:
    """The events of one session, round after round, without end; a seed always gives the same."""

    seed: int
    seq: int = 0
    _shown: list[_Shown] = field(default_factory=list)
    _unmasked: list[str] = field(default_factory=list)
    _deck: list[int] = field(default_factory=list)
    _round: int = 0

    def __post_init__(self) -> None:
        self._random = Random(self.seed)  # noqa: S311 - made-up sessions keep no secret
        self._prose = Prose(self.seed)
        self._subject = self._prose.subject(self._random)

    def round(self) -> Iterator[Body]:
        """What happens from one call to the next: the model uses a tool, or it is done and the user speaks again."""
        self._round += 1
        if self.seq == 0:
            yield self._number(ContextStated(head=(Statement("base", _RULES, "system"),)))
        if self._round % 9 == 1:
            self._subject = self._prose.subject(self._random)
            asked = Text(self._prose.ask(self._random, self._subject))
            yield self._number(UserSaid((asked,)), "user")
        if self._round % 9 == 0:
            yield from self._reply((Text(self._prose.ending(self._random, self._subject), "assistant"),))
            yield self._number(TurnEnded())
        else:
            yield from self._step()
        yield from self._edits()

    def _number(self, body: Body, *kinds: str) -> Body:
        self.seq += 1
        self._shown += [_Shown(f"{self.seq}.{part}", self._round, kind) for part, kind in enumerate(kinds)]
        return body

    def _step(self) -> Iterator[Body]:
        random, prose, subject = self._random, self._prose, self._subject
        path = prose.path(random, subject)
        call = ToolCall(f"toolu_{self.seq:09d}", "read", msgspec.json.encode({"path": path}).decode())
        text = _file(random, prose, self._blocks()) if random.random() < 0.75 else prose.test_run(random, subject, 0)
        said = (Text(prose.step(random, subject), "assistant"),) if random.random() < 0.6 else ()
        yield from self._reply((*said, call))
        yield self._number(ToolStarted(call.call_id, call.tool))
        yield self._number(ToolReturned(ToolResult(call.call_id, (Text(text),)), call.tool, paths=(path,), took_ms=12), "result")
        self._unmasked.append(f"{self.seq}.0")

    def _blocks(self) -> int:
        """Lengths are dealt from a shuffled deck: a short log has the same mix of them as a long one."""
        if not self._deck:
            self._deck = self._random.sample(_BLOCKS, len(_BLOCKS))
        return self._deck.pop()

    def _reply(self, parts: tuple[Content, ...]) -> Iterator[Body]:
        yield self._number(CallStarted(MODEL, "anthropic", estimate=100_000))
        called = self.seq
        usage = Usage(input=3, cache_read=140_000, cache_write=4_000, output=150)
        yield self._number(ModelReplied(parts, called, usage, "tool_use", MODEL, f"msg_{called:08d}"), *("assistant" for _ in parts))

    def _edits(self) -> Iterator[Body]:
        """Old results are masked; what is older still becomes a summary and the user's newest messages."""
        if len(self._unmasked) > _MOST_RESULTS:
            gone, self._unmasked = tuple(self._unmasked[:-_FEWEST_RESULTS]), self._unmasked[-_FEWEST_RESULTS:]
            yield self._number(
                ViewEdited((Mask(gone, _CLEARED),), by="bench", why="old results", tokens_before=170_000, tokens_after=140_000)
            )
        if len(self._shown) > _MOST_ITEMS:
            cut = self._shown[-_FEWEST_ITEMS].round
            old = [item for item in self._shown if item.round < cut]
            kept = [item for item in old if item.kind == "user"][-_KEPT_MESSAGES:]
            summary = Put("summary", Text(self._prose.source(self._random, 2)))
            fold = Fold(old[0].id, old[-1].id, (summary, *(Keep(item.id) for item in kept)))
            yield self._number(ViewEdited((fold,), by="bench", why="the view was full", tokens_before=170_000, tokens_after=120_000))
            self._shown = [_Shown(f"{self.seq}.0.0", 0, "summary"), *kept, *self._shown[len(old) :]]


def _file(random: Random, prose: Prose, blocks: int) -> str:
    """A file as tools show it, most of them short and a few very long.

    In real sessions two thirds of all text stands in strings that are not plain ASCII, most often for such an arrow, and one letter
    in twenty is escaped; both make JSON slower to read than plain text is.
    """
    text = prose.source(random, blocks).replace("'", '"').replace(" and ", "\n\tand ")
    return text.replace("\t", "→") if random.random() < 0.8 else text


def write_session(store: SessionStore, session: str, events: int, clock: Clock, seed: int) -> tuple[Log, Material]:
    """A session of so many events or a few more, still open, and where its events come from; the last event is no edit."""
    material = Material(seed)
    log = Log.create(store, SessionOpened(session, cwd="/project", model=MODEL), clock)
    edited = False
    while material.seq < events - 1 or edited:
        for body in material.round():
            log.append(body)
            edited = isinstance(body, ViewEdited)
    return log, material
