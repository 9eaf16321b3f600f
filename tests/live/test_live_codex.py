"""Codex's way with the context, in `pal -p` with the agent's own tools."""

from pathlib import Path

from live_agent import TASKS, TODOS, LiveAgent, folded_in_a_turn, stated_work, texts


def test_open_work_is_stated_once_after_a_compaction_within_a_turn(tmp_path: Path) -> None:
    for profile in ("codex", "codex-0.166"):
        agent = LiveAgent(tmp_path / profile, profile)
        folded, goes_on = folded_in_a_turn(agent, 260_000, ("All is well.",), ("done",))
        work = stated_work(folded)
        assert [text.split("\n\n")[-1].removesuffix("\n</system-message>") for text in work] == [TASKS, TODOS], texts(folded)
        assert stated_work(goes_on) == work
