"""The commands of the terminal as a table: what completes their arguments, and that each is documented."""

import re
from pathlib import Path

from pal.terminal.commands.registry import COMMANDS, completions

AGENT_PAGE = Path(__file__).parents[4] / "docs" / "agent.md"


def test_every_command_stands_in_the_table_of_the_documentation() -> None:
    page = AGENT_PAGE.read_text(encoding="utf-8")
    rows = page[page.index("\n### Commands\n") : page.index("\n### First steps\n")].splitlines()
    named = {name for row in rows if row.startswith("| `") for name in re.findall(r"`/(\w+)", row.split(" | ")[0])}
    assert named == set(COMMANDS)


def test_names_and_arguments_are_completed_word_by_word() -> None:
    def offered(line: str) -> list[str]:
        return [text for text, _ in completions(line, None, {})]

    assert offered("/co") == ["/context", "/compact", "/cost", "/config"]
    assert offered("/config terminal.no") == ["terminal.notify", "terminal.notify_command", "terminal.notify_seconds"]
    assert offered("/config terminal.notify t") == ["terminal"]
    assert offered("/config mode ") == ["ask", "edits", "plan", "auto"]
    assert offered("/mode p") == ["plan"]
    assert offered("/start k") == ["key"]
    assert offered("/nothing x") == []
    assert not any("api_key" in text for text in offered("/config "))
