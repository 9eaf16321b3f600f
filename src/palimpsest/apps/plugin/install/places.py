"""Where the agents keep their files, where ours are in the home, and the command by which agents start this installation of `pal`."""

import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct


class AgentPlaces(Struct, frozen=True):
    """Folders of the agents, and our home. `pal` is the command of this installation, word by word.

    `python_path` is the PYTHONPATH that a command with a module needs, if one was set: some agents start servers without it.
    """

    home: Path
    claude: Path
    codex: Path
    opencode: Path
    pal: tuple[str, ...]
    python_path: str = ""

    @property
    def shim(self) -> Path:
        """The script that agents start; it stays where it is when `pal` is updated or moved and plugged in again."""
        return self.home / "bin" / "pal"

    def files(self, agent: str) -> Path:
        """Return the folder of our own files for an agent."""
        return self.home / "plugins" / agent


def places_of(home: Path, user: Path, environment: Mapping[str, str]) -> AgentPlaces:
    """Return the folders for a user's home folder and environment: those that the agents use by their own rules."""

    def folder(variable: str, usual: Path) -> Path:
        given = environment.get(variable, "").strip()
        return Path(given).expanduser() if given else usual

    config, command = folder("XDG_CONFIG_HOME", user / ".config"), own_command()
    return AgentPlaces(
        home.absolute(),
        folder("CLAUDE_CONFIG_DIR", user / ".claude"),
        folder("CODEX_HOME", user / ".codex"),
        folder("OPENCODE_CONFIG_DIR", config / "opencode"),
        command,
        environment.get("PYTHONPATH", "") if len(command) > 1 else "",
    )


def own_command() -> tuple[str, ...]:
    """Return the command of this installation: the script `pal` that was started, else this Python with the module."""
    script = Path(sys.argv[0])
    found = shutil.which(sys.argv[0]) if script.name == "pal" else None
    # The path as it was called, not what a link leads to: a tool manager replaces that with every update.
    return (str(Path(found).absolute()),) if found else (sys.executable, "-P", "-m", "palimpsest.apps.cli")


def shim_text(places: AgentPlaces) -> str:
    """Return the script: it starts `pal` in this home, and ends without a word where there is nothing to start or to say."""
    command = " ".join(shlex.quote(word) for word in places.pal)
    home = shlex.quote(str(places.home))
    modules = f"PYTHONPATH={shlex.quote(places.python_path)}\nexport PYTHONPATH\n" if places.python_path else ""
    return f"""#!/bin/sh
# Written by pal, which other agents start with it; `pal plug status` names them.
PAL_HOME=${{PAL_HOME:-{home}}}
export PAL_HOME
{modules}# Without notes a prompt has nothing to recall, and need not wait for Python.
if [ "$1 $2" = "hook UserPromptSubmit" ] && [ ! -d "$PAL_HOME/memory" ] && [ ! -d .palimpsest/memory ]; then exit 0; fi
# Whatever becomes of a hook, also after an update of pal, no exit code of it may block the agent.
if [ "$1" = hook ]; then
  {command} "$@" 2>/dev/null
  exit 0
fi
exec {command} "$@"
"""
