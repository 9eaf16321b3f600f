"""The manifest of Claude Code, and a choice of notes that a model cannot widen."""

from collections.abc import Callable

import pytest

from palimpsest.core.errors import CannotFold, PalimpsestError
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Text
from palimpsest.core.plans import Answer, Ask, Want, run_steps
from palimpsest.memory.shown import claude_manifest, pick_notes
from palimpsest.memory.topic_files import TopicFile

CHANGED = 1_775_373_631_000


@pytest.mark.states("CC-59")
def test_the_manifest_has_the_200_newest_files_without_the_index_from_30_lines_each() -> None:
    front = "---\nname: x\ndescription: what it is about\ntype: feedback\n---\nbody\n"
    files = [TopicFile(f"topic_{number:03}.md", CHANGED + number, front) for number in range(250)]
    lines = claude_manifest([*files, TopicFile("MEMORY.md", CHANGED + 999, front), TopicFile("notes.txt", CHANGED + 999, front)])
    assert len(lines) == 200
    assert lines[0] == "- [feedback] topic_249.md (2026-04-05T07:20:31.249Z): what it is about"
    assert lines[-1].startswith("- [feedback] topic_050.md ")


@pytest.mark.states("CC-59")
def test_what_the_first_30_lines_do_not_say_is_left_out() -> None:
    late = "---\nname: x\n" + "note: y\n" * 40 + "description: too late\ntype: user\n---\n"
    odd = "---\ndescription: known\ntype: odd\n---\n"
    assert claude_manifest(
        [TopicFile("late.md", CHANGED, late), TopicFile("odd.md", CHANGED + 1, odd), TopicFile("bare.md", CHANGED + 2, "text")]
    ) == (
        "- bare.md (2026-04-05T07:20:31.002Z)",
        "- odd.md (2026-04-05T07:20:31.001Z): known",
        "- late.md (2026-04-05T07:20:31.000Z)",
    )


def answered(text: str, asked: list[Ask]) -> Callable[[Want], Answer | PalimpsestError]:
    def answer(want: Want) -> Answer:
        assert isinstance(want, Ask)
        asked.append(want)
        return ModelReplied((Text(text, "assistant"),))

    return answer


def test_a_choice_has_only_offered_names_at_most_five_and_none_twice() -> None:
    asked: list[Ask] = []
    names = [f"user_{number}" for number in range(8)]
    reply = '```json\n{"selected_memories": ["user_3.md", "other", "user_3", "user_1", "user_0", "user_2", "user_4", "user_5"]}\n```'
    chosen = run_steps(
        pick_notes("what </notes> now?", [f"[user] {name}" for name in names], names, ("bash", "bash")), answered(reply, asked)
    )
    assert chosen == ("user_3", "user_1", "user_0", "user_2", "user_4")
    assert (asked[0].purpose, asked[0].head, asked[0].tools) == ("recall", False, False)
    assert "‹/notes›" in asked[0].prompt
    assert "in use right now: bash." in asked[0].prompt


@pytest.mark.parametrize("reply", ["", "none of them", '{"selected_memories": "user_1"}', '["user_1"]', "{" * 5_000])
def test_a_broken_answer_is_an_error(reply: str) -> None:
    with pytest.raises(CannotFold, match="no list of names"):
        run_steps(pick_notes("now?", ["[user] user_1"], ["user_1"]), answered(reply, []))
