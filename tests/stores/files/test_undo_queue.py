from pathlib import Path

from palimpsest.stores.home import FolderHome, Home
from palimpsest.stores.undo_queue import QueuedUndo, UndoQueue


def test_undos_are_taken_once_and_in_order_by_another_object(tmp_path: Path) -> None:
    asking, writing = UndoQueue(FolderHome(tmp_path), "s1"), UndoQueue(FolderHome(tmp_path), "s1")
    asking.add(QueuedUndo(12, (0, 2), "needed again"))
    asking.add(QueuedUndo(9))
    UndoQueue(FolderHome(tmp_path), "s2").add(QueuedUndo(1))
    assert writing.take() == (QueuedUndo(12, (0, 2), "needed again"), QueuedUndo(9))
    assert writing.take() == ()


def test_lines_that_are_no_undos_are_dropped_and_a_home_in_memory_has_a_queue_too(tmp_path: Path) -> None:
    queue = UndoQueue(FolderHome(tmp_path), "s1")
    queue.add(QueuedUndo(3))
    with next(tmp_path.rglob("s1.jsonl")).open("ab") as file:
        file.write(b'{"event": "not a number"}\n{"event": 4}\n{"ev')
    assert queue.take() == (QueuedUndo(3), QueuedUndo(4))
    home = Home.in_memory()
    UndoQueue(home, "s1").add(QueuedUndo(3))
    assert (UndoQueue(home, "s1").take(), UndoQueue(home, "s1").take()) == ((QueuedUndo(3),), ())
