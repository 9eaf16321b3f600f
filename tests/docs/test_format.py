import ast
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import format_reader
import pytest
from format_reader import Reader
from histories import Step, new_log, steps, tell
from hypothesis import given

import palimpsest as pal
from palimpsest.core.events import CallStarted, ModeChanged, ModelReplied, ModelSwitched, Usage
from palimpsest.core.items import Edit, text_of
from palimpsest.core.lines import digest_of, encode_line
from palimpsest.stores.home import FolderHome
from palimpsest.stores.in_memory import MemorySessions


def _product_texts(view: pal.View) -> list[str]:
    return [_product_text(item) for item in (*view.head, *view.items) if not item.hidden]


def _product_text(item: pal.Item) -> str:
    return text_of(item.content) if item.mask is None or item.mask.form == "cached" else item.mask.text


def _rest(view: pal.View) -> tuple[object, ...]:
    facts = {source: (fact.value, fact.id) for source, fact in view.facts.items()}
    notes, reported = view.notes and view.notes.text, view.reported and view.reported.tokens
    return facts, notes or "", view.pins, view.held, view.epoch, reported, view.model, view.mode, view.profile


def _product_view(view: pal.View) -> list[tuple[str, str]]:
    return [(item.id, item.kind) for item in (*view.head, *view.items)]


def _user(text: str) -> pal.UserSaid:
    return pal.UserSaid((pal.Text(text),))


def _edit(*edits: Edit) -> pal.ViewEdited:
    return pal.ViewEdited(edits, by="test", why="to be read back")


def _path(home: FolderHome, log: pal.Log) -> Path:
    return home.folder / "sessions" / f"{log.session}.jsonl"


def _check(home: FolderHome, log: pal.Log) -> list[str]:
    log.sync()
    return _compare(_files(home), log)


def _compare(fetch: Callable[[str], bytes], log: pal.Log) -> list[str]:
    reader = Reader(fetch, log.session)
    state = reader.state()
    assert [(item.id, item.kind) for item in (*state.head, *state.items)] == _product_view(log.view)
    rest = (state.stated(), state.notes, state.pins, state.held, state.epoch, state.reported, state.model, state.mode, state.profile)
    assert rest == _rest(log.view)
    texts = reader.texts()
    assert texts == _product_texts(log.view)
    assert reader.link == log.place_of(log.tip).link
    return texts


def _files(home: FolderHome) -> Callable[[str], bytes]:
    return lambda session: (home.folder / "sessions" / f"{session}.jsonl").read_bytes()


def _reopened(home: FolderHome, log: pal.Log) -> pal.View:
    with home.open(log.session, write=False) as again:
        return again.view


@pytest.fixture
def home(tmp_path: Path) -> pal.Home:
    return pal.Home.at(tmp_path)


@pytest.fixture
def log(home: FolderHome) -> Iterator[pal.Log]:
    """Events 0 to 6: a head, a question, a call with its result, an answer, and a second question."""
    with home.new(cwd="/repo", model="claude-sonnet-4-5") as log:
        log.append(pal.ContextStated(head=(pal.Statement("rules", "Be brief.", "system"),), items=(pal.Statement("day", "It is Monday."),)))
        log.append(_user("What does main.py print? 请看一下"))
        log.append(pal.ModelReplied((pal.Text("I look.", "assistant"), pal.ToolCall("c1", "read", '{"path":"main.py"}'))))
        log.append(pal.ToolReturned(pal.ToolResult("c1", (pal.Text('print("hi")\n'),)), "read"))
        log.append(pal.ModelReplied((pal.Text("It prints hi.", "assistant"),)))
        log.append(_user("And now?"))
        yield log


_START = [
    "Be brief.",
    "It is Monday.",
    "What does main.py print? 请看一下",
    "I look.",
    'read {"path":"main.py"}',
    'print("hi")\n',
    "It prints hi.",
]


def test_a_plain_session_is_read_as_the_product_reads_it(home: FolderHome, log: pal.Log) -> None:
    assert _check(home, log) == [*_START, "And now?"]


def test_a_fold_that_keeps_an_item_and_a_mask_are_read(home: FolderHome, log: pal.Log) -> None:
    log.append(_edit(pal.Mask(("4.0",), "[cleared]")))
    log.append(_edit(pal.Fold("2.0", "5.0", (pal.Put("summary", pal.Text("They spoke of main.py.")), pal.Keep("2.0")))))
    assert _check(home, log) == ["Be brief.", "It is Monday.", "They spoke of main.py.", "What does main.py print? 请看一下", "And now?"]


def test_an_undone_edit_is_as_if_it_had_never_been(home: FolderHome, log: pal.Log) -> None:
    fold = log.append(_edit(pal.Fold("2.0", "5.0", (pal.Put("summary", pal.Text("gone")),))))
    log.append(_edit(pal.Mask(("6.0",))))
    assert _check(home, log) == ["Be brief.", "It is Monday.", "gone"]
    pal.undo(log, fold.seq)
    assert _check(home, log) == _START


def test_one_edit_of_several_can_be_undone(home: FolderHome, log: pal.Log) -> None:
    both = log.append(_edit(pal.Mask(("1.1",)), pal.Mask(("6.0",), "[hidden]")))
    pal.undo(log, both.seq, (0,))
    assert _check(home, log) == [*_START, "[hidden]"]


def test_a_rewind_leaves_a_branch_and_its_edits_behind(home: FolderHome, log: pal.Log) -> None:
    log.append(_edit(pal.Mask(("1.1",))))
    pal.rewind(log, 5)
    log.append(_user("Another question."))
    assert _check(home, log) == [*_START, "Another question."]


def test_an_item_comes_back_where_it_stood(home: FolderHome, log: pal.Log) -> None:
    log.append(_edit(pal.Fold("2.0", "5.0", (pal.Put("summary", pal.Text("short")),))))
    pal.restore(log, "4.0")
    log.append(_edit(pal.Insert((pal.Put("reminder", pal.Text("Mind the tests.")),))))
    assert _check(home, log)[-4:] == ['read {"path":"main.py"}', 'print("hi")\n', "And now?", "Mind the tests."]


def test_a_new_head_begins_an_epoch(home: FolderHome, log: pal.Log) -> None:
    log.append(pal.ContextStated(head=(pal.Statement("rules", "Be thorough.", "system"),)))
    assert _check(home, log)[:2] == ["Be thorough.", "It is Monday."]


def test_a_fork_reads_through_its_base_also_when_it_goes_back_into_it(home: FolderHome, log: pal.Log) -> None:
    fold = log.append(_edit(pal.Fold("2.0", "5.0", (pal.Put("summary", pal.Text("short")),))))
    with home.fork(log) as fork:
        log.append(_user("only in the base"))
        fork.append(_user("only in the fork"))
        assert _check(home, fork) == ["Be brief.", "It is Monday.", "short", "And now?", "only in the fork"]
        pal.undo(fork, fold.seq)
        assert _check(home, fork) == [*_START, "And now?", "only in the fork"]
        with home.fork(fork) as second:
            pal.rewind(second, 2)
            assert _check(home, second) == _START[:3]
    assert _check(home, log)[-1] == "only in the base"


def test_the_model_and_the_mode_are_those_last_named(home: FolderHome, log: pal.Log) -> None:
    log.append(ModelReplied((pal.Text("Here.", "assistant"),), usage=Usage(input=10, cache_read=5, output=2)))
    assert Reader(_files(home), log.session).state().reported == 17
    log.append(ModeChanged("plan"))
    log.append(CallStarted("claude-haiku-4-5", "anthropic", purpose="title"))
    log.append(ModelSwitched("gpt-5"))
    _check(home, log)
    assert (log.view.model, log.view.mode, log.view.reported) == ("gpt-5", "plan", None)


def test_a_changed_line_breaks_the_chain(home: FolderHome, log: pal.Log) -> None:
    log.sync()
    path = _path(home, log)
    path.write_bytes(path.read_bytes().replace(b"Be brief.", b"Be blunt."))
    with pytest.raises(AssertionError, match="the chain breaks at event 2"):
        Reader(_files(home), log.session)


def test_a_redacted_line_keeps_the_chain(home: FolderHome, log: pal.Log) -> None:
    log.sync()
    path = _path(home, log)
    lines = path.read_bytes().splitlines(keepends=True)
    event, body = json.loads(lines[2]), lines[2][lines[2].index(b',"body":') + 8 : -2]
    hidden = b'{"type":"user_said","parts":[{"type":"text","text":"[redacted]"}]}'
    lines[2] = encode_line(2, 1, event["at"], event["prev"], hidden, digest=digest_of(body))
    path.write_bytes(b"".join(lines))
    assert Reader(_files(home), log.session).texts()[2] == "[redacted]"
    assert _reopened(home, log)["2.0"].content == pal.Text("[redacted]")


@pytest.mark.parametrize("tail", [b'{"seq":7,"par', b"\0" * 64, b'{"seq":7\0\0\0\n'], ids=["half a line", "zeros", "zeros and a newline"])
def test_a_torn_end_is_no_part_of_the_log(home: FolderHome, log: pal.Log, tail: bytes) -> None:
    log.sync()
    path = _path(home, log)
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    assert Reader(_files(home), log.session).texts() == [*_START, "And now?"]
    assert _product_texts(_reopened(home, log)) == [*_START, "And now?"]


def test_an_unknown_event_leaves_the_view_alone(home: FolderHome, log: pal.Log) -> None:
    log.sync()
    path, last = _path(home, log), log.place_of(log.tip)
    path.write_bytes(path.read_bytes() + encode_line(last.seq + 1, last.seq, 0, last.link, b'{"type":"from_the_future","text":"?"}'))
    assert Reader(_files(home), log.session).texts() == [*_START, "And now?"]
    assert _product_texts(_reopened(home, log)) == [*_START, "And now?"]


@given(steps, steps)
def test_random_sessions_and_their_forks_are_read_as_the_product_reads_them(told: list[Step], more: list[Step]) -> None:
    store = MemorySessions()

    def fetch(session: str) -> bytes:
        return b"".join(chunk for _, chunk in store.open(session).chunks())

    log = tell(new_log(store), told)
    fork = log.fork(store, "fork", (len(more) * 7) % (log.tip + 1))
    tell(log, more)
    tell(fork, more[::-1])
    _compare(fetch, log)
    _compare(fetch, fork)


def test_the_reader_uses_nothing_of_the_product() -> None:
    tree = ast.parse(Path(format_reader.__file__).read_text(encoding="utf-8"))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {"json", "collections.abc", "dataclasses", "hashlib", "typing"}
