"""The prompts: each one a small file, used, with all that it must ask for, in the language of the conversation."""

import re
from pathlib import Path

import pytest
from every_case import every_case

from palimpsest import policies
from palimpsest.policies.limits import prompt

FOLDER = Path(policies.__file__).parent
NAMES = sorted(str(path.relative_to(FOLDER / "prompts").with_suffix("")) for path in (FOLDER / "prompts").rglob("*.md"))


def test_every_prompt_is_a_small_file_that_a_policy_uses() -> None:
    rooms = (FOLDER, FOLDER.parent / "peers")
    code = "\n".join(path.read_text(encoding="utf-8") for room in rooms for path in room.rglob("*.py"))
    used = set(re.findall(r"prompt\([\"']([\w/]+)[\"']", code))
    assert [name for name in NAMES if name not in used] == []
    assert [name for name in NAMES if len((FOLDER / "prompts" / f"{name}.md").read_text(encoding="utf-8")) > 5_000] == []


@every_case(
    ("name", "asked"),
    [
        (
            "opencode/summariser",
            (
                "what is done",
                "being worked on",
                "files",
                "what comes next",
                "requests, limits and preferences",
                "decisions with their reasons",
            ),
        ),
        ("opencode/request", ("cannot see it", "what we did", "what we are doing", "files", "next")),
        ("opencode/template", ("Every section must be there", "(none)", "carry over", "let the conversation win", "thrown away")),
        ("opencode/continue", ("steps are still open", "carry on")),
        ("opencode/continue_or_ask", ("steps are still open", "carry on", "stop and ask")),
        ("classroom_summary", ("what was done", "how things stand", "decisions", "still open", "todo item", "id of every task")),
        (
            "handoff",
            (
                "done, under way, blocked",
                "Limits and wishes",
                "cannot be found again",
                "concrete steps",
                "word for word",
                "user or the assistant",
            ),
        ),
        ("handoff_prefix", ("Another model", "still in place", "do not repeat")),
        ("claude_code/continued_opening", ("goes on from an earlier one", "earlier part")),
        ("claude_code/continued_pointer", ("full transcript", "Read it at: /logs/s.jsonl")),
        ("claude_code/continued_work", ("no further questions", "Do not acknowledge", "repeat what happened", "no break")),
        ("claude_code/continued_verbatim", ("verbatim", "did not see them")),
    ],
)
def test_a_prompt_asks_for_all_that_it_must(name: str, asked: tuple[str, ...]) -> None:
    text = prompt(name, focus="", prior="", conversation="", transcript="/logs/s.jsonl")
    assert [words for words in asked if words not in text] == []
    assert "{{" not in text


@pytest.mark.parametrize(
    "name", ["classroom_summary", "handoff", "narrative", "claude_code/nine_sections", "opencode/head", "opencode/summariser"]
)
def test_summaries_are_written_in_the_language_of_the_conversation(name: str) -> None:
    text = prompt(name, focus="", conversation="", words="1", instructions="")
    assert re.search(r"in the language (?:of the (?:conversation|session|user)|in which the user writes)", text)
