"""The type of a profile: its policies in order, its budget, and the numbers that the engine needs."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from palimpsest.audit.gate import Strictness
from palimpsest.audit.pricing.keeping import LIFETIME_LOSS
from palimpsest.core.events import ToolReturned
from palimpsest.core.items import Part
from palimpsest.core.policy import Answer, Job, Policy, Want
from palimpsest.core.projections.health import CIRCUIT
from palimpsest.core.situation import PARTS
from palimpsest.core.tokens.budget import Budget, RowForm, used
from palimpsest.core.tokens.view_sizes import CountsTokens
from palimpsest.core.view import View
from palimpsest.sources.skills.files import Skill
from palimpsest.sources.source import SourceSet, World
from palimpsest.sources.variants.palimpsest import our_skills, palimpsest_sources
from palimpsest.wire.models.cards import ModelCard
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
