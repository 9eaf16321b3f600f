"""The profiles `opencode`, as documented, and `opencode-1.18`, as measured, with the settings of the original under their own names."""

from collections.abc import Mapping

from palimpsest.core.tokens.truncate import OPENCODE_BYTES, OPENCODE_LINES
from palimpsest.core.tokens.view_sizes import CountsTokens
from palimpsest.core.view import View
from palimpsest.policies.budgets import opencode_budget, opencode_measured_budget
from palimpsest.policies.clear.prune import PruneResults
from palimpsest.policies.fold.fold import rung
from palimpsest.policies.offload import Spill
from palimpsest.policies.prove import Prove
from palimpsest.policies.summarize.anchor import Anchor
from palimpsest.profiles.numbers import is_on, number
from palimpsest.profiles.profile import Profile, for_all
from palimpsest.wire.request import Params

_FALSE = frozenset({"", "false", "0", "no", "off"})


def opencode(environment: Mapping[str, str]) -> Profile:
    """Prunes at the end of a turn and sums up everything that shows."""
    auto = _auto(environment) and not _on(environment, "OPENCODE_DISABLE_AUTOCOMPACT")
    prune = _on(environment, "compaction.prune", "true") and not _on(environment, "OPENCODE_DISABLE_PRUNE")
    anchor = Anchor(auto=auto, model=environment.get("agent.compaction.model", ""))
    return Profile(
        name="opencode",
        policies=(*((PruneResults(),) if prune else ()), anchor, *_proof(environment)),
        rung=rung(),
        budget=lambda card: opencode_budget(card.window, card.reply, card.input_limit, auto=auto),
        size="opencode",
        count=_count_without_writes,
        overflow="stop",
        insists=True,
        folds=0,
        arrival=for_all(Spill()),
        params=Params(breakpoint_rule="opencode"),
    )


def opencode_1_18(environment: Mapping[str, str]) -> Profile:
    """Keeps a verbatim tail, sums up what lies before it as one text, and folds when a request was too long."""
    auto = _auto(environment)
    reserved = number(environment, "compaction.reserved", least=0)
    anchor = Anchor(
        told="text",
        auto=auto,
        model=environment.get("agent.compaction.model", ""),
        preserve=number(environment, "compaction.preserve_recent_tokens", least=0),
        tail_turns=number(environment, "compaction.tail_turns", least=0),
        moments=frozenset({"before_call", "after_call", "asked", "overflow"}),
    )
    lines, size = number(environment, "tool_output.max_lines"), number(environment, "tool_output.max_bytes")
    return Profile(
        name="opencode-1.18",
        policies=(*((PruneResults(),) if _on(environment, "compaction.prune") else ()), anchor, *_proof(environment)),
        rung=rung(),
        budget=lambda card: opencode_measured_budget(card.window, card.reply, card.input_limit, reserved=reserved, auto=auto),
        size="opencode-1.18",
        count=_count_reported,
        overflow="fold",
        insists=True,
        folds=0,
        arrival=for_all(Spill(lines or OPENCODE_LINES, size or OPENCODE_BYTES, shell_tail=True)),
        params=Params(breakpoint_rule="opencode"),
    )


def _proof(environment: Mapping[str, str]) -> tuple[Prove, ...]:
    return (Prove(),) if is_on(environment, "PAL_EVIDENCE") else ()


def _auto(environment: Mapping[str, str]) -> bool:
    return _on(environment, "compaction.auto", "true")


def _on(environment: Mapping[str, str], name: str, default: str = "false") -> bool:
    """Whether a switch is on; a value that says no is no."""
    return environment.get(name, default).strip().lower() not in _FALSE


def _count_without_writes(view: View, counter: CountsTokens, tools_tokens: int) -> int:
    """What the provider reported last, without what it wrote into its cache; an estimate where it reported nothing."""
    return counter.total(view) + tools_tokens if view.reported is None else view.reported.tokens - view.reported.written


def _count_reported(view: View, counter: CountsTokens, tools_tokens: int) -> int:
    """What the provider reported last; an estimate where it reported nothing."""
    return counter.total(view) + tools_tokens if view.reported is None else view.reported.tokens
