"""The contract of a state slot: a small value that is loaded and replaced as a whole."""

from pathlib import Path

from palimpsest.core.ports import StateSlot
from palimpsest.stores.files import FileDocument


def test_a_slot_is_empty_until_something_is_saved_and_gives_back_the_newest(slot: StateSlot) -> None:
    empty = slot.load()
    saved = [slot.save(b"old"), slot.save(b"\0\xff\n"), slot.load(), slot.save(b""), slot.load()]
    assert (empty, saved) == (None, [True, True, b"\0\xff\n", True, b""])


def test_saving_on_a_failing_disk_returns_false_and_keeps_the_old_value(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"in the way")
    slot = FileDocument(tmp_path / "file" / "state")
    assert (slot.save(b"x"), slot.load()) == (False, None)
    assert (tmp_path / "file").read_bytes() == b"in the way"
