"""The profiles `claude-code` (as documented) and `claude-code-2.1.325` (as measured), with the settings of Claude Code."""

import re
from collections.abc import Mapping
from typing import Final, Literal

from msgspec.structs import replace

from palimpsest.audit.pricing.size_rules import claude_list_size
from palimpsest.core.errors import BadInput
from palimpsest.core.tokens.budget import Budget, used
from palimpsest.core.tokens.view_sizes import CountsTokens
from palimpsest.core.view import View
from palimpsest.policies.budgets import CLAUDE_REPLY, claude_budget, claude_measured_budget
from palimpsest.policies.clear.results import ClearCached, ClearIdle, ClearResults
from palimpsest.policies.fold.fold import model_free_fallback
from palimpsest.policies.limiters.results import ClaudeLimiter
from palimpsest.policies.notices import Warn, WatchCache
from palimpsest.policies.restore import Restore
from palimpsest.policies.summarize.summarize import ContinuationMessage, Summarize
from palimpsest.policies.summarize.swap_notes import SwapNotes
from palimpsest.profiles.profile import NO_MEMORY, MemoryRules, NoteRules, Profile, for_any_model
from palimpsest.profiles.settings import evidence, is_on, lenient_number, quoted
from palimpsest.sources.variants.claude_code import claude_code_2_1_325_sources, claude_code_sources, claude_skills
from palimpsest.sources.variants.claude_settings import SCRATCHPAD
from palimpsest.wire.models.cards import ModelCard
from palimpsest.wire.request import Params

_NO_AUTO_MEMORY: Final = "CLAUDE_CODE_DISABLE_AUTO_MEMORY"
# The models for which 2.1.325 was observed to compact automatically.
_AUTO_COMPACTED = re.compile(r"-4-6\b")
# Claude Code uses the long window of these only under a name that asks for it.
_SHORT_WINDOW = re.compile(r"-4-[678]")


def claude_code(environment: Mapping[str, str]) -> Profile:
    """Mask old results in three ways; compact by swapping in running notes if there are any, else by summarizing the whole conversation.

    With the setting `keep_analysis` the analysis before a summary stays in front of it, as in version 2.1.19.
    """
    asked = not is_on(environment, "DISABLE_COMPACT")
    auto = asked and not is_on(environment, "DISABLE_AUTO_COMPACT")
    limit = lenient_number(environment, "CLAUDE_CODE_MAX_OUTPUT_TOKENS")
    percent = lenient_number(environment, "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE", 100)
    block_at = lenient_number(environment, "CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE")

    def budget(card: ModelCard) -> Budget:
        return claude_budget(_window(card), limit or min(CLAUDE_REPLY, card.reply), auto=auto, percent=percent, block_at=block_at)

    form = ContinuationMessage(keep_analysis=is_on(environment, "keep_analysis"))
    cached = _switch(environment, "cached_microcompact")
    by_size = ((ClearCached(),) if cached else ()) + (ClearResults(beside_cached=cached),)
    masks = (ClearIdle(), *(() if is_on(environment, "DISABLE_MICROCOMPACT") else by_size))
    return Profile(
        name="claude-code",
        policies=(
            *masks,
            SwapNotes(auto=auto, asked=asked),
            Summarize(auto=auto, asked=asked, form=form),
            *evidence(environment),
            Restore(),
            Warn(),
            WatchCache(),
        ),
        budget=budget,
        fallback=model_free_fallback(),
        size_rule="claude-code",
        count=count,
        overflow="stop",
        circuit=3,
        folds_per_turn=0,
        limiter=for_any_model(ClaudeLimiter()),
        params=Params(max_tokens=limit or CLAUDE_REPLY, breakpoint_rule="claude-code"),
        notes=_notes(environment, recall="model"),
        sources=claude_code_sources(environment),
        scratchpad=is_on(environment, SCRATCHPAD),
        keeps_plan=True,
        rows="documents",
        counts_tools=True,
        skills=claude_skills,
        memory=_memory(environment, MemoryRules(remembers=False, summarises=False, finishes=True)),
        forgets_hidden_reads=True,
    )


def claude_code_2_1_325(environment: Mapping[str, str]) -> Profile:
    """Mask nothing, keep the last round in every compaction, retry without a limit, and compact when a request was too long.

    The original compacts automatically for some models only. The setting `proactive=measured` imitates that; by default this profile
    compacts for all models, because a session that is never compacted ends at the window.
    """
    all_models = environment.get("proactive", "").strip().lower() != "measured"
    asked = not is_on(environment, "DISABLE_COMPACT")
    auto = asked and not is_on(environment, "DISABLE_AUTO_COMPACT")
    limit = lenient_number(environment, "CLAUDE_CODE_MAX_OUTPUT_TOKENS")
    percent = lenient_number(environment, "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE", 100)
    window = lenient_number(environment, "CLAUDE_CODE_AUTO_COMPACT_WINDOW")
    block_at = lenient_number(environment, "CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE")

    def budget(card: ModelCard) -> Budget:
        compacts = auto and (all_models or window is not None or _AUTO_COMPACTED.search(card.name) is not None)
        reply = limit or min(CLAUDE_REPLY, card.reply)
        measured = claude_measured_budget(_window(card), reply, auto=compacts, percent=percent, auto_window=window)
        return measured if block_at is None else replace(measured, block_at=block_at)

    form = ContinuationMessage(measured=True)
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
            *evidence(environment),
            Restore(large_files="note", numbering="tab", place="prompt"),
            Warn(),
        ),
        budget=budget,
        fallback=model_free_fallback(),
        size_rule="claude-code",
        count=count,
        overflow="fold" if auto else "stop",
        circuit=0,
        folds_per_turn=0,
        limiter=for_any_model(ClaudeLimiter(short_names=True)),
        params=Params(max_tokens=limit or CLAUDE_REPLY, breakpoint_rule="claude-code-2.1.325"),
        notes=_notes(environment, recall="off"),
        sources=claude_code_2_1_325_sources(environment),
        scratchpad=is_on(environment, SCRATCHPAD),
        keeps_plan=True,
        skills=claude_skills,
        # The original makes no request for memory: its main model reads and writes the notes itself.
        memory=NO_MEMORY,
    )


def _switch(environment: Mapping[str, str], name: str) -> bool:
    """Return a switch that is off by default. Raises `BadInput` for a value that is neither on nor off."""
    value = environment.get(name, "").strip().lower()
    if value not in ("", "on", "off"):
        raise BadInput(f"{name} is {quoted(value)}; it can be on or off", where="settings")
    return value == "on"


def _notes(environment: Mapping[str, str], recall: Literal["model", "off"]) -> NoteRules:
    """Return the rules of notes: files that the main model reads and writes itself, unless the user turned automatic memory off."""
    if is_on(environment, _NO_AUTO_MEMORY):
        return NoteRules("nothing", recall="off")
    return NoteRules("index", recall=recall, folder="claude")


def _memory(environment: Mapping[str, str], rules: MemoryRules) -> MemoryRules:
    """Return the parts of memory; running notes belong to the session, and stay without automatic memory."""
    return replace(rules, extracts=False) if is_on(environment, _NO_AUTO_MEMORY) else rules


def count(view: View, counter: CountsTokens, tools_tokens: int) -> int:
    """Return the last usage that the provider reported plus an estimate of later items; without a report, the estimate plus a third."""
    return used(view, counter, tools_tokens, unreported=lambda total: claude_list_size((total,)))


def _window(card: ModelCard) -> int:
    is_short = _SHORT_WINDOW.search(card.name) is not None and not card.name.endswith("[1m]")
    return min(card.working_window, 200_000) if is_short else card.working_window
