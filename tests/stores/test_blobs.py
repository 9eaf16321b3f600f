import os
import resource
import stat
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.core.errors import BadInput, DamagedBlob, MissingBlob, StoreError
from palimpsest.core.ports import Blobs
from palimpsest.stores.in_memory import MemoryBlobs
from palimpsest.stores.sessions import BlobFolder

HELLO = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"


def files_under(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_blob_lies_under_its_digest(tmp_path: Path) -> None:
    blobs = BlobFolder(tmp_path)
    assert blobs.put(b"hello") == HELLO
    assert files_under(tmp_path) == {f"2c/{HELLO[2:]}": b"hello"}
    assert (blobs.get(HELLO), blobs.size(HELLO), HELLO in blobs) == (b"hello", 5, True)
    assert list(blobs.addresses()) == [HELLO]


@pytest.mark.parametrize("kind", ["folder", "memory"])
@settings(max_examples=25, deadline=None)
@given(contents=st.lists(st.binary(max_size=200), max_size=8))
def test_what_was_put_comes_back_under_its_sha_256(kind: str, contents: list[bytes]) -> None:
    with TemporaryDirectory() as folder:
        blobs: Blobs = BlobFolder(folder) if kind == "folder" else MemoryBlobs()
        addresses = [blobs.put(content) for content in contents]
        assert addresses == [sha256(content).hexdigest() for content in contents]
        assert [blobs.get(address) for address in addresses] == contents
        assert all(address in blobs for address in addresses)


@settings(max_examples=10, deadline=None)
@given(contents=st.sets(st.binary(max_size=50), max_size=20))
def test_the_addresses_are_all_and_in_order(contents: set[bytes]) -> None:
    with TemporaryDirectory() as folder:
        blobs = BlobFolder(folder)
        twin = MemoryBlobs()
        addresses = sorted(blobs.put(content) for content in contents)
        for content in contents:
            twin.put(content)
        assert list(blobs.addresses()) == list(twin.addresses()) == addresses


def test_only_the_owner_may_read(tmp_path: Path) -> None:
    blobs = BlobFolder(tmp_path / "blobs")
    blobs.put(b"hello")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "blobs", tmp_path / "blobs/2c", blobs.path(HELLO))]
    assert modes == [0o700, 0o700, 0o600]


def test_a_blob_that_is_there_is_left_alone(tmp_path: Path) -> None:
    blobs = BlobFolder(tmp_path)
    blobs.put(b"hello")
    before = blobs.path(HELLO).stat()
    blobs.put(b"hello")
    after = blobs.path(HELLO).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


@pytest.mark.parametrize("damaged", [b"hel", b"hellO", b""], ids=["cut", "changed", "emptied"])
def test_a_damaged_blob_is_never_returned_and_the_next_put_mends_it(tmp_path: Path, damaged: bytes) -> None:
    blobs = BlobFolder(tmp_path)
    blobs.put(b"hello")
    blobs.path(HELLO).write_bytes(damaged)
    with pytest.raises(DamagedBlob) as error:
        blobs.get(HELLO)
    assert str(error.value) == f"{blobs.path(HELLO)}: blob {HELLO} is damaged: its {len(damaged)} bytes have another digest"
    assert blobs.put(b"hello") == HELLO
    assert blobs.get(HELLO) == b"hello"


def test_a_pipe_in_the_place_of_a_blob_is_an_error_and_is_not_waited_for(tmp_path: Path) -> None:
    blobs = BlobFolder(tmp_path)
    blobs.put(b"hello")
    blobs.path(HELLO).unlink()
    os.mkfifo(blobs.path(HELLO))
    with pytest.raises(StoreError, match="cannot read it: it is not a regular file"):
        blobs.get(HELLO)


def test_a_missing_blob_is_named_with_the_folder(tmp_path: Path) -> None:
    blobs = BlobFolder(tmp_path)
    for read in (blobs.get, blobs.size):
        with pytest.raises(MissingBlob) as error:
            read(HELLO)
        assert str(error.value) == f"{tmp_path}: no blob {HELLO}; the session that names it was copied without it"
    assert HELLO not in blobs
    with pytest.raises(MissingBlob):
        MemoryBlobs().get(HELLO)


@pytest.mark.parametrize("address", ["", "../../etc/passwd", HELLO.upper(), HELLO[:-1], HELLO + "\n", "/" * 64, "2c/" + HELLO[3:]])
def test_no_address_leaves_the_folder(tmp_path: Path, address: str) -> None:
    blobs = BlobFolder(tmp_path)
    for use in (blobs.get, blobs.size):
        with pytest.raises(BadInput):
            use(address)
    assert address not in blobs


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("in the way")
    blobs = BlobFolder(tmp_path / "blobs")
    with pytest.raises(StoreError) as error:
        blobs.put(b"hello")
    assert str(error.value) == f"{blobs.path(HELLO)}: cannot write it: there is a file where a folder should be"
    assert list(blobs.addresses()) == []


def test_a_read_only_folder_is_one_clear_line() -> None:
    program = (
        "import os, pathlib\n"
        "from palimpsest.core.errors import StoreError\n"
        "from palimpsest.stores.sessions import BlobFolder\n"
        "os.geteuid() == 0 and os.seteuid(65534)\n"
        "try:\n"
        "    BlobFolder('/usr/palimpsest-test').put(b'hello')\n"
        "except StoreError as error:\n"
        "    print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == f"/usr/palimpsest-test/{HELLO[:2]}/{HELLO[2:]}: cannot write it: permission denied\n"


def test_a_write_that_does_not_fit_leaves_nothing_behind(tmp_path: Path) -> None:
    blobs = BlobFolder(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(StoreError) as error:
            blobs.put(b"x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    address = sha256(b"x" * 2000).hexdigest()
    assert str(error.value) == f"{blobs.path(address)}: cannot write it: File too large"
    assert files_under(tmp_path) == {}


def test_a_crash_before_the_rename_leaves_no_half_blob(tmp_path: Path) -> None:
    # The audit hook ends the process at the very call that would give the blob its name.
    program = """
import os, sys
from palimpsest.stores.sessions import BlobFolder
sys.addaudithook(lambda event, _: os._exit(9) if event == "os.rename" else None)
BlobFolder(sys.argv[1]).put(b"hello")
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    blobs = BlobFolder(tmp_path)
    assert done.returncode == 9
    assert list(files_under(tmp_path).values()) == [b"hello"]
    assert (HELLO in blobs, list(blobs.addresses())) == (False, [])
    blobs.put(b"hello")
    assert blobs.get(HELLO) == b"hello"
