"""The profiles `codex`, as documented, and `codex-0.166`, as measured, with the settings of the original under their own names."""

from collections.abc import Callable, Mapping
from typing import Final, Literal

from palimpsest.core.situation import Moment
from palimpsest.core.tokens.budget import Budget, used
from palimpsest.core.tokens.view_sizes import CountsTokens
from palimpsest.core.view import View
from palimpsest.policies.budgets import codex_budget
from palimpsest.policies.fold.fold import rung
from palimpsest.policies.handoff.handoff import Handoff
from palimpsest.policies.handoff.last_resort import LastResort
from palimpsest.policies.handoff.when import When
from palimpsest.policies.offload import OUTPUT_LIMIT, OffloadCodex
from palimpsest.policies.remote import Remote
from palimpsest.profiles.numbers import number
from palimpsest.profiles.profile import Arrival, Profile
from palimpsest.wire.models.cards import ModelCard, is_generic
from palimpsest.wire.request import Params

_WITHIN_TURN: Final[frozenset[Moment]] = frozenset({"before_call", "after_call", "overflow"})
_ALWAYS: Final[frozenset[Moment]] = frozenset({*_WITHIN_TURN, "turn_starts", "asked"})
_OFF: Final = frozenset({"false", "0", "no", "off"})


def codex(settings: Mapping[str, str]) -> Profile:
    """Context moves with a fold only within a turn; the provider compacts at a door of its own."""
    when = When()
    return Profile(
        "codex",
        (Remote("door", _WITHIN_TURN, when), _handoff(settings, _WITHIN_TURN, when), LastResort(rung())),
        lambda card: _budget(card, settings),
        rung=rung(),
        size="codex",
        count=_count,
        recounts=True,
        overflow="stop",
        arrival=_arrival(settings),
        params=_params(settings, "codex"),
    )


def codex_0_166(settings: Mapping[str, str]) -> Profile:
    """Context moves with every fold but that of a switch; the provider compacts by an item at the end of a request."""
    body = settings.get("model_auto_compact_token_limit_scope") == "body_after_prefix"
    when = When("body_after_prefix" if body else "total", hard=True)
    # Even where the item is turned off, the door was never used.
    remote = settings.get("features.remote_compaction_v2", "true").lower() not in _OFF
    return Profile(
        "codex-0.166",
        (*((Remote("trigger", _ALWAYS, when),) if remote else ()), _handoff(settings, _ALWAYS, when, in_parts=True), LastResort(rung())),
        lambda card: _budget(card, settings, clamped=True),
        rung=rung(),
        size="codex",
        count=_count,
        recounts=True,
        overflow="stop",
        arrival=_arrival(settings, warns=True),
        params=_params(settings, "codex-0.166"),
    )


def _handoff(settings: Mapping[str, str], inject: frozenset[Moment], when: When, *, in_parts: bool = False) -> Handoff:
    words, words_from = settings.get("compact_prompt", "").strip(), settings.get("experimental_compact_prompt_file", "")
    return Handoff(inject, when, in_parts=in_parts, words=words, words_from=words_from)


def _budget(card: ModelCard, settings: Mapping[str, str], *, clamped: bool = False) -> Budget:
    window = number(settings, "model_context_window") or card.window
    return codex_budget(min(window, card.window) if clamped else window, limit=number(settings, "model_auto_compact_token_limit"))


def _count(view: View, counter: CountsTokens, _: int) -> int:
    """The list of tools is no part of an estimate here; what a provider reports counts it anyway."""
    return used(view, counter)


def _arrival(settings: Mapping[str, str], *, warns: bool = False) -> Callable[[ModelCard], Arrival]:
    """What bounds results: tokens for a model that has a card of its own, as many bytes for one that nobody knows."""
    limit = number(settings, "tool_output_token_limit")
    known = OffloadCodex(limit or OUTPUT_LIMIT, warns=warns)
    unknown = OffloadCodex(4 * limit if limit else OUTPUT_LIMIT, "bytes", warns=warns)
    return lambda card: unknown if is_generic(card) else known


def _params(settings: Mapping[str, str], dialect: Literal["codex", "codex-0.166"]) -> Params:
    return Params(
        effort=settings.get("model_reasoning_effort", ""),
        summary=settings.get("model_reasoning_summary", ""),
        verbosity=settings.get("model_verbosity", ""),
        dialect=dialect,
    )
