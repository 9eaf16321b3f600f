"""Runs `pal` in a home of its own, on sessions whose every word is known."""

from pathlib import Path
from typing import Any

import msgspec
from click.testing import CliRunner, Result
from generated import generate
from msgspec import Raw

from pal.cli.main import cli
from palimpsest.core.events import (
    CallStarted,
    ContextStated,
    Event,
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
from palimpsest.core.items import Content, Fold, Keep, Mask, Put, Text, ToolCall, ToolResult
from palimpsest.core.log import Log
from palimpsest.stores.home import FolderHome, Home
from palimpsest.stores.in_memory import FixedClock
from palimpsest.wire.encode import encode
from palimpsest.wire.models import card
from palimpsest.wire.request import Params, Tool

SMALL = "20310401-090000-aaaa"
LONG = "20310402-090000-bbbb"
MODEL = "claude-sonnet-4-5"
PARAMS = Params(max_tokens=1000)
TOOLS = (Tool("read", "Read a file.", Raw(b'{"type":"object","properties":{"path":{"type":"string"}}}')),)
NOTHING = Usage()
BEGAN = 1_932_800_400_000


class Pal:
    """The command in a home."""

    def __init__(self, folder: Path) -> None:
        self.home = FolderHome(folder)

    def __call__(self, *words: str, **env: str) -> Result:
        """Run a command line to its end; a bug is raised, never swallowed."""
        return CliRunner().invoke(
            cli, list(words), env={"PAL_HOME": str(self.home.folder), "COLUMNS": "80", "PAL_RETRIES": "0", **env}, catch_exceptions=False
        )

    def json(self, *words: str, code: int = 0) -> Any:
        """What a command line prints with --json; it must be one value and nothing else."""
        result = self(*words, "--json")
        assert result.exit_code == code, result.output
        return msgspec.json.decode(result.stdout)


def send(log: Log, home: Home, reply: tuple[Content, ...], *, usage: Usage = NOTHING) -> Event:
    """A call with the digest of its real bytes, and the reply to it."""
    request = encode(log.view, card(MODEL), TOOLS, PARAMS, home.blobs.get)
    tools = home.blobs.put(msgspec.json.encode(TOOLS))
    call = CallStarted(
        MODEL, "anthropic", Raw(msgspec.json.encode(PARAMS)), tools, request.digest, len(request.body), 0, breakpoints=request.breakpoints
    )
    started = log.append(call)
    log.append(ModelReplied(reply, started.seq, usage, "end_turn", MODEL))
    return started


def small(home: Home, session: str = SMALL) -> None:
    """Fourteen events: a file is read, a question is asked in Chinese; three requests, each with its digest."""
    with Log.create(home.store, SessionOpened(session, cwd="shop", model=MODEL), FixedClock(BEGAN, 1_000)) as log:
        log.append(ContextStated(head=(Statement("base", "Be brief.", "system"),)))
        log.append(UserSaid((Text("What is in a.py?"),)))
        send(log, home, (Text("I look.", "assistant"), ToolCall("c1", "read", '{"path":"a.py"}')), usage=Usage(input=100, output=20))
        log.append(ToolStarted("c1", "read"))
        log.append(ToolReturned(ToolResult("c1", (Text("timeout = 10\n" * 40),)), "read", paths=("a.py",)))
        send(log, home, (Text("A timeout of ten seconds.", "assistant"),), usage=Usage(input=700, output=10))
        log.append(TurnEnded())
        log.append(UserSaid((Text("超时改成 30 秒"),)))
        send(log, home, (Text("好的。", "assistant"),))
        log.append(TurnEnded())
        log.sync()


def edited(home: Home, session: str = SMALL) -> None:
    """The small session with two edits: event 14 folds the first turn, event 15 masks the summary it made."""
    small(home, session)
    with Log.open(home.store, session, FixedClock(BEGAN + 60_000, 1_000), write=True) as log:
        fold = Fold("2.0", "8.0", (Put("summary", Text("a.py was read.")), Keep("2.0")))
        log.append(ViewEdited((fold,), by="tester", why="it was long", tokens_before=900, tokens_after=40))
        log.append(ViewEdited((Mask(("14.0.0",), "(hidden)"),), by="tester", why="shorter still"))
        log.sync()


def long(home: Home, session: str = LONG, events: int = 900) -> None:
    """A made-up session with folds that cannot all be undone, for the window is too small."""
    with Log.create(home.store, SessionOpened(session, model=MODEL), FixedClock(BEGAN, 1_000)) as log:
        log.extend(generate(5, events))
