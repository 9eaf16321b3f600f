"""The profiles `opencode` (as documented) and `opencode-1.18` (as measured), with the settings of OpenCode under their own names."""

from collections.abc import Mapping

from palimpsest.core.tokens.budget import measured_tokens
from palimpsest.core.tokens.view_sizes import CountsTokens
from palimpsest.core.view import View
from palimpsest.policies.budgets import OPENCODE_REPLY, opencode_budget, opencode_measured_budget
from palimpsest.policies.clear.old import PruneResults
from palimpsest.policies.fold.fold import model_free_fallback
from palimpsest.policies.limiters.results import OPENCODE_BYTES, OPENCODE_LINES, OpencodeLimiter
from palimpsest.policies.mode_reminder import FrameSteering, RemindOfMode
from palimpsest.policies.summarize.anchor import Anchor
from palimpsest.profiles.profile import NO_MEMORY, NoteRules, Profile, for_any_model
from palimpsest.profiles.settings import evidence, strict_number
from palimpsest.sources.variants.opencode import opencode_1_18_sources, opencode_documented_skills, opencode_skills, opencode_sources
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.request import Params

_FALSE = frozenset({"", "false", "0", "no", "off"})


def opencode(environment: Mapping[str, str]) -> Profile:
    """Prune old results at the end of a turn, and compact by summarizing the whole view."""
    auto = _on(environment, "compaction.auto", "true") and not _on(environment, "OPENCODE_DISABLE_AUTOCOMPACT")
    prune = _on(environment, "compaction.prune", "true") and not _on(environment, "OPENCODE_DISABLE_PRUNE")
    reply_cap = _reply_cap(environment)
    anchor = Anchor(auto=auto, model=environment.get("agent.compaction.model", ""))
    return Profile(
        name="opencode",
        memory=NO_MEMORY,
        policies=(*((PruneResults(),) if prune else ()), anchor, *evidence(environment), RemindOfMode(), FrameSteering()),
        fallback=model_free_fallback(),
        budget=lambda card: opencode_budget(card.window, card.reply, _input_limit(card), auto=auto, reply_cap=reply_cap),
        size_rule="opencode",
        count=_count_without_writes,
        overflow="stop",
        stops_when_fold_fails=True,
        folds_per_turn=0,
        limiter=for_any_model(OpencodeLimiter()),
        params=Params(max_tokens=reply_cap, breakpoint_rule="opencode"),
        notes=NoteRules("nothing", recall="off"),
        sources=opencode_sources(environment),
        skills=opencode_documented_skills,
        interrupted_result="[Tool execution was interrupted]",
    )


def opencode_1_18(environment: Mapping[str, str]) -> Profile:
    """Compact by summarizing everything before a verbatim tail, also when a request was too long."""
    auto = _on(environment, "compaction.auto", "true")
    reserved, reply_cap = strict_number(environment, "compaction.reserved", least=0), _reply_cap(environment)
    anchor = Anchor(
        transcript="text",
        auto=auto,
        model=environment.get("agent.compaction.model", ""),
        preserve=strict_number(environment, "compaction.preserve_recent_tokens", least=0),
        tail_turns=strict_number(environment, "compaction.tail_turns", least=0),
        moments=frozenset({"before_call", "after_call", "asked", "overflow"}),
    )
    lines, size = strict_number(environment, "tool_output.max_lines"), strict_number(environment, "tool_output.max_bytes")
    return Profile(
        name="opencode-1.18",
        memory=NO_MEMORY,
        policies=(*((PruneResults(),) if _on(environment, "compaction.prune") else ()), anchor, *evidence(environment), RemindOfMode()),
        fallback=model_free_fallback(),
        budget=lambda card: opencode_measured_budget(
            card.window, card.reply, _input_limit(card), reserved=reserved, auto=auto, reply_cap=reply_cap
        ),
        size_rule="opencode-1.18",
        count=_count_reported,
        overflow="fold",
        stops_when_fold_fails=True,
        folds_per_turn=0,
        limiter=for_any_model(OpencodeLimiter(lines or OPENCODE_LINES, size or OPENCODE_BYTES, shell_tail=True)),
        params=Params(max_tokens=reply_cap, breakpoint_rule="opencode"),
        notes=NoteRules("nothing", recall="off"),
        sources=opencode_1_18_sources(environment),
        skills=opencode_skills,
        interrupted_result="[Tool execution was interrupted]",
    )


def _reply_cap(environment: Mapping[str, str]) -> int:
    """Return the most tokens of a reply that a request asks for, and for which the budget leaves room."""
    return strict_number(environment, "OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX") or OPENCODE_REPLY


def _on(environment: Mapping[str, str], name: str, default: str = "false") -> bool:
    """Return whether a switch is on: any value but an empty one, `false`, `0`, `no` and `off`."""
    return environment.get(name, default).strip().lower() not in _FALSE


def _count_without_writes(view: View, counter: CountsTokens, tools_tokens: int) -> int:
    """Return the tokens that the provider reported last, without those written to its cache; without a report, an estimate."""
    return _count_reported(view, counter, tools_tokens) - (0 if view.reported is None else view.reported.written)


def _count_reported(view: View, counter: CountsTokens, tools_tokens: int) -> int:
    """Return the tokens that the provider reported last; without a report, an estimate."""
    return counter.total(view) + tools_tokens if view.reported is None else measured_tokens(view.reported, view, counter)


def _input_limit(card: ModelCard) -> int | None:
    """The limit of a prompt, or the size at which the price of the whole call rises, which OpenCode does not know."""
    return card.working_window if card.working_window < card.window else card.input_limit
