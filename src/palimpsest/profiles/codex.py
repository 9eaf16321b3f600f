"""The profiles `codex` (as documented) and `codex-0.166` (as measured), with the settings of Codex under their own names."""

from collections.abc import Callable, Mapping
from typing import Final, Literal, TypedDict

from msgspec.structs import replace

from palimpsest.core.errors import BadInput
from palimpsest.core.situation import Moment
from palimpsest.core.tokens.budget import Budget, used
from palimpsest.core.tokens.view_sizes import CountsTokens
from palimpsest.core.view import View
from palimpsest.policies.budgets import codex_budget, codex_effective, percent_left
from palimpsest.policies.fold.fold import model_free_fallback
from palimpsest.policies.handoff.handoff import Handoff, LastResort
from palimpsest.policies.handoff.trigger import HandoffTrigger
from palimpsest.policies.limiters.results import OUTPUT_LIMIT, CodexLimiter
from palimpsest.policies.remote import Remote
from palimpsest.profiles.profile import AgentRules, MemoryRules, NoteRules, Profile, ResultLimiter, StageRules
from palimpsest.profiles.settings import evidence, one_of, quoted, strict_number
from palimpsest.sources.model_prompt import PERSONALITIES
from palimpsest.sources.variants.codex import codex_0_166_sources, codex_skills, codex_sources, framed_images
from palimpsest.wire.models.cards import ModelCard, is_generic
from palimpsest.wire.request import Params

_WITHIN_TURN: Final[frozenset[Moment]] = frozenset({"before_call", "after_call", "overflow"})
_ALWAYS: Final[frozenset[Moment]] = frozenset({*_WITHIN_TURN, "turn_starts", "asked"})
_ABORTED: Final = (
    "<turn_aborted>\nThe user interrupted the previous turn on purpose. Commands that were running have been ended, and tools may have "
    "done part of their work: check the current state before you run anything again.\n</turn_aborted>"
)
_COLLABORATIONS: Final = ("execute", "pair_programming")
# The names of OpenAI for the tiers of Codex.
_TIERS: Final = {"standard": "", "fast": "priority", "flex": "flex"}
_OFF: Final = frozenset({"false", "0", "no", "off"})


_SWITCHES: Final = frozenset({"true", "false"})


def _memory(settings: Mapping[str, str], stages: StageRules) -> MemoryRules:
    """Codex reads sessions when they are finished, and keeps no notes of a running one."""
    is_on = _switch(settings, "memories.generate_memories")
    return MemoryRules(extracts=False, takes_notes=False, summarises=is_on, stages=stages)


def _stages(settings: Mapping[str, str], documented: StageRules, most_memories: str, models: tuple[str, str]) -> StageRules:
    """Return the numbers of memory with the settings of the user over them, clamped as Codex clamps them."""

    def number(name: str, default: float, least: int, most: int) -> int:
        found = strict_number(settings, f"memories.{name}", least=0)
        return min(most, max(least, int(default) if found is None else found))

    return replace(
        documented,
        sessions=number("max_rollouts_per_startup", documented.sessions, 0 if documented.has_raw else 1, 128),
        age_days=number("max_rollout_age_days", documented.age_days, 0, 90),
        idle_hours=number("min_rollout_idle_hours", documented.idle_hours, 1, 48),
        memories=number(most_memories, documented.memories, 1, 4_096),
        unused_days=0 if documented.has_raw else number("max_unused_days", documented.unused_days, 0, 365),
        phase_one_model=settings.get(f"memories.{models[0]}", "").strip(),
        phase_two_model=settings.get(f"memories.{models[1]}", "").strip(),
    )


def _switch(settings: Mapping[str, str], name: str) -> bool:
    text = settings.get(name, "").strip().lower() or "true"
    if text not in _SWITCHES:
        raise BadInput(f"{name} is {quoted(text)}; it can be true or false", where="settings")
    return text == "true"


_DOCUMENTED: Final = StageRules(
    "memories",
    has_raw=True,
    sessions=16,
    age_days=30,
    idle_hours=6,
    memories=1_024,
    summary_tokens=5_000,
    phase_one_default="gpt-5.1-codex-mini",
    phase_two_default="gpt-5.3-codex",
)
_MEASURED: Final = StageRules(
    "memories_v2",
    has_raw=False,
    sessions=2,
    age_days=10,
    idle_hours=6,
    memories=256,
    summary_tokens=2_500,
    cooldown_hours=6,
    unused_days=30,
)


def codex(settings: Mapping[str, str]) -> Profile:
    """Compact through the dedicated endpoint of the provider, else by a summary; stated context is repeated only by folds within a turn."""
    trigger = HandoffTrigger()
    stages = _stages(settings, _DOCUMENTED, "max_raw_memories_for_global", ("phase_1_model", "phase_2_model"))
    uses = _switch(settings, "memories.use_memories")
    return Profile(
        "codex",
        (
            Remote("endpoint", _WITHIN_TURN, trigger),
            _handoff(settings, _WITHIN_TURN, trigger),
            LastResort(model_free_fallback()),
            *evidence(settings),
        ),
        lambda card: _budget(card, settings),
        fallback=model_free_fallback(),
        size_rule="codex",
        count=_count,
        recounts=True,
        overflow="stop",
        limiter=_limiter(settings),
        params=_params(settings, "codex"),
        sources=codex_sources(settings),
        skills=codex_skills,
        mentioned_skills=codex_skills,
        interrupted_result="aborted",
        interrupted_notice=_ABORTED,
        snapshot_first=True,
        notes=NoteRules("summary" if uses else "nothing", 5_000, cuts_middle=True, recall="off", cites=True, root=stages.root),
        agents=AgentRules(depth=1, threads=6, tagged=True),
        memory=_memory(settings, stages),
        tool_forms="codex",
        framed_input=lambda parts: framed_images(parts, documented=True),
        mention_sigils="$@",
        **_ways(settings),
    )


def codex_0_166(settings: Mapping[str, str]) -> Profile:
    """Compact by a compaction item in a request, else by a summary; every fold but that of a model switch repeats stated context."""
    after_prefix = settings.get("model_auto_compact_token_limit_scope") == "body_after_prefix"
    trigger = HandoffTrigger("body_after_prefix" if after_prefix else "total", at_effective_window=True)
    # With the item turned off, 0.166 was observed to summarize and never to use the endpoint.
    stages = _stages(settings, _MEASURED, "max_raw_memories_for_consolidation", ("extract_model", "consolidation_model"))
    uses = _switch(settings, "memories.use_memories")
    remote = settings.get("features.remote_compaction_v2", "true").lower() not in _OFF
    return Profile(
        "codex-0.166",
        (
            *((Remote("item", _ALWAYS, trigger),) if remote else ()),
            _handoff(settings, _ALWAYS, trigger, in_parts=True),
            LastResort(model_free_fallback()),
            *evidence(settings),
        ),
        lambda card: _budget(card, settings, clamped=True),
        fallback=model_free_fallback(),
        size_rule="codex",
        count=_count,
        recounts=True,
        overflow="stop",
        limiter=_limiter(settings, warns=True),
        params=_params(settings, "codex-0.166"),
        sources=codex_0_166_sources(settings),
        skills=codex_skills,
        mentioned_skills=codex_skills,
        interrupted_result="aborted",
        interrupted_notice=_ABORTED,
        notes=NoteRules("summary" if uses else "nothing", 2_500, cuts_middle=True, recall="off", cites=True, root=stages.root),
        agents=AgentRules(depth=1, threads=6, tagged=True, dialogue_forks=True),
        memory=_memory(settings, stages),
        tool_forms="codex-0.166",
        framed_input=framed_images,
        **_ways(settings),
    )


def _handoff(settings: Mapping[str, str], inject: frozenset[Moment], trigger: HandoffTrigger, *, in_parts: bool = False) -> Handoff:
    prompt_text, prompt_file = settings.get("compact_prompt", "").strip(), settings.get("experimental_compact_prompt_file", "")
    return Handoff(inject, trigger, in_parts=in_parts, prompt_text=prompt_text, prompt_file=prompt_file)


class _Ways(TypedDict):
    collaborations: tuple[str, ...]
    collaboration: str
    personality: str
    states_shell_lines: bool
    left: Callable[[int, Budget], int]


def _ways(settings: Mapping[str, str]) -> _Ways:
    """Return how the user wants to work with the agent."""
    personality = one_of(settings, "personality", ("none", *sorted(PERSONALITIES)))
    chosen = one_of(settings, "collaboration_mode", ("default", *_COLLABORATIONS))
    return _Ways(
        collaborations=_COLLABORATIONS,
        collaboration="" if chosen == "default" else chosen,
        personality="" if personality == "none" else personality,
        states_shell_lines=True,
        left=lambda tokens, budget: percent_left(tokens, codex_effective(budget.window)),
    )


def _budget(card: ModelCard, settings: Mapping[str, str], *, clamped: bool = False) -> Budget:
    window = strict_number(settings, "model_context_window") or card.working_window
    return codex_budget(min(window, card.window) if clamped else window, limit=strict_number(settings, "model_auto_compact_token_limit"))


def _count(view: View, counter: CountsTokens, _: int) -> int:
    """Count used tokens without an estimate of the tool definitions; a usage that the provider reported includes them."""
    return used(view, counter)


def _limiter(settings: Mapping[str, str], *, warns: bool = False) -> Callable[[ModelCard], ResultLimiter]:
    """Return the result limiter by model: it counts tokens for a model with a card, and bytes for an unknown model."""
    limit = strict_number(settings, "tool_output_token_limit")
    known = CodexLimiter(limit or OUTPUT_LIMIT, warns=warns)
    unknown = CodexLimiter(4 * limit if limit else OUTPUT_LIMIT, "bytes", warns=warns)
    return lambda card: unknown if is_generic(card) else known


def _params(settings: Mapping[str, str], dialect: Literal["codex", "codex-0.166"]) -> Params:
    return Params(
        states_limit=False,
        effort=settings.get("model_reasoning_effort", ""),
        summary=settings.get("model_reasoning_summary", ""),
        verbosity=settings.get("model_verbosity", ""),
        service_tier=_TIERS[one_of(settings, "service_tier", tuple(_TIERS))],
        dialect=dialect,
    )
