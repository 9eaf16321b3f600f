"""The profiles `codex` (as documented) and `codex-0.166` (as measured), with the settings of Codex under their own names."""

from collections.abc import Callable, Mapping
from typing import Final, Literal

from palimpsest.audit.fold_texts import EVIDENCE_TOKENS
from palimpsest.core.situation import Moment
from palimpsest.core.tokens.budget import Budget, used
from palimpsest.core.tokens.view_sizes import CountsTokens
from palimpsest.core.view import View
from palimpsest.policies.budgets import codex_budget
from palimpsest.policies.fold.fold import model_free_fallback
from palimpsest.policies.handoff.handoff import Handoff, LastResort
from palimpsest.policies.handoff.trigger import HandoffTrigger
from palimpsest.policies.limiters.results import OUTPUT_LIMIT, CodexLimiter
from palimpsest.policies.remote import Remote
from palimpsest.profiles.profile import AgentRules, MemoryRules, NoteRules, Profile, ResultLimiter
from palimpsest.profiles.settings import strict_number
from palimpsest.sources.variants.codex import codex_0_166_sources, codex_skills, codex_sources
from palimpsest.wire.models.cards import ModelCard, is_generic
from palimpsest.wire.request import Params

_WITHIN_TURN: Final[frozenset[Moment]] = frozenset({"before_call", "after_call", "overflow"})
_ALWAYS: Final[frozenset[Moment]] = frozenset({*_WITHIN_TURN, "turn_starts", "asked"})
_ABORTED: Final = (
    "<turn_aborted>\nThe user interrupted the previous turn on purpose. Commands that were running have been ended, and tools may have "
    "done part of their work: check the current state before you run anything again.\n</turn_aborted>"
)
_OFF: Final = frozenset({"false", "0", "no", "off"})


# Codex reads sessions when they are finished, and keeps no notes of a running one.
_MEMORY: Final = MemoryRules(extracts=False, takes_notes=False)


def codex(settings: Mapping[str, str]) -> Profile:
    """Compact through the dedicated endpoint of the provider, else by a summary; stated context is repeated only by folds within a turn."""
    trigger = HandoffTrigger()
    return Profile(
        "codex",
        (Remote("endpoint", _WITHIN_TURN, trigger), _handoff(settings, _WITHIN_TURN, trigger), LastResort(model_free_fallback())),
        lambda card: _budget(card, settings),
        fallback=model_free_fallback(),
        size_rule="codex",
        count=_count,
        recounts=True,
        overflow="stop",
        limiter=_limiter(settings),
        params=_params(settings, "codex"),
        sources=codex_sources(settings),
        mentioned_skills=codex_skills,
        interrupted_result="aborted",
        interrupted_notice=_ABORTED,
        snapshot_first=True,
        notes=NoteRules("summary", 5_000, cuts_middle=True, recall="off", cites=True),
        agents=AgentRules(depth=1, threads=6, tagged=True),
        memory=_MEMORY,
    )


def codex_0_166(settings: Mapping[str, str]) -> Profile:
    """Compact by a compaction item in a request, else by a summary; every fold but that of a model switch repeats stated context."""
    after_prefix = settings.get("model_auto_compact_token_limit_scope") == "body_after_prefix"
    trigger = HandoffTrigger("body_after_prefix" if after_prefix else "total", at_effective_window=True)
    # With the item turned off, 0.166 was observed to summarize and never to use the endpoint.
    remote = settings.get("features.remote_compaction_v2", "true").lower() not in _OFF
    return Profile(
        "codex-0.166",
        (
            *((Remote("item", _ALWAYS, trigger),) if remote else ()),
            _handoff(settings, _ALWAYS, trigger, in_parts=True),
            LastResort(model_free_fallback()),
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
        mentioned_skills=codex_skills,
        interrupted_result="aborted",
        interrupted_notice=_ABORTED,
        notes=NoteRules("summary", 2_500, cuts_middle=True, recall="off", cites=True),
        agents=AgentRules(depth=1, threads=6, tagged=True, dialogue_forks=True),
        memory=_MEMORY,
    )


def _handoff(settings: Mapping[str, str], inject: frozenset[Moment], trigger: HandoffTrigger, *, in_parts: bool = False) -> Handoff:
    prompt_text, prompt_file = settings.get("compact_prompt", "").strip(), settings.get("experimental_compact_prompt_file", "")
    evidence = 0 if settings.get("PAL_EVIDENCE", "").strip().lower() in _OFF else EVIDENCE_TOKENS
    return Handoff(inject, trigger, evidence_tokens=evidence, in_parts=in_parts, prompt_text=prompt_text, prompt_file=prompt_file)


def _budget(card: ModelCard, settings: Mapping[str, str], *, clamped: bool = False) -> Budget:
    window = strict_number(settings, "model_context_window") or card.window
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
        dialect=dialect,
    )
