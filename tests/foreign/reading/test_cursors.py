import os
from pathlib import Path

import pytest
from msgspec import Raw

from palimpsest.exchange.importing import Cursors, SourceCursor
from palimpsest.exchange.transcript import ReadPosition, TranscriptSource
from palimpsest.stores.files import FileDocument
from palimpsest.stores.in_memory import MemoryDocument

SOURCE = TranscriptSource("tiny", "/somewhere/a.tiny", "a", "10-20")
SEEN = SourceCursor("tiny", "/somewhere/a.tiny", "a", "tiny-a", "10-20", 7, ReadPosition(10, Raw(b'{"line":3}')), {"github": 2})


def test_what_was_seen_is_there_again(tmp_path: Path) -> None:
    cursors = Cursors.load(FileDocument(tmp_path / "home" / "imports.json"))
    assert cursors.of(SOURCE) is None
    cursors.put(SEEN)
    cursors.save()

    again = Cursors.load(FileDocument(tmp_path / "home" / "imports.json"))

    assert again.of(SOURCE) == SEEN
    assert again.all() == (SEEN,)
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["imports.json"]
    assert (tmp_path / "home" / "imports.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b"noise", b'{"v":1,"seen":[{}]}', b"\xff", b'{"v":2,"seen":[]}', b"[]"])
def test_a_file_that_cannot_be_used_says_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "imports.json").write_bytes(content)

    assert Cursors.load(FileDocument(tmp_path / "imports.json")).all() == ()


def test_nothing_new_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "imports.json"
    cursors = Cursors.load(FileDocument(path))
    cursors.save()
    assert not path.exists()
    cursors.put(SEEN)
    cursors.save()
    os.utime(path, (1, 1))

    again = Cursors.load(FileDocument(path))
    again.put(SEEN)
    again.save()

    assert path.stat().st_mtime == 1


def test_a_disk_that_refuses_is_no_reason_to_stop(tmp_path: Path) -> None:
    (tmp_path / "home").write_bytes(b"a file stands where the folder should be")
    cursors = Cursors.load(FileDocument(tmp_path / "home" / "imports.json"))
    cursors.put(SEEN)
    cursors.save()

    assert cursors.of(SOURCE) == SEEN


def test_a_home_in_memory_keeps_them_too() -> None:
    slot = MemoryDocument()
    cursors = Cursors.load(slot)
    cursors.put(SEEN)
    cursors.save()

    assert Cursors.load(slot).all() == (SEEN,)
