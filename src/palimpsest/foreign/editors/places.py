"""Where editors keep the data of a user."""

from collections.abc import Mapping
from pathlib import Path

_EDITORS = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")
_SERVERS = (".vscode-server", ".vscode-remote", ".cursor-server")


def editor_folders(home: Path, environment: Mapping[str, str], *editors: str) -> tuple[Path, ...]:
    """The `User` folders of editors that are built like VS Code, on Linux, macOS and remote machines; all editors if none is named."""
    configured = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    roots = (configured, home / "Library" / "Application Support")
    local = [root / name / "User" for name in editors or _EDITORS for root in roots]
    return (*local, *(() if editors else (home / name / "data" / "User" for name in _SERVERS)))
