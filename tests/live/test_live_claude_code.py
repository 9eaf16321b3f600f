"""Claude Code's way with the context, in `pal -p` with the agent's own tools."""

import re
from pathlib import Path
from typing import Any

import pytest
from live_agent import LiveAgent, results, texts, using, with_results

CLEARED = "<persisted-output>Tool result saved to: FILE\n\nUse Read to view</persisted-output>"
UNREAD = "a.txt has not been read in this session; read it before changing it"
FULL = 137_000


def saved(text: str) -> str:
    """A placeholder without the folder and the name of its file."""
    return re.sub(r"saved to: \S+", "saved to: FILE", text)


def of_tokens(tokens: int) -> str:
    return ("x" * 79 + "\n") * (tokens * 4 // 80)


@pytest.mark.states("SG-01")
def test_the_oldest_six_of_fourteen_results_are_cleared_at_137_000_tokens_and_stay_so_in_a_session_that_goes_on(tmp_path: Path) -> None:
    agent = LiveAgent(tmp_path, "claude-code")
    for number, tokens in enumerate([3_500, *[4_500] * 9, *[5_000] * 4]):
        (agent.project / f"{number}.txt").write_text(of_tokens(tokens))
    cats = [using("bash", command=f"cat {number}.txt", tokens=FULL if number == 13 else 1_000) for number in range(14)]
    requests = agent.turn("go", *cats, ("done",))
    before, after = requests[-2:]
    whole = results(after)[-1]
    assert [saved(text) for text in results(after)[:6]] == [CLEARED] * 6
    assert (len(results(after)), whole) == (14, of_tokens(5_000))
    kept = dict(enumerate(results(after)[:6]))
    assert after["messages"][: len(before["messages"])] == with_results(before, kept)
    goes_on = agent.turn("on", ("fine",))[0]
    assert goes_on["messages"][: len(after["messages"])] == after["messages"]


def test_at_132_000_tokens_nothing_is_cleared(tmp_path: Path) -> None:
    agent = LiveAgent(tmp_path, "claude-code")
    (agent.project / "a.txt").write_text(of_tokens(5_000))
    # A result of 5,000 tokens comes behind each report.
    requests = agent.turn("go", *[using("bash", command=f"cat a.txt # {number}", tokens=127_000) for number in range(14)], ("done",))
    assert results(requests[-1]) == [of_tokens(5_000)] * 14


def test_what_our_tools_read_find_run_and_change_is_cleared_and_a_todo_list_is_not(tmp_path: Path) -> None:
    agent = LiveAgent(tmp_path, "claude-code")
    (agent.project / "a.txt").write_text("one\n" + of_tokens(9_000))
    (agent.project / "big.txt").write_text(of_tokens(7_000))
    listed: dict[str, Any] = {"items": [{"id": "1", "text": "look", "status": "in_progress"}]}
    requests = agent.turn(
        "go",
        using("read", path="a.txt"),
        using("grep", pattern="x+"),
        using("glob", pattern="*.txt"),
        using("todo", **listed),
        using("edit", path="a.txt", old="one", new="two"),
        using("write", path="new.txt", content="new"),
        *[using("bash", command=f"cat big.txt # {number}") for number in range(5)],
        using("bash", command="cat big.txt # last", tokens=150_000),
        ("done",),
    )
    shown = [saved(text) for text in results(requests[-1])]
    assert shown == [*[CLEARED] * 3, "[>] look\n0/1 done", *[CLEARED] * 3, *[of_tokens(7_000)] * 5]


@pytest.mark.states("SG-44")
def test_a_file_whose_read_was_cleared_has_to_be_read_again_before_an_edit_also_in_a_session_that_goes_on(tmp_path: Path) -> None:
    agent = LiveAgent(tmp_path, "claude-code")
    (agent.project / "a.txt").write_text("one\n")
    (agent.project / "b.txt").write_text("one\n")
    (agent.project / "big.txt").write_text(of_tokens(7_000))
    edit: dict[str, Any] = {"path": "a.txt", "old": "one", "new": "two"}
    fill = [using("bash", command=f"cat big.txt # {number}") for number in range(9)]
    requests = agent.turn(
        "go",
        using("read", path="a.txt"),
        *fill,
        using("read", path="./b.txt"),
        using("bash", command="cat big.txt # last", tokens=FULL),
        using("edit", **edit),
        using("edit", path="b.txt", old="one", new="two"),
        ("done",),
    )
    assert results(requests[-1])[-2:] == [UNREAD, "Edited b.txt: 1 replacement"]
    requests = agent.turn("on", using("edit", **edit), using("read", path="a.txt"), using("edit", **edit), ("done",))
    assert results(requests[-1])[-3:] == [UNREAD, "     1\tone", "Edited a.txt: 1 replacement"]


@pytest.mark.states("SG-41")
def test_an_output_of_more_than_30_000_characters_of_our_shell_is_saved_and_shown_by_its_first_2_kb(tmp_path: Path) -> None:
    for profile in ("claude-code", "claude-code-2.1.325"):
        agent = LiveAgent(tmp_path / profile, profile)
        (agent.project / "within.txt").write_text("x" * 29_380)
        (agent.project / "over.txt").write_text("x" * 30_292)
        requests = agent.turn("go", using("bash", command="cat within.txt"), using("bash", command="cat over.txt"), ("done",))
        within, over = results(requests[-1])
        assert within == "x" * 29_380
        preview = "x" * 2_000
        assert saved(over) == (
            f"<persisted-output>\nOutput too large (29.6KB). Full output saved to: FILE\n\nPreview (first 2KB):\n{preview}\n...\n"
            "</persisted-output>"
        )


@pytest.mark.states("SG-60")
def test_the_newest_todo_list_is_stated_once_after_a_compaction_within_a_turn(tmp_path: Path) -> None:
    for profile in ("claude-code", "claude-code-2.1.325"):
        agent = LiveAgent(tmp_path / profile, profile)
        (agent.project / "a.txt").write_text("one\n")
        (agent.project / "big.txt").write_text(of_tokens(5_000))
        first: dict[str, Any] = {"items": [{"id": "1", "text": "look", "status": "in_progress"}, {"id": "2", "text": "write"}]}
        later: dict[str, Any] = {
            "items": [{"id": "1", "text": "look", "status": "completed"}, {"id": "2", "text": "write", "status": "in_progress"}]
        }
        requests = agent.turn(
            "go",
            using("todo", **first),
            using("bash", command="cat big.txt"),
            using("todo", **later),
            using("read", path="a.txt"),
            using("bash", command="echo one", tokens=190_000),
            ("<summary>All is well.</summary>",),
            ("done",),
        )
        stated = "<system-reminder>\n# Todo list\n[x] look\n[>] write\n1/2 done\n</system-reminder>"
        everything = "\n".join(text for _, text in texts(requests[-1])) + "\n".join(results(requests[-1]))
        assert [text for _, text in texts(requests[-1]) if "# Todo list" in text] == [stated], everything
        assert (everything.count("look"), everything.count("[>]")) == (1, 1), everything
        goes_on = agent.turn("on", ("fine",))[0]
        assert [text for _, text in texts(goes_on) if "# Todo list" in text] == [stated]


@pytest.mark.states("SG-04")
def test_after_a_compaction_the_newest_five_files_stand_whole_newest_first_and_a_cut_says_so(tmp_path: Path) -> None:
    shown: dict[str, list[tuple[int, str]]] = {}
    for profile in ("claude-code", "claude-code-2.1.325"):
        agent = LiveAgent(tmp_path / profile, profile)
        for number in range(7):
            (agent.project / f"{number}.txt").write_text(f"line of {number}\n" * (4_000 if number in {3, 4, 5} else 30))
        reads = [using("read", path=f"{number}.txt") for number in range(7)]
        requests = agent.turn("go", *reads, using("compact"), ("<summary>All is well.</summary>",), ("done",))
        restored = [text.splitlines() for _, text in texts(requests[-1]) if "line of" in text or "too large" in text]
        shown[profile] = [(sum("line of" in line for line in lines), lines[-2]) for lines in restored]
    cut = "[Cut here: 3.txt has 4,001 lines, of which 3,709 are shown. Read it from line 3710 on for the rest.]"
    assert shown["claude-code"] == [(30, "    31→"), (4_000, "  4001→"), (4_000, "  4001→"), (3_709, cut)]
    # As measured, a large file is only named.
    named = [
        (0, f"{number}.txt was read before this point. It is too large to be shown again here; read it if you need it.")
        for number in (5, 4, 3)
    ]
    assert shown["claude-code-2.1.325"] == [(30, "31\t"), *named, (30, "31\t")]
