"""The tool `recall` over real logs, blobs and the search index."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock

import pytest

from palimpsest.agent.archive import PAGE_BYTES, LogArchive, recall_tool
from palimpsest.agent.tool import ToolOutput
from palimpsest.agent.workspace import Workspace
from palimpsest.core.events import CallStarted, EditUndone, ModelReplied, ToolReturned, UserSaid, ViewEdited
from palimpsest.core.items import Fold, Image, Mask, Put, Text, ToolCall, ToolResult, Unmask
from palimpsest.core.log import Log
from palimpsest.stores.home import FolderHome
from palimpsest.stores.in_memory import FixedClock

NOON = 1_700_000_000_000


@dataclass
class Desk:
    """A home on disk with one open session, and the tool on it."""

    home: FolderHome
    log: Log = field(init=False)
    archive: LogArchive = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.home.new()
        self.log.share(RLock())
        self.archive = LogArchive(self.log, self.home.store, self.home.blobs, self.home.clock, self.home.index)

    def recall(self, **arguments: object) -> ToolOutput:
        return asyncio.run(recall_tool(self.archive).run(json.dumps(arguments), Workspace(Path("/"))))

    def result(self, call_id: str, *parts: Text | Image, blob: str = "") -> str:
        """The id of the result of a call of `read`."""
        started = self.log.append(CallStarted("m", "anthropic"))
        self.log.append(ModelReplied((ToolCall(call_id, "read", '{"path":"src/parser.py"}'),), call=started.seq))
        return f"{self.log.append(ToolReturned(ToolResult(call_id, parts, blob=blob), tool='read')).seq}.0"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(FolderHome(tmp_path, FixedClock(NOON)))
    try:
        yield desk
    finally:
        desk.archive.close()
        desk.log.close()


def test_an_item_is_recalled_whole_by_id_with_the_edit_that_hides_it(desk: Desk) -> None:
    said = f"{desk.log.append(UserSaid((Text('fix the parser'),))).seq}.0"
    item = desk.result("c1", Text("x = 1\n  y"))
    head = f"[item {item}, result, 2023-11-14 22:13"
    assert desk.recall(id=item) == ToolOutput(f"{head}, shown in the conversation]\nx = 1\n  y", paged=True)
    masked = desk.log.append(ViewEdited((Mask((item,), "gone"),), by="clear_dead", why="dead"))
    assert desk.recall(id=f"`{item}`") == ToolOutput(f"{head}, hidden by edit {masked.seq} of clear_dead: dead]\nx = 1\n  y", paged=True)
    desk.log.append(EditUndone(masked.seq))
    assert desk.recall(id=item).text.startswith(f"{head}, shown in the conversation]")
    desk.log.append(ViewEdited((Mask((item,), "gone"),), by="clear_dead"))
    desk.log.append(ViewEdited((Unmask((item,)),), by="restore"))
    folded = desk.log.append(ViewEdited((Fold(said, item, (Put("summary", Text("short")),)),), by="fold", why="full"))
    assert desk.recall(id=item) == ToolOutput(f"{head}, hidden by edit {folded.seq} of fold: full]\nx = 1\n  y", paged=True)
    assert desk.recall(id=said).text.split("\n")[1] == "fix the parser"


def test_of_a_shortened_result_the_whole_is_returned_in_pieces(desk: Desk) -> None:
    whole = "ä" * PAGE_BYTES
    item = desk.result("c1", Text("ä…"), blob=desk.home.blobs.put(whole.encode()))
    first, second = desk.recall(id=item).text, desk.recall(id=item, offset=PAGE_BYTES).text
    assert first.split("\n")[1:] == ["ä" * (PAGE_BYTES // 2), "[bytes 0 to 32,000 of 64,000; go on with offset 32000]"]
    assert second.split("\n")[1:] == ["ä" * (PAGE_BYTES // 2)]
    assert desk.recall(id=item, offset=PAGE_BYTES + 1).text.split("\n")[1] == "ä" * (PAGE_BYTES // 2)
    assert desk.recall(id=item, offset=64_000) == ToolOutput(f"item {item} has 64,000 bytes; byte 64,000 does not exist", error=True)


def test_images_of_an_item_are_returned_as_images(desk: Desk) -> None:
    image = Image("image/png", desk.home.blobs.put(b"png"))
    item = desk.result("c1", Text("a picture"), image)
    assert desk.recall(id=item).parts == (image,)


def test_words_are_found_in_this_session_in_another_and_in_all(desk: Desk) -> None:
    with desk.home.new() as past:
        past.append(UserSaid((Text("the tokenizer drops commas"),)))
    desk.log.append(UserSaid((Text("the tokenizer is slow"),)))
    ours = f"1.0 of session {desk.log.session}, user, 2023-11-14 22:13: the [tokenizer] is slow"
    theirs = f"1.0 of session {past.session}, user, 2023-11-14 22:13: the [tokenizer] drops commas"
    assert desk.recall(words="tokenizer") == ToolOutput(ours)
    assert desk.recall(words="tokenizer", session=past.session) == ToolOutput(theirs)
    assert sorted(desk.recall(words="tokenizer", all_sessions=True).text.split("\n")) == sorted([ours, theirs])
    assert desk.recall(words="commas") == ToolOutput("nothing was found in this session; `all_sessions` looks in all")
    assert desk.recall(words="nowhere", all_sessions=True) == ToolOutput("nothing was found")
    assert desk.recall(id="1.0", session=past.session).text.split("\n")[1] == "the tokenizer drops commas"


def test_items_about_a_file_are_found_by_its_path(desk: Desk) -> None:
    desk.log.append(UserSaid((Text("look at the parser of src"),)))
    desk.result("c1", Text("x = 1"))
    found = f'3.0 of session {desk.log.session}, call, 2023-11-14 22:13: read {{"path":"[src/parser.py]"}}'
    assert desk.recall(path="src/parser.py") == ToolOutput(found)


def test_a_search_leaves_out_the_calls_of_recall_itself_and_their_results(desk: Desk) -> None:
    desk.log.append(UserSaid((Text("the tokenizer is slow"),)))
    started = desk.log.append(CallStarted("m", "anthropic"))
    desk.log.append(ModelReplied((ToolCall("r1", "recall", '{"words":"tokenizer"}'),), call=started.seq))
    desk.log.append(ToolReturned(ToolResult("r1", (Text("1.0: the [tokenizer] is slow"),)), tool="recall"))
    found = ToolOutput(f"1.0 of session {desk.log.session}, user, 2023-11-14 22:13: the [tokenizer] is slow")
    assert desk.recall(words="tokenizer") == found
    assert desk.recall(words="tokenizer", all_sessions=True) == found


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "give exactly one of `id`, `words`, `path`, `query` and `timeline`, not none"),
        ({"id": "1.0", "words": "x"}, "give exactly one of `id`, `words`, `path`, `query` and `timeline`, not id and words"),
        ({"id": "99.0"}, "there is no item 99.0; search for it by `words`"),
        ({"id": "../../etc/passwd"}, "there is no item ../../etc/passwd; search for it by `words`"),
    ],
)
def test_what_cannot_be_recalled_is_an_error_that_says_why(desk: Desk, arguments: dict[str, str], said: str) -> None:
    assert desk.recall(**arguments) == ToolOutput(said, error=True)


def test_an_unknown_session_is_an_error(desk: Desk) -> None:
    assert desk.recall(id="1.0", session="no-such-session").error


def test_several_threads_may_recall_at_once(desk: Desk) -> None:
    desk.log.append(UserSaid((Text("the tokenizer is slow"),)))
    tool = recall_tool(desk.archive)

    async def all_at_once() -> list[ToolOutput]:
        calls = ('{"words": "tokenizer"}', '{"id": "1.0"}') * 8
        return await asyncio.gather(*(tool.run(call, Workspace(Path("/"))) for call in calls))

    assert [output.error for output in asyncio.run(all_at_once())] == [False] * 16
