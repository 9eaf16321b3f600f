"""The settings of the profiles: their names, and how numbers and switches in them are read."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Final, Literal

from palimpsest.audit.pricing.keeping import KEEP_ALIVE_LOSS
from palimpsest.core.errors import BadInput
from palimpsest.core.policy import Job
from palimpsest.policies.notices import AddEvidence
from palimpsest.profiles.profile import CacheChoice

# Longer than any sensible number of tokens, bytes, lines or turns.
_MAX_DIGITS: Final = 11
_QUOTED_CHARS: Final = 40
_ALL_PERCENT: Final = 100
_ON: Final = frozenset({"1", "true", "yes", "on"})
_CLAUDE: Final = (
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
    "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE",
    "CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE",
    "DISABLE_COMPACT",
    "DISABLE_AUTO_COMPACT",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY",
    "PAL_EVIDENCE",
    "PAL_LANGUAGE",
    "PAL_OUTPUT_STYLE",
    "PAL_SCRATCHPAD",
)
_CLAUDE_MEASURED: Final = (*_CLAUDE, "CLAUDE_CODE_AUTO_COMPACT_WINDOW", "proactive")
_CODEX: Final = (
    "model_context_window",
    "model_auto_compact_token_limit",
    "tool_output_token_limit",
    "compact_prompt",
    "experimental_compact_prompt_file",
    "model_reasoning_effort",
    "model_reasoning_summary",
    "model_verbosity",
    "developer_instructions",
    "project_doc_max_bytes",
    "project_doc_fallback_filenames",
    "project_root_markers",
    "personality",
    "collaboration_mode",
    "commit_attribution",
    "realtime",
    "apps",
    "plugins",
    "service_tier",
    "PAL_EVIDENCE",
)
_MEMORIES: Final = (
    "memories.use_memories",
    "memories.generate_memories",
    "memories.max_rollouts_per_startup",
    "memories.max_rollout_age_days",
    "memories.min_rollout_idle_hours",
)
_OPENCODE: Final = (
    "OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX",
    "compaction.auto",
    "compaction.prune",
    "agent.compaction.model",
    "instructions",
    "OPENCODE_DISABLE_PROJECT_CONFIG",
    "OPENCODE_DISABLE_CLAUDE_CODE_PROMPT",
    "PAL_EVIDENCE",
)

_CACHE: Final = ("PAL_CACHE_TTL", "PAL_KEEP_ALIVE")
_LIFETIMES: Final[dict[str, Literal["auto", "5m", "1h"]]] = {"auto": "auto", "5m": "5m", "1h": "1h"}
_OURS: Final = (
    "PAL_COMPACT_AT",
    "PAL_AUTO_COMPACT",
    "PAL_NARRATIVE",
    "PAL_TAIL",
    "PAL_MESSAGES",
    "PAL_RESULTS",
    "PAL_NAMES",
    "PAL_WITHOUT",
    "PAL_PREVIEW_ABOVE",
    "PAL_INSTRUCTIONS",
    "PAL_THINKING_RETHOUGHT",
    *_CACHE,
)

SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "palimpsest": (*_OURS, "PAL_THRIFT", "PAL_COMPACTION"),
    "gateway": _OURS,
    "gateway-thrifty": _OURS,
    "lossless": (*_CACHE, "PAL_INSTRUCTIONS"),
    "provider": (*_OURS, "compaction.trigger"),
    "claude-code": (*_CLAUDE, "DISABLE_MICROCOMPACT", "cached_microcompact", "keep_analysis"),
    "claude-code-2.1.325": _CLAUDE_MEASURED,
    "context-editing": (
        "clear_tool_uses.trigger",
        "clear_tool_uses.keep",
        "clear_tool_uses.clear_at_least",
        "clear_tool_uses.exclude_tools",
        "clear_tool_uses.clear_tool_inputs",
        "clear_tool_uses.sticky",
        *_CLAUDE_MEASURED,
    ),
    "codex": (*_CODEX, *_MEMORIES, "memories.max_raw_memories_for_global", "memories.phase_1_model", "memories.phase_2_model"),
    "codex-0.166": (
        *_CODEX,
        *_MEMORIES,
        "memories.max_raw_memories_for_consolidation",
        "memories.max_unused_days",
        "memories.extract_model",
        "memories.consolidation_model",
        "model_auto_compact_token_limit_scope",
        "features.remote_compaction_v2",
        "skills.max_context_tokens",
    ),
    "opencode": (*_OPENCODE, "OPENCODE_DISABLE_AUTOCOMPACT", "OPENCODE_DISABLE_PRUNE", "OPENCODE_CONFIG_DIR"),
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
# A log or a file must not decide which other files, addresses, texts or models are used.
_NEVER_RECORDED: Final = frozenset(
    {
        "PAL_INSTRUCTIONS",
        "PAL_LANGUAGE",
        "PAL_OUTPUT_STYLE",
        "compact_prompt",
        "experimental_compact_prompt_file",
        "developer_instructions",
        "project_doc_fallback_filenames",
        "project_root_markers",
        "commit_attribution",
        "realtime",
        "apps",
        "plugins",
        "service_tier",
        "agent.compaction.model",
        "memories.phase_1_model",
        "memories.phase_2_model",
        "memories.extract_model",
        "memories.consolidation_model",
        "instructions",
        "OPENCODE_CONFIG_DIR",
    }
)


def may_be_recorded(settings: Iterable[str]) -> bool:
    """Whether settings may come from a log: numbers and switches may, names of files, texts and models may not."""
    return _NEVER_RECORDED.isdisjoint(settings)


def honoured_settings(profile: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a profile that an environment sets; an empty value does not set anything."""
    return {name: environment[name] for name in SETTINGS.get(profile, ()) if environment.get(name, "").strip()}


def require_known(profile: str, settings: Iterable[str], known: Iterable[str]) -> None:
    """Raise `BadInput` for a setting that a profile does not read; the message lists those that it reads."""
    read = tuple(known)
    wrong = next((name for name in settings if name not in read), None)
    if wrong is not None:
        listed = f"its settings are {', '.join(read)}" if read else "it has no settings"
        raise BadInput(f"{profile} does not read {quoted(wrong)}; {listed}", where="profile")


def parse_number(text: str, least: int = 1) -> int | None:
    """Parse a whole number such as `1000` or `1_000`; `None` if it is none, is below `least` or has more than 11 digits."""
    digits = text.strip().replace("_", "")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _MAX_DIGITS):
        return None
    number = int(digits)
    return number if number >= least else None


def strict_number(settings: Mapping[str, str], name: str, *, least: int = 1, wanted: str = "a whole number") -> int | None:
    """Return the number of a setting, or `None` if it is not set; raise `BadInput` for any other value."""
    text = settings.get(name, "").strip()
    number = parse_number(text, least)
    if text and number is None:
        raise BadInput(f"{name} is {quoted(text)}; give {wanted} from {least} on", where="settings")
    return number


def lenient_number(settings: Mapping[str, str], name: str, most: int | None = None) -> int | None:
    """Return the number of a setting; `None` if it is not set, is no number, or is not within 1 and `most`."""
    number = parse_number(settings.get(name, ""))
    return None if number is None or (most is not None and number > most) else number


def one_of(settings: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    """Return the choice of a setting, the first one if it is not set; raise `BadInput` for any other value."""
    text = settings.get(name, "").strip() or known[0]
    if text not in known:
        raise BadInput(f"{name} is {quoted(text)}; it can be {', '.join(known)}", where="settings")
    return text


def quoted(text: str) -> str:
    """Return the value of a setting in quotes for an error message, cut to 40 characters."""
    return repr(text if len(text) <= _QUOTED_CHARS else f"{text[:_QUOTED_CHARS]}…")


def is_on(settings: Mapping[str, str], name: str) -> bool:
    """Return whether a switch is set to `1`, `true`, `yes` or `on`; the default is off."""
    return settings.get(name, "").strip().lower() in _ON


def cache_settings(settings: Mapping[str, str]) -> tuple[CacheChoice, tuple[Job, ...]]:
    """Return how the cache is used, and the job that keeps it alive if that is turned on; raise `BadInput` for a setting that is wrong.

    `PAL_CACHE_TTL` is the lifetime of cache entries: auto, 5m or 1h. `PAL_KEEP_ALIVE=on` sends requests that keep the cache alive.
    """
    text = settings.get("PAL_CACHE_TTL", "").strip().lower() or "auto"
    if text not in _LIFETIMES:
        raise BadInput(f"PAL_CACHE_TTL is {quoted(text)}; it can be {', '.join(_LIFETIMES)}", where="settings")
    if not is_on(settings, "PAL_KEEP_ALIVE"):
        return CacheChoice(_LIFETIMES[text]), ()
    # Imported on use: it is off by default, and a start is measured in milliseconds.
    job: Job = import_module("palimpsest.policies.jobs.keep_alive").KeepAlive()
    return CacheChoice(_LIFETIMES[text], KEEP_ALIVE_LOSS), (job,)


def thinking_rethought(settings: Mapping[str, str]) -> float:
    """Return the share of lost reasoning that is thought again, from `PAL_THINKING_RETHOUGHT` in percent; raise `BadInput` above 100."""
    percent = strict_number(settings, "PAL_THINKING_RETHOUGHT", least=0, wanted="a percentage") or 0
    if percent > _ALL_PERCENT:
        raise BadInput(f"PAL_THINKING_RETHOUGHT is {percent}; give a percentage from 0 to 100", where="settings")
    return percent / _ALL_PERCENT


def evidence(settings: Mapping[str, str]) -> tuple[AddEvidence, ...]:
    """Return the policy that adds evidence to summaries, if `PAL_EVIDENCE` turns it on."""
    return (AddEvidence(),) if is_on(settings, "PAL_EVIDENCE") else ()
