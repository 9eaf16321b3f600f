"""What the demo does: a session is made up, folded, and the fold is undone."""

import re
from dataclasses import dataclass

import msgspec
from msgspec import Raw

from palimpsest.apps.cli.home import Home
from palimpsest.apps.cli.opening import scale_of
from palimpsest.core.edits import Fold, Keep, Put
from palimpsest.core.events import Body, CallStarted, Event, Loss, ModelReplied, SessionOpened, TurnEnded, Usage, UserSaid, ViewEdited
from palimpsest.core.items import Item, Text, ToolCall, text_of
from palimpsest.core.log import Log
from palimpsest.core.project import apply
from palimpsest.core.undo import undo
from palimpsest.core.view import View
from palimpsest.lab.generate import MODEL, generate
from palimpsest.stores.ephemeral import FixedClock
from palimpsest.wire.cards import card
from palimpsest.wire.encode import encode
from palimpsest.wire.past import next_request
from palimpsest.wire.request import Params, Request, Tool, resolved

_NUMBER = re.compile(r"\d+")
_KEPT_TURNS = 2
_PER = 1_000_000
_SCHEMA = Raw(b'{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}')
_TOOLS = (
    Tool("read", "Read a file.", _SCHEMA),
    Tool("bash", "Run a command.", Raw(b'{"type":"object","properties":{"command":{"type":"string"}}}')),
)


@dataclass(frozen=True)
class Stage:
    """A view of the demo's session and the request that shows it."""

    view: View
    tokens: int
    request: Request


def make_session(home: Home, session: str, seed: int, events: int, began: int) -> Log:
    """A made-up session that ends with a whole turn, its last request recorded with the digest of its bytes."""
    log = Log.create(home.shelf, SessionOpened(session, cwd="shop", model=MODEL), FixedClock(began, 2_000))
    log.extend(_whole_turns(list(generate(seed, events))))
    log.append(UserSaid((Text("Summarise what you changed today, file by file. 用中文也写一句。"),)))
    tools = home.blobs.put(msgspec.json.encode(_TOOLS))
    params = resolved(Params(max_tokens=8192), card(MODEL))
    request = encode(log.view, card(MODEL), _TOOLS, params, home.blobs.get)
    raw = scale_of(log.view).raw(log.view)
    call = CallStarted(MODEL, "anthropic", Raw(msgspec.json.encode(params)), tools, request.digest, len(request.body), raw, request.marks)
    asked = log.append(call)
    reply = Text("Three files changed; the tests pass. 改了三个文件,测试全部通过。", "assistant")
    usage = Usage(input=3, cache_write=round(raw * 1.33), output=40)
    log.extend((ModelReplied((reply,), asked.seq, usage, "end_turn", MODEL), TurnEnded()))
    return log


def _whole_turns(bodies: list[Body]) -> list[Body]:
    ends = [place for place, body in enumerate(bodies) if isinstance(body, TurnEnded)]
    return bodies[: ends[-1] + 1] if ends else bodies


def stage_of(log: Log, home: Home) -> Stage:
    """The view as it is, weighed and encoded."""
    scale = scale_of(log.view, log.ledger.calibration)
    return Stage(log.view, scale.total(log.view), next_request(log.view, home.blobs.get))


def fold(log: Log, home: Home) -> Event:
    """Fold all but the last turns: what the user said stays verbatim, the rest becomes a few lines computed from the log."""
    items = log.view.items
    starts = [place for place, item in enumerate(items) if item.kind == "user"]
    run = items[: starts[-_KEPT_TURNS]]
    kept = tuple(Keep(item.id) for item in run if item.kind in {"user", "steering"})
    changed = "\n".join(f"- {path}" for path in _named(run, "edit", "path"))
    text = f"Folded: {len(run) - len(kept)} items. Every word of the user is kept below.\nFiles that were changed:\n{changed}"
    edit = Fold(run[0].id, run[-1].id, (Put("summary", Text(text)), *kept))
    after = apply(log.view, Event(log.tip + 1, log.tip, 0, "", ViewEdited((edit,), by="demo")))
    scale = scale_of(log.view, log.ledger.calibration)
    fewer, more = scale.total(after), scale.total(log.view)
    prices = card(MODEL).prices
    read, write = prices.cache_read or prices.input, prices.cache_write or prices.input
    edited = ViewEdited(
        (edit,),
        by="demo",
        why=f"the view had {more:,} tokens, and most of them are results that nobody named again",
        moment="asked",
        tokens_before=more,
        tokens_after=fewer,
        price_usd=round(fewer * (write - read) / _PER, 6),
        saved_usd_per_call=round((more - fewer) * read / _PER, 6),
        loss=loss_of(run, after.items),
    )
    event = log.append(edited)
    log.sync()
    return event


def loss_of(run: tuple[Item, ...], after: tuple[Item, ...]) -> Loss:
    """The paths, commands and numbers of a run of items that nothing shows any more after an edit."""
    seen = "\n".join(text_of(item.content) for item in after)
    paths = tuple(path for tool in ("read", "edit") for path in _named(run, tool, "path") if path not in seen)
    commands = tuple(command for command in _named(run, "bash", "command") if command not in seen)
    numbers = {number for item in run for number in _NUMBER.findall(text_of(item.content))} - set(_NUMBER.findall(seen))
    ids = {item.id for item in after}
    silenced = sum(item.kind in {"user", "steering"} and item.id not in ids for item in run)
    return Loss(tuple(dict.fromkeys(paths)), commands, len(numbers), silenced)


def _named(run: tuple[Item, ...], tool: str, name: str) -> list[str]:
    """What the calls of a tool in a run name, each once, in order."""
    found: dict[str, None] = {}
    for item in run:
        if isinstance(item.content, ToolCall) and item.content.tool == tool:
            args: dict[str, str] = msgspec.json.decode(item.content.args)
            found[args[name]] = None
    return sorted(found)


def take_back(log: Log, seq: int) -> tuple[Event, ...]:
    """Undo the fold."""
    events = undo(log, seq, why="the demo shows that it can")
    log.sync()
    return events
