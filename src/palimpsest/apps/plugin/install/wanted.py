"""What the plugin wants in the files of an agent: whole files of its own, members of JSON files, and tables of TOML files."""

from pathlib import Path
from typing import Final, Literal, TypeAlias

from msgspec import Struct

AgentName: TypeAlias = Literal["claude", "codex", "opencode"]
AGENT_NAMES: Final = ("claude", "codex", "opencode")


class OwnFile(Struct, frozen=True):
    """A file that is ours alone."""

    path: Path
    text: str
    executable: bool = False


class JsonMember(Struct, frozen=True):
    """A member of a JSON file. If `keys` lead to an array, the value is an element, found again by `mark`, a text that only ours has."""

    path: Path
    keys: tuple[str, ...]
    value: object
    mark: str = ""


class TomlTable(Struct, frozen=True):
    """A table of a TOML file with its lines."""

    path: Path
    keys: tuple[str, ...]
    body: str


Wanted: TypeAlias = OwnFile | JsonMember | TomlTable
