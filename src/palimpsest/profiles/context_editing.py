"""The profile `context-editing`: Claude Code 2.1.325 with Anthropic's context editing, which clears old tool results before each call."""

from collections.abc import Mapping
from dataclasses import replace

from palimpsest.policies.clear.tool_uses import KEPT_USES, TRIGGER, ClearToolUses
from palimpsest.profiles.claude_code import claude_code_2_1_325
from palimpsest.profiles.profile import Profile
from palimpsest.profiles.settings import is_on, strict_number


def context_editing(settings: Mapping[str, str]) -> Profile:
    """Clear old tool results as the provider does with `clear_tool_uses_20250919`; what clearing cannot keep small is summarized.

    The settings are the published parameters after `clear_tool_uses.`: `trigger` (input tokens, by default 100,000), `keep` (tool uses,
    3), `clear_at_least` (tokens, 0), `exclude_tools` (names with `+` between) and `clear_tool_inputs` (off). `sticky=on`: the client
    keeps what was cleared, instead of sending its whole history to be cleared again. Those of `claude-code-2.1.325` apply too.
    """

    def number(name: str, default: int) -> int:
        found = strict_number(settings, f"clear_tool_uses.{name}", least=0)
        return default if found is None else found

    clearing = ClearToolUses(
        trigger=number("trigger", TRIGGER),
        keep=number("keep", KEPT_USES),
        clear_at_least=number("clear_at_least", 0),
        exclude_tools=frozenset(settings.get("clear_tool_uses.exclude_tools", "").split("+")) - {""},
        clear_tool_inputs=is_on(settings, "clear_tool_uses.clear_tool_inputs"),
        sticky=is_on(settings, "clear_tool_uses.sticky"),
    )
    backing = claude_code_2_1_325(settings)
    return replace(backing, name="context-editing", policies=(clearing, *backing.policies))
