"""All transcript formats, in the order in which they are asked whether a file is theirs."""

from collections.abc import Mapping

from palimpsest.core.errors import BadInput
from palimpsest.exchange.aider import AiderFormat
from palimpsest.exchange.claude.reader import ClaudeFormat
from palimpsest.exchange.codex.reader import CodexFormat
from palimpsest.exchange.copilot import CopilotFormat
from palimpsest.exchange.editors import ClineFormat, CursorFormat, ZedFormat
from palimpsest.exchange.gemini import GeminiFormat
from palimpsest.exchange.managed_agents import ManagedAgentsFormat
from palimpsest.exchange.opencode.reader import OpencodeFormat
from palimpsest.exchange.openhands import OpenhandsFormat
from palimpsest.exchange.pi import PiFormat
from palimpsest.exchange.trajectories import MoatlessFormat, SweAgentFormat
from palimpsest.exchange.transcript import Format

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
    ManagedAgentsFormat(),
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
    "managed-agents": "a session of Managed Agents",
}


def format_named(name: str) -> Format:
    """The format of that name; raises `BadInput` if there is none."""
    found = next((form for form in FORMATS if form.name == name), None)
    if found is None:
        raise BadInput(f"no format is called {name!r}; known are {', '.join(form.name for form in FORMATS)}", where="format")
    return found
