"""The names of the settings that each profile honours, and which of them an environment has."""

from collections.abc import Mapping
from typing import Final

_CLAUDE: Final = (
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
    "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE",
    "CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE",
    "DISABLE_COMPACT",
    "DISABLE_AUTO_COMPACT",
    "PAL_EVIDENCE",
)
_CODEX: Final = (
    "model_context_window",
    "model_auto_compact_token_limit",
    "tool_output_token_limit",
    "compact_prompt",
    "experimental_compact_prompt_file",
    "model_reasoning_effort",
    "model_reasoning_summary",
    "model_verbosity",
)
_OPENCODE: Final = ("compaction.auto", "compaction.prune", "agent.compaction.model", "PAL_EVIDENCE")

SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "palimpsest": (
        "PAL_COMPACT_AT",
        "PAL_AUTO_COMPACT",
        "PAL_THRIFT",
        "PAL_NARRATIVE",
        "PAL_TAIL",
        "PAL_MESSAGES",
        "PAL_RESULTS",
        "PAL_PREVIEW_ABOVE",
    ),
    "claude-code": (*_CLAUDE, "DISABLE_MICROCOMPACT"),
    "claude-code-2.1.325": (*_CLAUDE, "CLAUDE_CODE_AUTO_COMPACT_WINDOW", "proactive"),
    "codex": _CODEX,
    "codex-0.166": (*_CODEX, "model_auto_compact_token_limit_scope", "features.remote_compaction_v2"),
    "opencode": (*_OPENCODE, "OPENCODE_DISABLE_AUTOCOMPACT", "OPENCODE_DISABLE_PRUNE"),
    "opencode-1.18": (
        *_OPENCODE,
        "compaction.reserved",
        "compaction.tail_turns",
        "compaction.preserve_recent_tokens",
        "tool_output.max_lines",
        "tool_output.max_bytes",
    ),
    "classroom": ("told_from", "PAL_EVIDENCE"),
    "none": (),
}


def honoured(profile: str, environment: Mapping[str, str]) -> dict[str, str]:
    """What an environment sets of a profile's settings; an empty value sets nothing."""
    return {name: environment[name] for name in SETTINGS.get(profile, ()) if environment.get(name, "").strip()}
