"""Profiles that imitate Codex, as documented and as measured in 0.166, with its settings and context sources."""

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from msgspec import structs

from palimpsest.core.budget import Budget, used
from palimpsest.core.errors import BadInput
from palimpsest.core.items import Image, Part, Text
from palimpsest.core.plans import Moment
from palimpsest.core.text import attribute, within
from palimpsest.core.tokens import CountsTokens
from palimpsest.core.view import View
from palimpsest.peers.clearing import OUTPUT_LIMIT, CodexLimiter
from palimpsest.policies.budgets import codex_effective, percent_left
from palimpsest.policies.fold import model_free_fallback
from palimpsest.policies.handoff import Handoff, HandoffTrigger, LastResort
from palimpsest.policies.profile import (
    AgentRules,
    MemoryRules,
    NoteRules,
    Profile,
    ResultLimiter,
    StageRules,
    evidence,
    one_of,
    quoted,
    strict_number,
)
from palimpsest.policies.provider_compact import Remote
from palimpsest.sources.environment import codex_environment, codex_mode, permissions, personality, realtime
from palimpsest.sources.instructions import FILE_BYTES, MARKERS, agents_md, config_folder, folders_of_project
from palimpsest.sources.progress import work_state
from palimpsest.sources.prompts import PERSONALITIES, Families, model_prompt, notes
from palimpsest.sources.sets import name_list, number
from palimpsest.sources.skills import Skill, SkillRoot, codex_catalogue, find_skills
from palimpsest.sources.source import Source, SourceSet, World, given
from palimpsest.wire.models import ModelCard, is_generic
from palimpsest.wire.request import Params

CODEX_FAMILIES: Final[Families] = ((("codex",), "codex"), (("gpt-5",), "gpt"), ((), "default"))


def codex_sources(settings: Mapping[str, str]) -> SourceSet:
    """Return the documented sources: base instructions in the head, one developer message, then instructions and environment.

    Raises `BadInput` for a setting that cannot be read.
    """
    return SourceSet(
        (
            model_prompt("codex", CODEX_FAMILIES, bakes_personality=True),
            permissions(tag=True),
            _developer(settings),
            notes("developer", states_changes=False),
            codex_mode(),
            _voice(settings),
            personality(covered_by="base"),
            _section("apps", settings),
            codex_catalogue(codex_skills),
            _section("plugins", settings),
            _attribution(settings),
            _instructions(settings, states_changes=False),
            codex_environment(),
            *work_state("developer"),
        ),
        renews_head=False,
    )


def codex_0_166_sources(settings: Mapping[str, str]) -> SourceSet:
    """Return the measured sources: after the base instructions memory, skills and permissions, then the other sections.

    Raises `BadInput` for a setting that cannot be read.
    """
    budget = settings.get("skills.max_context_tokens", "").strip()
    return SourceSet(
        (
            model_prompt("codex", CODEX_FAMILIES, bakes_personality=True),
            notes("developer", states_changes=False),
            codex_catalogue(codex_skills, bounded=True, most_tokens=number(budget, "skills.max_context_tokens") if budget else None),
            permissions(tag=True),
            _developer(settings),
            personality(covered_by="base"),
            _voice(settings),
            codex_mode(),
            _section("apps", settings),
            _section("plugins", settings),
            _attribution(settings),
            _instructions(settings, states_changes=True),
            codex_environment(filesystem=True),
            *work_state("developer"),
        ),
        renews_head=False,
    )


def framed_images(parts: tuple[Part, ...], *, documented: bool = False) -> tuple[Part, ...]:
    """Return what the user says with a tag round each image; a local one is numbered, as documented in quotes, else with its path."""
    framed: list[Part] = []
    images = 0
    for part in parts:
        if not isinstance(part, Image):
            framed.append(part)
            continue
        images += 1
        number = f'"[Image #{images}]"' if documented else f"[Image #{images}]"
        path = attribute("path", part.name) if part.name and not documented else ""
        opening = f"<image name={number}{path}>" if part.blob else "<image>"
        framed += (Text(opening, attached=True), part, Text("</image>", attached=True))
    return tuple(framed)


def codex_skills(world: World) -> tuple[Skill, ...]:
    """Return the skills that Codex finds; those of its memory folder are not among them."""
    home, config = world.state.home, config_folder(world, ".codex")
    own = (SkillRoot(posixpath.join(config, "skills"), "user"),) if config else ()
    shared = (SkillRoot(posixpath.join(home, ".agents/skills"), "user"),) if home else ()
    system = (SkillRoot(posixpath.join(config, "skills/.system"), "system"),) if config else ()
    folders = folders_of_project(world)
    roots = (
        SkillRoot(posixpath.join(folders[0], ".codex/skills"), "repo"),
        *own,
        *shared,
        *system,
        *(SkillRoot(posixpath.join(folder, ".agents/skills"), "repo") for folder in folders),
    )
    memory = posixpath.join(config, "memories") + "/" if config else ""
    return tuple(skill for skill in find_skills(world, roots) if not memory or not _real(world, skill).startswith(memory))


def _real(world: World, skill: Skill) -> str:
    return world.real_path(skill.path) or skill.path


def _attribution(settings: Mapping[str, str]) -> Source:
    name = settings.get("commit_attribution", "").strip()
    return _configured(
        "attribution", f"End the message of each commit that you make with the trailer `Co-authored-by: {name}`." if name else ""
    )


def _voice(settings: Mapping[str, str]) -> Source:
    found, text = realtime(), settings.get("realtime", "").strip()
    return replace(found, observe=lambda _: {"text": text}) if text else found


def _section(key: str, settings: Mapping[str, str]) -> Source:
    """Return a section about what is connected: the text of the setting of that name, else what the engine gives."""
    return _configured(key, settings.get(key, "").strip(), lambda text: within(f"{key}_instructions", text.strip()))


def _configured(key: str, text: str, frame: Callable[[str], str] = str.strip) -> Source:
    """Return a source of the developer that states a configured text, or without one what the engine gives."""
    found = given(key, "developer", frame=frame)
    return replace(found, observe=lambda _: {"text": text}) if text else found


def _developer(settings: Mapping[str, str]) -> Source:
    """Return the configured developer instructions: those that the engine gives, else the setting."""
    return _configured("developer", settings.get("developer_instructions", "").strip())


def _instructions(settings: Mapping[str, str], *, states_changes: bool) -> Source:
    limit = settings.get("project_doc_max_bytes", "").strip()
    return agents_md(
        limit=number(limit, "project_doc_max_bytes") if limit else FILE_BYTES,
        fallbacks=name_list(settings.get("project_doc_fallback_filenames", ""), "project_doc_fallback_filenames"),
        markers=name_list(settings.get("project_root_markers", ""), "project_root_markers", MARKERS),
        states_changes=states_changes,
    )


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


def _stages(settings: Mapping[str, str], documented: StageRules, most_memories: str, models: tuple[str, str]) -> StageRules:
    """Return the numbers of memory with the settings of the user over them, clamped as Codex clamps them."""

    def number(name: str, default: float, least: int, most: int) -> int:
        found = strict_number(settings, f"memories.{name}", least=0)
        return min(most, max(least, int(default) if found is None else found))

    return structs.replace(
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
    return _documented(settings, _stages(settings, _DOCUMENTED, "max_raw_memories_for_global", ("phase_1_model", "phase_2_model")))


def _documented(settings: Mapping[str, str], stages: StageRules) -> Profile:
    """Return the documented profile with the given stages of memory, whose settings other versions do not read."""
    trigger = HandoffTrigger()
    uses = _switch(settings, "memories.use_memories")
    personality = one_of(settings, "personality", ("none", *sorted(PERSONALITIES)))
    collaboration = one_of(settings, "collaboration_mode", ("default", *_COLLABORATIONS))
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
        params=_params(settings),
        sources=codex_sources(settings),
        skills=codex_skills,
        mentioned_skills=codex_skills,
        interrupted_result="aborted",
        interrupted_notice=_ABORTED,
        snapshot_first=True,
        notes=NoteRules("summary" if uses else "nothing", 5_000, cuts_middle=True, recall="off", cites=True, root=stages.root),
        agents=AgentRules(depth=1, threads=6, tagged=True),
        # Codex reads sessions when they are finished, and keeps no notes of a running one.
        memory=MemoryRules(extracts=False, takes_notes=False, summarises=_switch(settings, "memories.generate_memories"), stages=stages),
        tool_forms="codex",
        framed_input=lambda parts: framed_images(parts, documented=True),
        mention_sigils="$@",
        collaborations=_COLLABORATIONS,
        collaboration="" if collaboration == "default" else collaboration,
        personality="" if personality == "none" else personality,
        states_shell_lines=True,
        left=lambda tokens, budget: percent_left(tokens, codex_effective(budget.window)),
    )


def codex_0_166(settings: Mapping[str, str]) -> Profile:
    """Compact by a compaction item in a request, else by a summary; every fold but that of a model switch repeats stated context."""
    after_prefix = settings.get("model_auto_compact_token_limit_scope") == "body_after_prefix"
    trigger = HandoffTrigger("body_after_prefix" if after_prefix else "total", at_effective_window=True)
    # With the item turned off, 0.166 was observed to summarize and never to use the endpoint.
    stages = _stages(settings, _MEASURED, "max_raw_memories_for_consolidation", ("extract_model", "consolidation_model"))
    documented = _documented(settings, stages)
    remote = settings.get("features.remote_compaction_v2", "true").lower() not in _OFF
    return replace(
        documented,
        name="codex-0.166",
        policies=(
            *((Remote("item", _ALWAYS, trigger),) if remote else ()),
            _handoff(settings, _ALWAYS, trigger, in_parts=True),
            LastResort(model_free_fallback()),
            *evidence(settings),
        ),
        budget=lambda card: _budget(card, settings, clamped=True),
        limiter=_limiter(settings, warns=True),
        params=structs.replace(documented.params, dialect="codex-0.166"),
        sources=codex_0_166_sources(settings),
        snapshot_first=False,
        notes=structs.replace(documented.notes, summary_tokens=2_500),
        agents=structs.replace(documented.agents, dialogue_forks=True),
        tool_forms="codex-0.166",
        framed_input=framed_images,
        mention_sigils="$",
    )


def _handoff(settings: Mapping[str, str], inject: frozenset[Moment], trigger: HandoffTrigger, *, in_parts: bool = False) -> Handoff:
    prompt_text, prompt_file = settings.get("compact_prompt", "").strip(), settings.get("experimental_compact_prompt_file", "")
    return Handoff(inject, trigger, in_parts=in_parts, prompt_text=prompt_text, prompt_file=prompt_file)


def codex_budget(window: int = 272_000, *, limit: int | None = None) -> Budget:
    """Return the budget of Codex: compact at nine tenths of the window, or at a lower `limit`."""
    level = window * 9 // 10 if limit is None else min(window * 9 // 10, limit)
    return Budget(window=window, reply=window - codex_effective(window), buffer=window - level, compact_at=level)


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


def _params(settings: Mapping[str, str]) -> Params:
    return Params(
        states_limit=False,
        effort=settings.get("model_reasoning_effort", ""),
        summary=settings.get("model_reasoning_summary", ""),
        verbosity=settings.get("model_verbosity", ""),
        service_tier=_TIERS[one_of(settings, "service_tier", tuple(_TIERS))],
        dialect="codex",
    )
