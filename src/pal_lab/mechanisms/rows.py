"""The table of mechanisms, one a line in the text files beside this module; a document and a test are made of it."""

from pathlib import Path
from typing import Final

from msgspec import Struct

from palimpsest.core.errors import BadInput

_SEPARATOR: Final = " | "
_UNKNOWN: Final = "-"


class Mechanism(Struct, frozen=True):
    """One mechanism of a system.

    codes: the statements of the specifications that it stands for.
    profiles: the profiles that imitate it.
    system, here, ours: what the system does, what its profiles do, and what `palimpsest` does; empty if that is not described yet.
    test: path and name of the test that shows what its profiles do; empty if none does.
    """

    codes: tuple[str, ...]
    profiles: tuple[str, ...]
    name: str
    system: str
    here: str
    ours: str
    test: str


def mechanisms(folder: Path | None = None) -> dict[str, tuple[Mechanism, ...]]:
    """Return the mechanisms of each file by its name. Raises `BadInput` with file and line for one that is not in the form."""
    files = sorted((folder or Path(__file__).parent).glob("*.txt"))
    return {path.stem: tuple(_rows(path)) for path in files}


def _rows(path: Path) -> list[Mechanism]:
    rows: list[Mechanism] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        cells = [cell.strip() for cell in line.split(_SEPARATOR)]
        if len(cells) != len(Mechanism.__struct_fields__):
            wanted = len(Mechanism.__struct_fields__)
            raise BadInput(f"a mechanism has {wanted} cells with `{_SEPARATOR}` between, not {len(cells)}", where=f"{path.name}:{number}")
        codes, profiles, *texts = cells
        name, system, here, ours, test = ("" if text == _UNKNOWN else text for text in texts)
        rows.append(Mechanism(tuple(codes.split()), tuple(profiles.split()), name, system, here, ours, test))
    return rows
