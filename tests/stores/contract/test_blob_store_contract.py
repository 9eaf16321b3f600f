"""The contract of a blob store, beyond the laws in `palimpsest.testing`: contents by their SHA-256."""

from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_kinds import BLOBS

from palimpsest.core.errors import BadInput, MissingBlob
from palimpsest.core.ports import BlobStore

HELLO = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"


def test_a_missing_blob_is_an_error_of_its_own(blobs: BlobStore) -> None:
    for ask in (blobs.get, blobs.size):
        with pytest.raises(MissingBlob, match=f"no blob {HELLO}"):
            ask(HELLO)
    assert (HELLO in blobs, list(blobs.addresses())) == (False, [])


@pytest.mark.parametrize("address", ["", "../../etc/passwd", HELLO.upper(), HELLO[:-1], HELLO + "\n", "/" * 64])
def test_what_is_no_address_is_refused(blobs: BlobStore, address: str) -> None:
    for ask in (blobs.get, blobs.size):
        with pytest.raises(BadInput, match="is no blob address"):
            ask(address)
    assert address not in blobs


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents=st.lists(st.binary(max_size=60), max_size=8), asked=st.lists(st.binary(max_size=60), max_size=3))
def test_all_blob_stores_answer_the_same(tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], asked: list[bytes]) -> None:
    answers = [_answers(make(tmp_path_factory.mktemp("blobs")), contents, asked) for make in BLOBS.values()]
    assert all(answer == answers[0] for answer in answers)


def _answers(blobs: BlobStore, contents: list[bytes], asked: list[bytes]) -> list[object]:
    put = [blobs.put(content) for content in contents]
    got: list[object] = []
    for address in (*put, *(sha256(content).hexdigest() for content in asked)):
        try:
            got.append((blobs.get(address), blobs.size(address), address in blobs))
        except MissingBlob:
            got.append((address in blobs, "missing"))
    return [put, got, list(blobs.addresses())]


def test_a_blob_below_an_overlay_is_read_and_stays_alone(tmp_path: Path) -> None:
    overlay = BLOBS["overlay"](tmp_path)
    below = BLOBS["files"](tmp_path)
    old, new = below.put(b"old"), overlay.put(b"new")
    assert (overlay.get(old), overlay.size(old)) == (b"old", 3)
    assert (list(overlay.addresses()), list(below.addresses())) == (sorted([old, new]), [old])
