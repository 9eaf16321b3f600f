"""Sessions of ours as rollouts that are written and read again."""

import os
from pathlib import Path

from codex_homes import CODEX
from readings import Home
from rollouts import Line

from palimpsest.core.events import Body, ContextStated, ModelReplied, SessionOpened, Statement, ToolReturned, TurnEnded, Usage, UserSaid
from palimpsest.core.items import Signature, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.log import Log
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions

CONVERSATION: tuple[Body, ...] = (
    ContextStated(head=(Statement("base", "You code.", "system"),)),
    ContextStated((Statement("environment", "It is Sunday."),)),
    UserSaid((Text("list files"), Text("please"))),
    ModelReplied(
        (Thinking("hm", Signature("openai", "gpt-5.5", "seal"), "digest"), Text("Looking.", "assistant"), ToolCall("a", "ls", "{}")),
        usage=Usage(60, 40, output=10),
    ),
    ToolReturned(ToolResult("a", (Text("a.py"),)), "ls", 0),
    ModelReplied((Text("One file.", "assistant"),), usage=Usage(10, 100, output=5)),
    TurnEnded(),
)


def native(*bodies: Body) -> tuple[Log, MemoryBlobs]:
    """A session of ours in which these things happened, and a place for blobs."""
    log = Log.create(MemorySessions(), SessionOpened("mine", "/repo", model="gpt-5.5"), FixedClock(1_794_724_495_281))
    for body in bodies:
        log.append(body)
    return log, MemoryBlobs()


def kinds(*names: str) -> Line:
    """What Codex notes beside a message: what each of its parts is."""
    return {"internal_chat_message_metadata_passthrough": {"content_item_kinds": list(names)}}


def taken(data: bytes, folder: Path) -> tuple[Home, str]:
    """A rollout, imported whole: where to, and as which session."""
    path = folder / "rollout-written.jsonl"
    path.write_bytes(data)
    # A file that was written a moment ago is taken to grow.
    os.utime(path, (1, 1))
    home = Home()
    (done,) = home.take(CODEX, path)
    assert done.problems == ()
    return home, done.session
