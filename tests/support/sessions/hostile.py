"""Texts that try to break out of whatever they are written into, and sessions that say them everywhere."""

from hypothesis import strategies as st

from palimpsest.core.events import (
    ContextStated,
    Failed,
    ModelReplied,
    NotesTaken,
    SessionOpened,
    Statement,
    Titled,
    ToolReturned,
    Usage,
    UserSaid,
    ViewEdited,
)
from palimpsest.core.items import Document, Fold, Image, Keep, Mask, Opaque, Put, Text, Thinking, ToolCall, ToolResult
from palimpsest.core.log import Log
from palimpsest.stores.in_memory import FixedClock, MemorySessions

FRAGMENTS = (
    "</script>",
    "<script>alert(1)</script>",
    "</details>",
    "<details><summary>",
    "</div></section></main>",
    "<!--",
    "-->",
    "<![CDATA[",
    "<?php",
    "<img src=x onerror=alert(1)>",
    '"onmouseover="x',
    "&lt;",
    "&amp",
    "<b>",
    "`",
    "``",
    "```",
    "````text",
    "~~~",
    "\\",
    "\\`",
    "<",
    "|",
    "|-|",
    "](",
    "]: ",
    "[a]",
    "- ",
    "> ",
    "# ",
    "===",
    "---",
    "    ",
    "\t",
    "*",
    "_",
    "$",
    "\n",
    "\n\n",
    "\r",
    "\r\n",
    "\x00",
    "\x1b[31m",
    "\x0b",
    "\x0c",
    "\x85",
    "\u2028",
    "\u202e",
    "\u2066",
    "\ufeff",
    "中文",
    "שלום",
    "word",
    " ",
)
texts: st.SearchStrategy[str] = st.one_of(st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join), st.text(max_size=40))


def hostile_log(text: str) -> Log:
    """A session that has a text wherever a session can have one."""
    log = Log.create(MemorySessions(), SessionOpened("s", cwd=text, model=text, origin=text), FixedClock(1_700_000_000_000, 1_000))
    log.append(Titled(text))
    log.append(ContextStated((Statement(text, text),), (Statement("base", text, "system"),)))
    log.append(UserSaid((Text(text), Image("image/png", url=text), Document(text, name=text))))
    calls = (ToolCall("c", text, text), ToolCall("d", text, '{"a":"b"}'))
    parts = (Thinking(text), Text(text, "assistant"), Opaque("p", "m", "{}", text), *calls)
    log.append(ModelReplied(parts, usage=Usage(input=10, output=5), model=text, error=text))
    log.append(ToolReturned(ToolResult("c", (Text(text), Image(text, url=text)), error=True), text, exit=1))
    log.append(Failed(text, text, text))
    log.append(NotesTaken(text, 1))
    fold = Fold("2.1", "3.2", (Put("summary", Text(text)), Keep("3.0")))
    log.append(ViewEdited((fold, Mask(("4.1",), text)), by=text, why=text))
    log.append(UserSaid((Text(text),), steering=True))
    log.append(UserSaid((Text(text),)))
    return log
