"""The sub-agents of a log: opened, ended, opened again, and whether their ends were stated."""

from histories import new_log
from msgspec.structs import replace

from palimpsest.core.events import ChildEnded, ChildOpened, ContextStated, Rewound, Statement, Usage
from palimpsest.core.ledger import CHILD_NOTICE, has_end_to_state
from palimpsest.core.log import Log
from palimpsest.core.spending import ChildRecord
from palimpsest.stores.in_memory import FixedClock, MemorySessions

OPENED = ChildOpened("child", "call", "worker", nickname="Ada", depth=1)
ENDED = ChildEnded("child", "completed", "the report", Usage(input=5), 0.5, 0.25)
RUNNING = ChildRecord("child", "worker", "Ada", 1, opened=1)
DONE = ChildRecord("child", "worker", "Ada", 1, "completed", "the report", Usage(input=5), 0.5, 0.25, opened=1, ended=2)


def test_a_child_runs_until_its_end_and_its_report_is_kept_until_it_is_stated() -> None:
    log = new_log()
    log.append(OPENED)
    assert log.children == (RUNNING,)
    log.append(ENDED)
    assert log.children == (DONE,)
    log.append(ContextStated((Statement(CHILD_NOTICE, "…", value="another"), Statement("date", "…", value="child"))))
    assert log.children == (DONE,)
    log.append(ContextStated((Statement(CHILD_NOTICE, "…", value="child"),)))
    assert log.children == (replace(DONE, text="", noticed=(4,)),)
    log.append(ChildOpened("child", resumed=True))
    assert log.children == (replace(DONE, status="running", text="", opened=5),)


def test_children_are_the_same_after_a_rewind_and_a_resume_and_a_fork_has_none() -> None:
    store, clock = MemorySessions(), FixedClock()
    log = new_log(store)
    start = log.tip
    log.append(OPENED)
    log.append(ENDED)
    log.append(Rewound(start))
    assert log.children == (DONE,)
    log.checkpoint()
    with log.fork(store, "fork") as fork:
        assert fork.children == ()
    log.close()
    for whole in (False, True):
        with Log.open(store, log.session, clock, whole=whole) as again:
            assert again.children == (DONE,)


def test_an_end_is_due_on_the_branches_that_started_the_child_and_have_not_stated_it() -> None:
    log = new_log()
    start = log.tip
    log.append(OPENED)
    assert due(log) == []
    ended = log.append(ENDED).seq
    assert due(log) == ["child"]
    first = log.append(ContextStated((Statement(CHILD_NOTICE, "…", value="child"),))).seq
    assert due(log) == []
    log.append(Rewound(ended))
    assert due(log) == ["child"]
    second = log.append(ContextStated((Statement(CHILD_NOTICE, "…", value="child"),))).seq
    for seq, expected in ((first, []), (second, []), (ended, ["child"]), (start, [])):
        log.append(Rewound(seq))
        assert due(log) == expected


def due(log: Log) -> list[str]:
    return [child.session for child in log.children if has_end_to_state(child, log.path)]


def test_the_report_of_an_imported_child_is_not_kept_a_second_time() -> None:
    log = new_log()
    log.append(ChildEnded("claude.x", "completed", "a long report"))
    assert log.children == (ChildRecord("claude.x", status="completed", ended=1),)
