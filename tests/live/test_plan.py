"""Plan mode of Claude Code: the plan is kept in a file, and stated again after a compaction as the user left it."""

from pathlib import Path

import pytest
from live_agent import LiveAgent, texts, using
from streaming_model import Spent

PLAN = "1. Read a.txt\n2. Change it"


@pytest.mark.states("SG-05")
@pytest.mark.parametrize("profile", ["claude-code", "claude-code-2.1.325"])
def test_a_plan_is_kept_in_a_file_and_restored_as_the_user_changed_it(tmp_path: Path, profile: str) -> None:
    agent = LiveAgent(tmp_path, profile)
    asked = agent.turn("plan it " * 2_000, using("exit_plan_mode", plan=PLAN), ("Here is the plan.", Spent(20_000)), mode="plan")
    (path,) = (tmp_path / "home").rglob("plan.md")
    assert path.read_text() == PLAN
    answer = f"The plan is kept in {path}. End your turn now: the user reads it, may change it, and decides."
    assert answer in str(asked[-1]["messages"][-1])
    path.write_text(f"{PLAN}\n3. Test it")
    # The next request is due to be compacted: the summary comes first, then the reply to the prompt.
    agent.turn("do the first step", ("ok", Spent(170_000)))
    after = agent.turn("go on", ("<summary>We planned.</summary>", Spent(170_000)), ("Going on.", Spent(9_000)))
    stated = [text for _, text in texts(after[-1]) if "The plan that was agreed on" in text]
    assert stated == [f"<system-reminder>\nThe plan that was agreed on:\n{PLAN}\n3. Test it\n</system-reminder>"]
    again = agent.turn("and on", ("Done.", Spent(9_000)))
    assert [text for _, text in texts(again[-1]) if "The plan that was agreed on" in text] == stated


@pytest.mark.states("SG-05")
def test_outside_of_plan_mode_no_plan_is_taken(tmp_path: Path) -> None:
    agent = LiveAgent(tmp_path, "claude-code")
    asked = agent.turn("go", using("exit_plan_mode", plan=PLAN), ("fine",))
    assert "plan mode is not on" in str(asked[-1]["messages"][-1])
    assert list((tmp_path / "home").rglob("plan.md")) == []
