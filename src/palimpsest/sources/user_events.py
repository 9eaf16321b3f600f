"""What the user did beside typing, as Codex states it: a shell line that was run, and a review that was asked for."""

from typing import Final

from palimpsest.core.events.context import Statement
from palimpsest.core.format.tags import within
from palimpsest.core.tokens.truncate import truncate_middle

OUTPUT_TOKENS: Final = 10_000


def shell_statement(line: str, code: int, seconds: float, output: str) -> Statement:
    """Return the statement of a line that the user ran in a shell, with the middle of a long output cut."""
    shown = truncate_middle(output, OUTPUT_TOKENS).text
    result = within("result", f"Exit code: {code}\nDuration: {seconds:.4f} seconds\nOutput:\n{shown}")
    tag = "user_shell_command"
    return Statement(tag, within(tag, f"{within('command', line)}\n{result}"), "user")


def review_text(asked: str, results: str) -> str:
    """Return what is stated of a review that the user asked for."""
    context = within("context", f"The user had the work reviewed: {asked}. The results follow; act on them only if the user asks for it.")
    return within("user_action", "\n".join((context, within("action", "review"), within("results", results))))
