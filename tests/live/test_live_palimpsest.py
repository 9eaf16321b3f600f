"""Our own way with the context, in `pal -p` with the agent's own tools."""

from pathlib import Path
from typing import Any

from live_agent import TASKS, TODOS, LiveAgent, folded_in_a_turn, stated_work, texts, using

TEXT = (
    "<system-reminder>\nThe todo list has open steps and was not updated for a while. If steps are done or have changed, update it; "
    "else go on.\n</system-reminder>"
)
REMINDER = ("user", TEXT)


def test_open_work_is_stated_once_after_a_fold_within_a_turn_and_not_again_in_the_evidence(tmp_path: Path) -> None:
    agent = LiveAgent(tmp_path, "palimpsest", PAL_COMPACT_AT="30000")
    folded, goes_on = folded_in_a_turn(agent, 190_000, ("done",))
    stated = [f"<system-reminder>\n{part}\n</system-reminder>" for part in (TASKS, TODOS)]
    assert stated_work(folded) == stated
    assert stated_work(goes_on) == stated


def test_tasks_that_a_turn_makes_are_stated_at_the_next_turn_and_not_beside_their_results(tmp_path: Path) -> None:
    agent = LiveAgent(tmp_path, "palimpsest")
    made = [using("task_create", subject=subject) for subject in ("Ship it", "Test it")]
    first = agent.turn("go", *made, using("task_update", id=1, status="completed"), ("ok",))
    assert [text for request in first for _, text in texts(request) if "# Tasks" in text] == []
    second = agent.turn("on", ("fine",))
    assert [text for _, text in texts(second[0]) if "# Tasks" in text] == [f"<system-reminder>\n{TASKS}\n</system-reminder>"]


def test_the_model_is_reminded_of_open_steps_after_ten_replies_and_again_after_ten_more(tmp_path: Path) -> None:
    agent = LiveAgent(tmp_path, "palimpsest")
    looks = [using("bash", command=f"echo {number}") for number in range(24)]
    open_list: dict[str, Any] = {"items": [{"id": "1", "text": "look", "status": "in_progress"}]}
    first = agent.turn("go", using("todo", **open_list), *looks[:5], ("ok",))
    second = agent.turn("on", *looks[5:], ("ok",))
    counts = [texts(request).count(REMINDER) for request in (*first, *second)]
    assert counts == [*[0] * 11, *[1] * 10, *[2] * 6]


def test_a_list_that_is_done_or_was_never_made_brings_no_reminder(tmp_path: Path) -> None:
    done: dict[str, Any] = {"items": [{"id": "1", "text": "look", "status": "completed"}]}
    for name, begins in (("done", [using("todo", **done)]), ("none", [])):
        agent = LiveAgent(tmp_path / name, "palimpsest")
        looks = [using("bash", command=f"echo {number}") for number in range(12)]
        requests = agent.turn("go", *begins, *looks, ("ok",))
        assert [texts(request).count(REMINDER) for request in requests] == [0] * len(requests)
