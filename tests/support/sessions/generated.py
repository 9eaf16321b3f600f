"""Made-up coding sessions with folds of their own, for tests: deterministic and of any length."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random

import msgspec
from msgspec import Raw

from palimpsest.core.events import (
    Body,
    CallStarted,
    ContextStated,
    ModelReplied,
    Statement,
    Titled,
    ToolReturned,
    ToolStarted,
    TurnEnded,
    Usage,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.items import Content, Fold, Keep, Put, Text, ToolCall, ToolResult
from palimpsest.core.tokens import FAMILY_FACTORS, palimpsest_size
from palimpsest.testing.synthetic import THINGS, TextGenerator

MODEL = "claude-sonnet-4-5"
FOLD_AT = 110_000
_KEPT_TURNS, _KEPT_MESSAGES = 2, 40
_PARAMS = Raw(b'{"max_tokens":8192}')
_RULES = """You are a careful programmer in a terminal.
Read before you write, run the tests after you wrote, and say what you did in a few words. Paths are relative to the project.
A command that fails tells more than a guess: show its exit code. Never delete what you did not make."""
_WORLD = "project: shop (Python 3.12, pytest)\nbranch: main\nsystem: Linux"


def generate(seed: int, events: int, *, first: int = 1, fold_at: int | None = FOLD_AT) -> Iterator[Body]:
    """The bodies of a session after its opening, `events` of them; a shorter session is the beginning of a longer one.

    `first` is the number that the first body will have in the log. The view is folded at the end of a turn when it has more
    than `fold_at` tokens (unscaled), as a session that fits a window must be.
    """
    return islice(_Session(seed, first, fold_at).bodies(), events)


@dataclass(frozen=True)
class _Shown:
    """An item that the view shows, as far as folding needs to know it."""

    id: str
    tokens: int
    turn: int
    said_by_user: bool = False


class _Session:
    """One session in the making: what shows, and how much the model has read."""

    def __init__(self, seed: int, first: int, fold_at: int | None) -> None:
        self._random = Random(seed)
        self._prose = TextGenerator(seed)
        self._seq = first - 1
        self._fold_at = fold_at
        self._shown: list[_Shown] = []
        self._turn = 0
        self._calls = 0
        self._head = 0
        self._tokens = 0
        self._cached = 0

    def bodies(self) -> Iterator[Body]:
        """Turns without end."""
        head = (Statement("base", _RULES, "system"), Statement("environment", _WORLD, "system"))
        self._head = sum(palimpsest_size(Text(each.text)) for each in head)
        yield self._number(ContextStated(head=head))
        while True:
            yield from self._one_turn()

    def _number(self, body: Body) -> Body:
        self._seq += 1
        return body

    def _show(self, contents: tuple[Content, ...], *, said_by_user: bool = False) -> None:
        for number, content in enumerate(contents):
            tokens = palimpsest_size(content)
            self._shown.append(_Shown(f"{self._seq}.{number}", tokens, self._turn, said_by_user))
            self._tokens += tokens

    def _one_turn(self) -> Iterator[Body]:
        random, prose = self._random, self._prose
        self._turn += 1
        subject = prose.subject(random)
        asked = Text(prose.ask(random, subject))
        yield self._number(UserSaid((asked,)))
        self._show((asked,), said_by_user=True)
        if self._turn == 1:
            yield self._number(Titled(f"{subject['area']}: {subject['verb']} the {subject['thing']}", by="model"))
        for _ in range(random.randrange(3, 12)):
            yield from self._one_step(subject)
        yield from self._reply((Text(prose.ending(random, subject), "assistant"),), "end_turn")
        yield self._number(TurnEnded())
        if self._fold_at is not None and self._tokens > self._fold_at and self._turn > _KEPT_TURNS:
            yield self._folded()

    def _one_step(self, subject: dict[str, str]) -> Iterator[Body]:
        """The model says something and uses a tool, sometimes two at once."""
        random = self._random
        uses = [self._use(subject) for _ in range(2 if random.random() < 0.2 else 1)]
        said: tuple[Content, ...] = (Text(self._prose.step(random, subject), "assistant"),) if random.random() < 0.6 else ()
        yield from self._reply((*said, *(call for call, _ in uses)), "tool_use")
        for call, returned in uses:
            yield self._number(ToolStarted(call.call_id, call.tool))
            yield self._number(returned)
            self._show((returned.result,))

    def _reply(self, parts: tuple[Content, ...], stop: str) -> Iterator[Body]:
        factor = FAMILY_FACTORS["claude"]
        read = self._head + self._tokens
        yield self._number(CallStarted(MODEL, "anthropic", _PARAMS, estimate=read))
        prompt, cached = round(read * factor), min(self._cached, round(read * factor))
        written = round(sum(palimpsest_size(part) for part in parts) * factor)
        usage = Usage(input=min(3, prompt - cached), cache_read=cached, cache_write=max(0, prompt - cached - 3), output=written)
        yield self._number(ModelReplied(parts, self._seq, usage, stop, MODEL, f"msg_{self._seq:08d}"))
        self._show(parts)
        self._cached = prompt

    def _use(self, subject: dict[str, str]) -> tuple[ToolCall, ToolReturned]:
        """A tool call and what it gives: reads most of all, then commands, edits and searches."""
        random, prose = self._random, self._prose
        self._calls += 1
        call_id = f"toolu_{self._calls:07d}"
        path = prose.path(random, subject)
        dice = random.random()
        if dice < 0.45:
            call = ToolCall(call_id, "read", _json({"path": path}))
            return call, _returned(call, prose.source(random, random.randrange(3, 14)), paths=(path,))
        if dice < 0.6:
            call = ToolCall(call_id, "grep", _json({"pattern": f"{subject['verb']}_{subject['thing']}"}))
            return call, _returned(call, _matches(prose, random, subject))
        if dice < 0.75:
            old, new = prose.source(random, 1), prose.source(random, 1)
            call = ToolCall(call_id, "edit", _json({"path": path, "old": old, "new": new}))
            missing = random.random() < 0.1
            text = f"error: the old text is not in {path}" if missing else f"{path}: 1 place changed"
            return call, _returned(call, text, error=missing, paths=(path,))
        call = ToolCall(call_id, "bash", _json({"command": f"pytest -q tests/{subject['area']}"}))
        failed = random.randrange(1, 4) if random.random() < 0.3 else 0
        return call, _returned(call, prose.test_run(random, subject, failed), exit_code=min(1, failed))

    def _folded(self) -> Body:
        """All but the last turns becomes a summary and the newest of the user's messages."""
        old = [item for item in self._shown if item.turn <= self._turn - _KEPT_TURNS]
        kept = [item for item in old if item.said_by_user][-_KEPT_MESSAGES:]
        summary = Text(f"Summary of {self._turn - _KEPT_TURNS} turns: {len(old)} items were folded here; the user's words follow.")
        before = self._tokens
        self._seq += 1
        fold = Fold(old[0].id, old[-1].id, (Put("summary", summary), *(Keep(item.id) for item in kept)))
        made = _Shown(f"{self._seq}.0.0", palimpsest_size(summary), 0)
        self._shown = [made, *kept, *self._shown[len(old) :]]
        self._tokens = sum(item.tokens for item in self._shown)
        self._cached = 0
        return ViewEdited((fold,), by="generated", why="the view was full", tokens_before=before, tokens_after=self._tokens)


def _returned(call: ToolCall, text: str, *, error: bool = False, exit_code: int | None = None, paths: tuple[str, ...] = ()) -> ToolReturned:
    result = ToolResult(call.call_id, (Text(text),), error=error)
    return ToolReturned(result, call.tool, exit_code, paths, took_ms=len(text) % 900)


def _json(value: dict[str, str]) -> str:
    return msgspec.json.encode(value).decode()


def _matches(prose: TextGenerator, random: Random, subject: dict[str, str]) -> str:
    """The output of a text search."""
    word = f"{subject['verb']}_{subject['thing']}"
    lines = (
        f"{prose.path(random, subject)}:{random.randrange(1, 400)}: {word}({random.choice(THINGS[:12])})"
        for _ in range(random.randrange(4, 40))
    )
    return "\n".join(lines)
