"""The profiles `claude-code`, as documented, and `claude-code-2.1.325`, as measured, with the settings that the original knows."""

import re
from collections.abc import Mapping

from msgspec.structs import replace

from palimpsest.audit.pricing.size_rules import claude_list_size
from palimpsest.core.tokens.budget import Budget, used
from palimpsest.core.tokens.view_sizes import CountsTokens
from palimpsest.core.view import View
from palimpsest.policies.budgets import CLAUDE_REPLY, claude_budget, claude_measured_budget
from palimpsest.policies.clear.cached import ClearCached
from palimpsest.policies.clear.results import ClearIdle, ClearResults
from palimpsest.policies.fold.fold import rung
from palimpsest.policies.notices import Warn, WatchCache
from palimpsest.policies.offload import OffloadClaude
from palimpsest.policies.prove import Prove
from palimpsest.policies.restore import Restore
from palimpsest.policies.summarize.summarize import Continued, Summarize
from palimpsest.policies.summarize.swap_notes import SwapNotes
from palimpsest.profiles.numbers import is_on, sensible
from palimpsest.profiles.profile import Profile, for_all
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.request import Params

# The models for which 2.1.325 was seen to compact by itself.
_PROACTIVE = re.compile(r"-4-6\b")


def claude_code(environment: Mapping[str, str]) -> Profile:
    """Masks three ways, swaps in running notes where there are any, and else folds the whole conversation into a summary."""
    asked = not is_on(environment, "DISABLE_COMPACT")
    auto = asked and not is_on(environment, "DISABLE_AUTO_COMPACT")
    limit = sensible(environment, "CLAUDE_CODE_MAX_OUTPUT_TOKENS")
    percent = sensible(environment, "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE", 100)
    block_at = sensible(environment, "CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE")

    def budget(card: ModelCard) -> Budget:
        return claude_budget(card.window, limit or min(CLAUDE_REPLY, card.reply), auto=auto, percent=percent, block_at=block_at)

    proof = (Prove(),) if is_on(environment, "PAL_EVIDENCE") else ()
    masks = (ClearIdle(), ClearCached(), *(() if is_on(environment, "DISABLE_MICROCOMPACT") else (ClearResults(),)))
    return Profile(
        name="claude-code",
        policies=(*masks, SwapNotes(auto=auto, asked=asked), Summarize(auto=auto, asked=asked), *proof, Restore(), Warn(), WatchCache()),
        budget=budget,
        rung=rung(),
        size="claude-code",
        count=count,
        overflow="stop",
        circuit=3,
        folds=0,
        arrival=for_all(OffloadClaude()),
        params=Params(max_tokens=limit or CLAUDE_REPLY, breakpoint_rule="claude-code"),
    )


def claude_code_2_1_325(environment: Mapping[str, str]) -> Profile:
    """Masks nothing, keeps the last round through every compaction, never gives up, and compacts when a turn was refused as too long.

    The original compacts by itself only for some models, which `proactive=measured` imitates; as a rule it does here for all of them,
    for a session that is never compacted is of no use to anybody.
    """
    every = environment.get("proactive", "").strip().lower() != "measured"
    asked = not is_on(environment, "DISABLE_COMPACT")
    auto = asked and not is_on(environment, "DISABLE_AUTO_COMPACT")
    limit = sensible(environment, "CLAUDE_CODE_MAX_OUTPUT_TOKENS")
    percent = sensible(environment, "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE", 100)
    window = sensible(environment, "CLAUDE_CODE_AUTO_COMPACT_WINDOW")
    block_at = sensible(environment, "CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE")

    def budget(card: ModelCard) -> Budget:
        comes = auto and (every or window is not None or _PROACTIVE.search(card.name) is not None)
        reply = limit or min(CLAUDE_REPLY, card.reply)
        found = claude_measured_budget(card.window, reply, auto=comes, percent=percent, auto_window=window)
        return found if block_at is None else replace(found, block_at=block_at)

    form = Continued(measured=True)
    return Profile(
        name="claude-code-2.1.325",
        policies=(
            Summarize(
                auto=auto,
                asked=asked,
                overflow=True,
                keeps_round=True,
                images=True,
                form=form,
                report="Compacted",
                breakpoint_rule="claude-code-2.1.325-fold",
            ),
            *((Prove(),) if is_on(environment, "PAL_EVIDENCE") else ()),
            Restore(big="note", lines="tab", place="prompt"),
            Warn(),
        ),
        budget=budget,
        rung=rung(),
        size="claude-code",
        count=count,
        overflow="fold" if auto else "stop",
        circuit=0,
        folds=0,
        arrival=for_all(OffloadClaude(short_names=True)),
        params=Params(max_tokens=limit or CLAUDE_REPLY, breakpoint_rule="claude-code-2.1.325"),
    )


def clear_now(target: int) -> ClearResults:
    """The token kind of mask for a user who asks for it, down to as many tokens of results as they say."""
    return ClearResults(target=target, manual=True)


def count(view: View, counter: CountsTokens, tools_tokens: int) -> int:
    """The last total that the provider reported and an estimate of what came since; a third more where nothing was reported."""
    return used(view, counter, tools_tokens, unreported=lambda total: claude_list_size((total,)))
