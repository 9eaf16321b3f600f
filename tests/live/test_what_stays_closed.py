"""What an agent reads beside its project is what its own session has saved: never another session's, and never to write."""

import json
from pathlib import Path

import pytest
from hidden_desk import MODES, HiddenDesk, Play, calls, read_whole, recall_whole, texts_of

from palimpsest.agent.decision import Mode
from palimpsest.stores.sessions import ResultFiles, transcript_of

ROWS = "\n".join(f"row {number} with a word" for number in range(3_000))


@pytest.mark.states("SG-40")
@pytest.mark.parametrize("mode", MODES)
def test_the_folder_of_saved_results_is_read_by_every_tool_and_written_by_none(tmp_path: Path, mode: Mode) -> None:
    desk = HiddenDesk(tmp_path, "opencode", mode)
    (desk.root / "big.txt").write_text(ROWS)
    said: dict[str, str] = {}

    def play() -> Play:
        yield "bash", {"command": "cat big.txt"}
        files = desk.home.store.result_files(desk.session)
        assert isinstance(files, ResultFiles)
        folder, (saved,) = files.folder, list(files.folder.iterdir())
        said["read"] = yield "read", {"path": str(saved), "offset": 2_990, "limit": 1}
        said["grep"] = yield "grep", {"pattern": "row 2989 ", "path": str(folder)}
        said["glob"] = yield "glob", {"pattern": "*", "path": str(folder)}
        said["tail"] = yield "bash", {"command": f"tail -n 1 {saved}"}
        said["write"] = yield "write", {"path": str(saved), "content": "x"}
        other = folder.parent / "other.results"
        other.mkdir()
        (other / "secret.txt").write_text("theirs")
        said["other"] = yield "read", {"path": str(other / "secret.txt")}
        said["above"] = yield "grep", {"pattern": "theirs", "path": str(folder.parent)}
        said["cat"] = yield "bash", {"command": f"cat {other}/secret.txt"}

    desk.turn("look", play())
    assert "row 2989 with a word" in said["read"]
    assert ":2990:row 2989 with a word" in said["grep"]
    assert "tool_call_" in said["glob"]
    assert "row 2999 with a word" in said["tail"]
    assert "leads out of the project folder" in said["write"]
    assert "leads out of the project folder" in said["other"]
    assert "leads out of the project folder" in said["above"]
    assert "theirs" not in said["cat"]


@pytest.mark.states("SG-40")
def test_words_of_a_hidden_middle_are_found_and_lead_to_the_item(tmp_path: Path) -> None:
    desk = HiddenDesk(tmp_path, "codex")
    (desk.root / "big.txt").write_text(f"{ROWS}\nthe needle lies here\n{ROWS}")
    found: list[str] = []

    def play() -> Play:
        stub = yield "bash", {"command": "cat big.txt"}
        assert "needle" not in stub
        hits = yield "recall", {"words": "needle lies"}
        found.append(hits)
        found.append((yield from recall_whole(hits.split(" ", 1)[0])))

    desk.turn("look", play())
    assert "line 3,001: the needle lies here" in found[0]
    assert found[1] == f"{ROWS}\nthe needle lies here\n{ROWS}"


@pytest.mark.states("SG-40")
def test_a_part_of_a_result_that_is_one_long_line_is_read_too(tmp_path: Path) -> None:
    desk = HiddenDesk(tmp_path, "opencode")
    (desk.root / "min.js").write_text("x=1;" * 20_000)
    whole: list[str] = []

    def play() -> Play:
        yield "bash", {"command": "cat min.js"}
        files = desk.home.store.result_files(desk.session)
        assert isinstance(files, ResultFiles)
        (saved,) = files.folder.iterdir()
        whole.append((yield from read_whole(str(saved))))

    desk.turn("look", play())
    assert whole == ["x=1;" * 20_000]


@pytest.mark.states("SG-62")
def test_the_teaching_agent_saves_the_whole_transcript_in_the_project_before_a_compaction(tmp_path: Path) -> None:
    desk = HiddenDesk(tmp_path, "classroom")
    for number in range(5):
        (desk.root / f"{number}.txt").write_text(f"content {number} " * 30)

    def play() -> Play:
        for number in range(5):
            yield "bash", {"command": f"cat {number}.txt"}
        yield "compact", {}

    desk.turn("read them", play())
    desk.turn("and again", calls(("compact", {})))
    files = sorted((desk.root / ".transcripts").iterdir())
    assert len(files) == 2
    lines = [json.loads(line) for line in files[0].read_text().splitlines()]
    results = [block["content"] for line in lines for block in line["content"] if block["type"] == "tool_result"]
    assert results[:5] == [f"content {number} " * 30 for number in range(5)]
    assert {line["role"] for line in lines} == {"user", "assistant"}
    assert texts_of(desk.requests[-1])[0].startswith("[Compressed]") or "[Compressed]" in desk.shown()


@pytest.mark.states("SG-45")
def test_the_analysis_stays_in_front_of_the_summary_if_the_setting_says_so(tmp_path: Path) -> None:
    for way, kept in (("claude-code", False), ("claude-code@keep_analysis=on", True)):
        desk = HiddenDesk(tmp_path / way, way)
        (desk.root / "rows.txt").write_text(ROWS[:20_000])
        desk.turn("go", calls(("bash", {"command": "cat rows.txt"})))
        desk.turn("compact it", calls(("compact", {})))
        desk.turn("and on", calls(("bash", {"command": "ls"})))
        (message,) = [text for text in texts_of(desk.requests[-1]) if "full transcript" in text]
        assert ("Analysis:\nThought about it." in message) == kept
        assert transcript_of(desk.home.store.result_files(desk.session)) in message
