"""The type of a profile with its policies, budget and numbers, and the settings that profiles accept."""

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from palimpsest.audit.gate import Strictness
from palimpsest.audit.prices import KEEP_ALIVE_LOSS, LIFETIME_LOSS
from palimpsest.core.budget import Budget, RowForm, used
from palimpsest.core.calls import CIRCUIT
from palimpsest.core.errors import BadInput
from palimpsest.core.events import ToolReturned
from palimpsest.core.items import Part
from palimpsest.core.plans import PARTS, Answer, Job, Policy, Want
from palimpsest.core.tokens import CountsTokens
from palimpsest.core.view import View
from palimpsest.policies.notices import AddEvidence
from palimpsest.sources.sets import our_skills, palimpsest_sources
from palimpsest.sources.skills import Skill
from palimpsest.sources.source import SourceSet, World
from palimpsest.wire.models import ModelCard
from palimpsest.wire.request import DEFAULTS, Params

ResultLimiter: TypeAlias = Callable[[ToolReturned], Generator[Want, Answer, ToolReturned]]
Count: TypeAlias = Callable[[View, CountsTokens, int], int]


def _unchanged(returned: ToolReturned) -> Generator[Want, Answer, ToolReturned]:
    yield from ()
    return returned


def for_any_model(limiter: ResultLimiter) -> Callable[[ModelCard], ResultLimiter]:
    """Return a limiter by model that is the same for all models."""
    return lambda _: limiter


UNLIMITED: Final = for_any_model(_unchanged)
"""Leaves results as they are, for replays; the loop bounds the results of a profile that has no limiter of its own."""


class AgentRules(Struct, frozen=True):
    """Sub-agents under a profile: the deepest level below the agent of the user, and how many are open at once in the whole tree.

    tagged: state ends of sub-agents as `<subagent_notification>` and let `wait_agent` return reports too, as Codex does.
    dialogue_forks: a forked sub-agent sees messages and closing replies only, without thinking and tool calls.
    """

    depth: int = 3
    threads: int = 8
    tagged: bool = False
    dialogue_forks: bool = False


class NoteRules(Struct, frozen=True):
    """What of long-term notes reaches a model under a profile.

    head: what is stated at the start of an epoch: the index of the notes with the summary, one of the two, cards, or nothing.
    summary_tokens: the longest summary that is stated.
    cuts_middle: a longer summary loses its middle, as in Codex; else its last lines.
    recall: how a prompt recalls notes: by its words, by a model that chooses among all of them, or not at all.
    folder: where the notes are: in the home, or as plain files in the folder of Claude Code, which the model reads and writes itself.
    cites: replies end with citation blocks, which are not shown.
    root: the folder of the handbook whose summary is stated, see `StageRules`; empty: the summaries of the notes are.
    """

    head: Literal["index and summary", "index", "summary", "cards", "nothing"] = "index and summary"
    summary_tokens: int = 2_500
    cuts_middle: bool = False
    recall: Literal["words", "model", "off"] = "words"
    folder: Literal["home", "claude"] = "home"
    cites: bool = False
    root: str = ""


class StageRules(Struct, frozen=True):
    """Two-stage memory of finished sessions under a profile: a memory of each, and a handbook over all, in a folder of their own.

    root: the name of the folder. has_raw: stage one makes raw memories beside summaries, and the handbook begins from them.
    sessions, age_days, idle_hours: how many finished sessions a start reads, and between which ages. memories: how many stage two reads.
    phase_one_model, phase_two_model: models that the user named; else the defaults, where the session's provider has them.
    cooldown_hours: hours from one consolidation to the next. unused_days: days without use after which a memory goes; 0: none goes.
    summary_tokens: tokens of the summary that a session states.
    """

    root: str
    has_raw: bool
    sessions: int
    age_days: float
    idle_hours: float
    memories: int
    summary_tokens: int
    phase_one_model: str = ""
    phase_two_model: str = ""
    phase_one_default: str = ""
    phase_two_default: str = ""
    cooldown_hours: float = 0.0
    unused_days: float = 0.0


class MemoryRules(Struct, frozen=True):
    """Which parts of memory a profile has; settings of the user can turn each off.

    remembers: what the user asks to remember is noted.
    extracts: notes are extracted from the conversation at the end of turns.
    takes_notes: running notes of the session may be kept.
    summarises: finished sessions are summarised in the background, and their notes consolidated.
    stages: finished sessions are read in two stages instead, from the start of every session on.
    finishes: a session that ends with its turn has these jobs too, and its end waits for them, since nothing reads it later.
    """

    remembers: bool = True
    extracts: bool = True
    takes_notes: bool = True
    summarises: bool = True
    stages: StageRules | None = None
    finishes: bool = False


NO_MEMORY: Final = MemoryRules(remembers=False, extracts=False, takes_notes=False, summarises=False)


class CacheChoice(Struct, frozen=True):
    """How a profile uses the cache of the provider.

    lifetime: that of entries at breakpoints: as the parameters of the session have it, chosen by the pauses of the user, or fixed.
    loss: the share of the cost of a session that choosing may lose, and edits where it is known what they cost.
    """

    lifetime: Literal["given", "auto", "5m", "1h"] = "given"
    loss: float = LIFETIME_LOSS


OUR_SOURCES: Final = palimpsest_sources({})


@dataclass(frozen=True, slots=True)
class Profile:
    """A named bundle of policies and numbers. Policies run in the given order.

    fallback: folds without a model, when a policy asked for a model and none is available.
    size_rule: name of the rule that estimates the tokens of an item.
    count: computes the used tokens of a view.
    overflow: whether the engine stops or folds when the provider rejects a request as too long.
    stops_when_fold_fails: make no call after a fold that failed.
    recounts: ignore usage that was reported before a fold, as the original program does.
    circuit: number of failures in a row after which a policy no longer runs automatically; 0 is no limit.
    folds_per_turn: largest number of folds in a turn; 0 is no limit.
    parts: tokens that a fold usually leaves beside head and user messages.
    interrupted_result: result of tool calls that an interrupt leaves without one; empty for a text that says whether the tool had started.
    interrupted_notice: context that is stated after an interrupted turn.
    limiter: returns, by model, what bounds a tool result before it is recorded; the loop that runs the tools calls it, and a replay does.
    snapshot_first: keep the state of files before the first request of a turn, not only before its first tool that may change them.
    forgets_hidden_reads: a file has to be read again before it is changed, once its reads are cleared or folded, as in Claude Code.
    skills: finds the skills that are listed and that the tool `skill` loads.
    mentioned_skills: finds the skills whose bodies are stated when the user mentions them as `$name`.
    jobs: background work beside turns, for agents that are given no jobs of their own.
    agents: the rules of sub-agents; settings of the user may set other numbers.
    memory: which parts of memory it has.
    sources: what is stated to the model beside the conversation, in order; by default the sources of the profile `palimpsest`.
    notes: what of long-term notes reaches the model.
    cache: the lifetime of cache entries.
    thinking_rethought: the share of the reasoning that an edit costs which is expected to be thought again, at the price of output.
    tool_forms: in whose names and forms our tools are declared.
    collaborations: ways of working together that `/mode` selects beside what may run; `collaboration` is that of new sessions.
    framed_input: returns what the user says with the texts that the program puts round its parts, such as tags of images.
    mention_sigils: the letters before the name of a skill that mention it.
    states_shell_lines: a command that the user runs is stated with its output; otherwise it is outside of the conversation.
    left: the percent of the window that are left, as the program tells its user, by the used tokens and the budget.
    personality: the style that the user has set for the replies.
    keeps_plan: in plan mode the model hands its plan over with a tool, which keeps it in a file of the session.
    scratchpad: the session has a folder of its own for temporary files, which is stated.
    counts_tools: the provider is asked once for the size of each set of tools, where it counts tokens.
    rows: which rows and cells the table of what fills the window has.
    """

    name: str
    policies: tuple[Policy, ...]
    budget: Callable[[ModelCard], Budget]
    fallback: Policy | None = None
    size_rule: str = "palimpsest"
    count: Count = used
    strictness: Strictness = "lenient"
    overflow: Literal["stop", "fold"] = "fold"
    stops_when_fold_fails: bool = False
    recounts: bool = False
    circuit: int = CIRCUIT
    folds_per_turn: int = 2
    parts: int = PARTS
    limiter: Callable[[ModelCard], ResultLimiter] = UNLIMITED
    params: Params = DEFAULTS
    interrupted_result: str = ""
    interrupted_notice: str = ""
    snapshot_first: bool = False
    forgets_hidden_reads: bool = False
    agents: AgentRules = field(default_factory=AgentRules)
    sources: SourceSet = OUR_SOURCES
    skills: Callable[[World], tuple[Skill, ...]] = our_skills
    mentioned_skills: Callable[[World], tuple[Skill, ...]] | None = None
    jobs: tuple[Job, ...] = ()
    notes: NoteRules = field(default_factory=NoteRules)
    memory: MemoryRules = field(default_factory=MemoryRules)
    cache: CacheChoice = field(default_factory=CacheChoice)
    thinking_rethought: float = 0.0
    tool_forms: Literal["own", "codex", "codex-0.166"] = "own"
    collaborations: tuple[str, ...] = ()
    collaboration: str = ""
    framed_input: Callable[[tuple[Part, ...]], tuple[Part, ...]] = tuple
    mention_sigils: str = "$"
    states_shell_lines: bool = False
    left: Callable[[int, Budget], int] | None = None
    personality: str = ""
    rows: RowForm = "measured"
    keeps_plan: bool = False
    scratchpad: bool = False
    counts_tools: bool = False

    @property
    def program(self) -> str:
        """The name without the settings that it carries."""
        return self.name.partition("@")[0]


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
    job: Job = import_module("palimpsest.policies.jobs").KeepAlive()
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
