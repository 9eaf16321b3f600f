from pathlib import Path

from palimpsest.stores.log_segments import QueuedUndo, UndoQueue


def test_undos_are_taken_once_and_in_order_by_another_object(tmp_path: Path) -> None:
    asking, writing = UndoQueue(tmp_path, "s1"), UndoQueue(tmp_path, "s1")
    asking.add(QueuedUndo(12, (0, 2), "needed again"))
    asking.add(QueuedUndo(9))
    UndoQueue(tmp_path, "s2").add(QueuedUndo(1))
    assert writing.take() == (QueuedUndo(12, (0, 2), "needed again"), QueuedUndo(9))
    assert writing.take() == ()


def test_lines_that_are_no_undos_are_dropped_and_a_home_in_memory_has_no_queue(tmp_path: Path) -> None:
    queue = UndoQueue(tmp_path, "s1")
    queue.add(QueuedUndo(3))
    with next(tmp_path.rglob("s1.jsonl")).open("ab") as file:
        file.write(b'{"event": "not a number"}\n{"event": 4}\n{"ev')
    assert queue.take() == (QueuedUndo(3), QueuedUndo(4))
    nowhere = UndoQueue(None, "s1")
    nowhere.add(QueuedUndo(3))
    assert nowhere.take() == ()
