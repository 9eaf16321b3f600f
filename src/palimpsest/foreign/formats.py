"""All transcript formats, in the order in which they are asked whether a file is theirs."""

from collections.abc import Mapping

from palimpsest.core.errors import BadInput
from palimpsest.foreign.aider import AiderFormat
from palimpsest.foreign.claude.format import ClaudeFormat
from palimpsest.foreign.codex.format import CodexFormat
from palimpsest.foreign.copilot import CopilotFormat
from palimpsest.foreign.editors.cline import ClineFormat
from palimpsest.foreign.editors.cursor import CursorFormat
from palimpsest.foreign.editors.zed import ZedFormat
from palimpsest.foreign.gemini.format import GeminiFormat
from palimpsest.foreign.opencode.format import OpencodeFormat
from palimpsest.foreign.openhands.format import OpenhandsFormat
from palimpsest.foreign.pi import PiFormat
from palimpsest.foreign.reading.transcript import Format
from palimpsest.foreign.trajectories.moatless import MoatlessFormat
from palimpsest.foreign.trajectories.swe_agent import SweAgentFormat

FORMATS: tuple[Format, ...] = (
    ClaudeFormat(),
    CodexFormat(),
    OpencodeFormat(),
    CopilotFormat(),
    SweAgentFormat(),
    PiFormat(),
    OpenhandsFormat(),
    GeminiFormat(),
    AiderFormat(),
    ClineFormat(),
    CursorFormat(),
    ZedFormat(),
    MoatlessFormat(),
)

# What a file is to a user, by the name of its format.
TITLES: Mapping[str, str] = {
    "claude": "a Claude Code transcript",
    "codex": "a Codex rollout",
    "opencode": "an OpenCode session",
    "copilot": "a Copilot CLI session",
    "swe-agent": "a SWE-agent trajectory",
    "pi": "a pi session",
    "openhands": "an OpenHands session",
    "gemini": "a Gemini CLI session",
    "aider": "an aider history",
    "cline": "a Cline or Roo task",
    "cursor": "a Cursor database",
    "zed": "a Zed database",
    "moatless": "a Moatless trajectory",
}


def format_named(name: str) -> Format:
    """The format of that name; raises `BadInput` if there is none."""
    found = next((form for form in FORMATS if form.name == name), None)
    if found is None:
        raise BadInput(f"no format is called {name!r}; known are {', '.join(form.name for form in FORMATS)}", where="format")
    return found
