"""The teaching agent's way with the context, in `pal -p` with the agent's own tools."""

from pathlib import Path
from typing import Any

import pytest
from live_agent import TASKS, TODOS, LiveAgent, folded_in_a_turn, results, texts, using

TODO: dict[str, Any] = {"items": [{"id": "1", "text": "look", "status": "in_progress"}]}
REMINDER = ("user", "<reminder>Update your todos.</reminder>")


@pytest.mark.states("SG-60")
def test_a_compaction_within_a_turn_states_open_work_as_it_is_now_and_leaves_the_last_word_to_the_user(tmp_path: Path) -> None:
    agent = LiveAgent(tmp_path, "classroom")
    folded, goes_on = folded_in_a_turn(agent, 1_000, ("All is well.",), ("done",))
    # The environment stands first, as at the start.
    assert "# Environment" in texts(folded)[0][1]
    rest = [
        ("user", "[Compressed]\n\nAll is well."),
        ("assistant", "Understood. Continuing."),
        ("user", "<reminder>Go on with the task.</reminder>"),
        ("user", f"<system-reminder>\n{TASKS}\n</system-reminder>"),
        ("user", f"<system-reminder>\n{TODOS}\n</system-reminder>"),
    ]
    assert texts(folded)[1:] == rest
    assert texts(goes_on)[1:] == [*rest, ("assistant", "done"), ("user", "on")]
    assert results(folded) == results(goes_on) == []


@pytest.mark.states("SG-61")
def test_after_the_tool_compact_the_next_request_ends_with_the_user_too(tmp_path: Path) -> None:
    agent = LiveAgent(tmp_path, "classroom")
    (agent.project / "big.txt").write_text("word " * 5_000)
    requests = agent.turn("go", using("bash", command="cat big.txt"), using("compact"), ("All is well.",), ("done",))
    assert requests[-1]["messages"][-1] == {
        "role": "user",
        "content": [{"type": "text", "text": "<reminder>Go on with the task.</reminder>"}],
    }


@pytest.mark.states("SG-63")
def test_the_reminder_of_the_todo_list_comes_after_three_rounds_also_in_a_session_that_goes_on(tmp_path: Path) -> None:
    agent = LiveAgent(tmp_path, "classroom")
    looks = [using("bash", command=f"echo {number}") for number in range(3)]
    first = agent.turn("go", using("todo", **TODO), *looks[:2], ("ok",))
    second = agent.turn("on", *looks, ("ok",))
    # The reply "ok" is a round too, so that the reminder comes with the first results of the second turn.
    assert [texts(request).count(REMINDER) for request in (*first, *second)] == [0, 0, 0, 0, 0, 1, 2, 3]


def test_a_loaded_skill_is_not_masked_and_other_results_are(tmp_path: Path) -> None:
    agent = LiveAgent(tmp_path, "classroom")
    skill = agent.project / ".agents" / "skills" / "deploy" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: deploy\ndescription: How to deploy.\n---\n" + "Ask first. " * 40)
    (agent.project / "a.txt").write_text("word " * 100)
    looks = [using("bash", command=f"cat a.txt # {number}") for number in range(4)]
    last = agent.turn("go", using("skill", name="deploy"), *looks, ("done",))[-1]
    body, *others = results(last)
    assert "Ask first. " * 40 in body + " "
    assert others == ["[Previous: used bash]", *["word " * 100] * 3]
