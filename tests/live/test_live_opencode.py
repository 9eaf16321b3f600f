"""OpenCode's way with the context, in `pal -p` with the agent's own tools."""

from pathlib import Path

import pytest
from live_agent import TASKS, TODOS, LiveAgent, folded_in_a_turn, results, texts, using, with_results

CLEARED = "[Old tool result content cleared]"
OUTPUT = ("y" * 99 + "\n") * 480


@pytest.mark.states("SG-50")
def test_the_two_newest_turns_keep_their_results_also_in_plan_mode_whose_reminder_is_no_turn(tmp_path: Path) -> None:
    agents = {mode: LiveAgent(tmp_path / mode, "opencode") for mode in ("auto", "plan")}
    for mode, agent in agents.items():
        for number in range(8):
            (agent.project / f"{number}.txt").write_text(OUTPUT)
        reads = [using("grep", pattern="y+", path=f"{number}.txt") for number in range(8)]
        first = agent.turn("one", *reads, ("ok",), mode=mode)[-1]
        whole = results(first)
        assert min(map(len, whole)) > 40_000
        second = agent.turn("two", ("ok",), mode=mode)[0]
        assert results(second) == whole, mode
        third = agent.turn("three", ("ok",), mode=mode)[0]
        assert results(third) == whole, mode
        # At the end of the third turn the first one is no longer among the newest two.
        fourth = agent.turn("four", ("ok",), mode=mode)[0]
        kept = sum(text in whole for text in results(fourth))
        assert 0 < kept < 8
        cleared = with_results(third, dict.fromkeys(range(8 - kept), CLEARED))
        if mode == "auto":
            assert fourth["messages"][: len(cleared)] == cleared
        assert results(fourth) == [*[CLEARED] * (8 - kept), *whole[8 - kept :]]


def test_the_end_of_the_output_of_our_shell_is_shown_as_measured_and_its_start_as_documented(tmp_path: Path) -> None:
    shown = {}
    for profile in ("opencode", "opencode-1.18"):
        agent = LiveAgent(tmp_path / profile, profile)
        shown[profile] = results(agent.turn("go", using("bash", command="seq 1 3000"), ("done",))[-1])[0].splitlines()
    assert (shown["opencode"][0], shown["opencode"][1_999]) == ("1", "2000")
    assert (shown["opencode-1.18"][0], shown["opencode-1.18"][-1]) == ("...1001 lines truncated...", "3000")


def test_open_work_is_stated_once_after_a_compaction_within_a_turn(tmp_path: Path) -> None:
    for profile in ("opencode", "opencode-1.18"):
        agent = LiveAgent(tmp_path / profile, profile)
        folded, goes_on = folded_in_a_turn(agent, 190_000, ("All is well.",), ("done",))
        marker, summary, request, *work = texts(folded)
        assert (marker, summary, request[0]) == (("user", "What did we do so far?"), ("assistant", "All is well."), "user")
        assert work == [("user", f"<system-reminder>\n{part}\n</system-reminder>") for part in (TASKS, TODOS)]
        assert texts(goes_on) == [*texts(folded), ("assistant", "done"), ("user", "on")]


@pytest.mark.states("SG-61")
def test_after_the_tool_compact_the_next_request_ends_with_the_user(tmp_path: Path) -> None:
    for profile in ("opencode", "opencode-1.18"):
        agent = LiveAgent(tmp_path / profile, profile)
        (agent.project / "big.txt").write_text("word " * 9_000)
        read = using("read", path="big.txt")
        requests = agent.turn("go", read, using("compact"), ("All is well.",), read, ("done",))
        marker, summary, request = texts(requests[3])
        assert (marker, summary, request[0]) == (("user", "What did we do so far?"), ("assistant", "All is well."), "user"), profile
        assert [request["messages"][-1]["role"] for request in requests] == ["user"] * 5
