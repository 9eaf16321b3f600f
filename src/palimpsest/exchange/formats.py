"""All transcript formats, in the order in which they are asked whether a file is theirs; each is imported when it is first needed."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Final, cast

from palimpsest.core.errors import BadInput
from palimpsest.core.log import Log
from palimpsest.core.ports import Blobs
from palimpsest.exchange.transcript import ExportOrigin, Format, ReadOutput, ReadPosition, ReadProblem, TranscriptSource


@dataclass(frozen=True)
class NamedFormat:
    """A format by its name: `title` is what a file of it is to a user, `reader` its module and class below `palimpsest.exchange`.

    `writer` is the module and function of a format that can be written, and `takes` the options that this function has.
    """

    name: str
    title: str
    reader: str
    writer: str = ""
    takes: tuple[str, ...] = ()

    @cached_property
    def _format(self) -> Format:
        return cast("Callable[[], Format]", _exchange_name(self.reader))()

    def default_paths(self, home: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The paths where the program keeps its sessions by default."""
        return self._format.default_paths(home, environment)

    def sources(self, path: Path) -> Iterator[TranscriptSource | ReadProblem]:
        """The sessions in a file, or in all files below a folder; nothing if the path is not of this program."""
        return self._format.sources(path)

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        """The events of a session in order; after a `position` only those that are new since."""
        return self._format.read(source, blobs, position)

    def write(self, log: Log, blobs: Blobs, *, cwd: str = "", origin: ExportOrigin | None = None, alone: bool = False) -> Iterator[bytes]:
        """The bytes of a file that the program continues a session from, in pieces. Raises `BadInput` for a format that is only read.

        `cwd` replaces the working directory; `origin` is what new lines are marked with, if not the log itself; with `alone` the file
        refers to no other file.
        """
        if not self.writer:
            raise BadInput(f"{self.title} can only be read", where="format")
        options = {"cwd": cwd, "origin": origin, "alone": alone}
        write = cast("Callable[..., Iterator[bytes]]", _exchange_name(self.writer))
        return write(log, blobs, **{name: options[name] for name in self.takes})


def _exchange_name(place: str) -> object:
    module, _, name = place.partition(":")
    found: object = getattr(import_module(f"palimpsest.exchange.{module}"), name)
    return found


_MARKED: Final = ("cwd", "origin")
FORMATS: Final[tuple[NamedFormat, ...]] = (
    NamedFormat("claude", "a Claude Code transcript", "claude.reader:ClaudeFormat", "claude.writer:write_claude", _MARKED),
    NamedFormat("codex", "a Codex rollout", "codex.reader:CodexFormat", "codex.writer:write_codex", (*_MARKED, "alone")),
    NamedFormat("opencode", "an OpenCode session", "opencode.reader:OpencodeFormat", "opencode.writer:write_opencode", ("cwd",)),
    NamedFormat("copilot", "a Copilot CLI session", "copilot:CopilotFormat"),
    NamedFormat("swe-agent", "a SWE-agent trajectory", "trajectories:SweAgentFormat"),
    NamedFormat("pi", "a pi session", "pi:PiFormat"),
    NamedFormat("openhands", "an OpenHands session", "openhands:OpenhandsFormat"),
    NamedFormat("gemini", "a Gemini CLI session", "gemini:GeminiFormat"),
    NamedFormat("aider", "an aider history", "aider:AiderFormat"),
    NamedFormat("cline", "a Cline or Roo task", "editors:ClineFormat"),
    NamedFormat("cursor", "a Cursor database", "editors:CursorFormat"),
    NamedFormat("zed", "a Zed database", "editors:ZedFormat"),
    NamedFormat("moatless", "a Moatless trajectory", "trajectories:MoatlessFormat"),
    NamedFormat("managed-agents", "a session of Managed Agents", "managed_agents:ManagedAgentsFormat"),
)


def format_named(name: str) -> NamedFormat:
    """The format of that name; raises `BadInput` if there is none."""
    found = next((form for form in FORMATS if form.name == name), None)
    if found is None:
        raise BadInput(f"no format is called {name!r}; known are {', '.join(form.name for form in FORMATS)}", where="format")
    return found
