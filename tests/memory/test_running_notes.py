"""Running notes: when they are updated, what may be edited, and what the prompt says."""

import json

import pytest

from palimpsest.core.events import ModelReplied, NotesTaken
from palimpsest.core.items import Text, ToolCall
from palimpsest.core.plans import Ask, Want, run_steps
from palimpsest.core.tokens import estimate
from palimpsest.memory.running_notes import (
    SECTIONS,
    NotesProgress,
    NotesSettings,
    edit_notes,
    empty_notes,
    is_update_due,
    notes_update,
    section_sizes,
    update_prompt,
)

PATH = "notes.md"
TEMPLATE = empty_notes()
STATE = SECTIONS["Current State"]


@pytest.mark.parametrize(
    ("progress", "due"),
    [
        (NotesProgress(9_999, calls_since=9, is_pause=True), False),
        (NotesProgress(10_000, calls_since=3), True),
        (NotesProgress(10_000, calls_since=2), False),
        (NotesProgress(10_000, calls_since=0, is_pause=True), True),
        (NotesProgress(14_999, used_at_update=10_000, calls_since=9, is_pause=True), False),
        (NotesProgress(15_000, used_at_update=10_000, calls_since=3), True),
    ],
)
@pytest.mark.states("CC-44")
def test_notes_start_at_10000_need_5000_more_each_time_and_3_calls_or_a_reply_without_any(progress: NotesProgress, due: object) -> None:
    assert is_update_due(progress) is due


def test_the_template_has_ten_sections_with_a_line_in_italics_each() -> None:
    lines = TEMPLATE.splitlines()
    assert [line[2:] for line in lines if line.startswith("# ")] == list(SECTIONS)
    assert len(SECTIONS) == 10
    assert lines[:3] == ["# Session Title", "_Five to ten words that tell this session from others._", ""]


def reply(*calls: tuple[str, object]) -> NotesTaken | None:
    def answer(want: Want) -> ModelReplied:
        assert isinstance(want, Ask)
        assert (want.purpose, want.tools, want.head, want.turns) == ("notes", True, True, 1)
        parts = tuple(ToolCall(f"c{number}", tool, json.dumps(arguments)) for number, (tool, arguments) in enumerate(calls))
        return ModelReplied((Text("done", "assistant"), *parts), purpose=want.purpose)

    return run_steps(notes_update((), TEMPLATE, PATH, 40, used=12_000), answer)


@pytest.mark.states("CC-45")
def test_the_notes_job_edits_the_notes_file_and_nothing_else() -> None:
    edit = {"path": PATH, "old": f"_{STATE}_\n", "new": f"_{STATE}_\nfixing a.py\n"}
    taken = reply(("edit", {**edit, "path": "a.py"}), ("bash", {"command": "rm -rf ."}), ("edit", edit))
    assert taken is not None
    assert taken == NotesTaken(TEMPLATE.replace(f"_{STATE}_\n", f"_{STATE}_\nfixing a.py\n"), 40, 12_000)
    assert reply(("edit", {**edit, "path": "a.py"}), ("write", {"path": PATH, "content": "x"})) is None
    assert reply() is None


@pytest.mark.states("CC-45")
def test_an_edit_in_the_words_of_claude_code_is_an_edit_too() -> None:
    taken = reply(("Edit", {"file_path": PATH, "old_string": f"_{STATE}_\n", "new_string": f"_{STATE}_\nnow\n"}))
    assert taken is not None
    assert "\nnow\n" in taken.text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# Worklog", "# Log"),
        ("# Worklog\n", ""),
        (f"_{STATE}_", "_something else_"),
        ("# Worklog", "# Extra\n# Worklog"),
        ("_", "-"),
        ("not there", "x"),
        ("", "x"),
    ],
)
@pytest.mark.states("CC-45")
def test_headings_and_lines_in_italics_cannot_be_altered(old: str, new: str) -> None:
    assert edit_notes(TEMPLATE, old, new) is None


@pytest.mark.states("CC-46")
def test_notes_that_are_too_long_add_their_reminders_to_the_prompt() -> None:
    filled = TEMPLATE.replace(f"_{STATE}_\n", f"_{STATE}_\n" + "word " * 2_500 + "\n")
    size = section_sizes(filled)["Current State"]
    prompt = update_prompt(filled, PATH)
    assert f'- "Current State" is ~{size} tokens (limit: 2000)' in prompt
    assert "They must be condensed now" not in prompt
    longer = TEMPLATE.replace(f"_{STATE}_\n", f"_{STATE}_\n" + "word " * 16_000 + "\n")
    assert f"The notes have about {estimate(longer):,} tokens; the most is 12,000." in update_prompt(longer, PATH)
    assert "must be condensed:" not in update_prompt(TEMPLATE, PATH)


@pytest.mark.states("CC-47")
def test_own_template_and_prompt_replace_the_built_in_ones_and_get_both_variables() -> None:
    settings = NotesSettings(template="# Mine\n_what_\n", prompt="At {{notesPath}}: {{currentNotes}}")
    assert empty_notes(settings) == "# Mine\n_what_\n"
    assert update_prompt("text", "n.md", settings) == "At n.md: text"
    assert "{{" not in update_prompt("text", "n.md")
