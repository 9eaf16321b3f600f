"""What is hidden is one call away, from the model's side: under every profile it gets the very bytes back by what it is shown."""

import re
from hashlib import sha256
from pathlib import Path

import pytest
from hidden_desk import MODES, Call, HiddenDesk, Play, calls, fetch, part_of, texts_of

from palimpsest.agent.decision import Mode
from palimpsest.policies.named import PROFILES

# More than 25,000 tokens, of few characters, so that all of it can be fetched in one session; Claude Code counts characters.
ROWS = tuple(f"{number:04d} {sha256(str(number).encode()).hexdigest()} wörd" for number in range(1_000))
MANY_ROWS = ROWS * 6
EVERY = sorted(PROFILES)


def rows_for(way: str) -> tuple[str, ...]:
    return MANY_ROWS if way.startswith(("claude", "context-editing")) else ROWS


@pytest.mark.states("SG-40")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", EVERY)
def test_a_large_result_is_fetched_whole_at_once_and_a_part_of_it_after_a_resume(tmp_path: Path, way: str, mode: Mode) -> None:
    desk, rows = HiddenDesk(tmp_path, way, mode), rows_for(way)
    (desk.root / "big.txt").write_text("\n".join(rows))
    fetched: list[str] = []

    def first() -> Play:
        stub = yield "bash", {"command": "cat big.txt"}
        assert len(stub) < 60_000
        assert "\n".join(rows) not in stub
        fetched.append(stub)
        fetched.append((yield from fetch(stub)))

    def second() -> Play:
        fetched.append((yield part_of(fetched[0], 451, 550)))

    desk.turn("show me big.txt", first())
    desk.turn("again", second())
    assert fetched[1].count("\n".join(rows)) == 1
    assert all(row in fetched[2] for row in rows[450:549])
    assert rows[560] not in fetched[2]


@pytest.mark.states("SG-40")
@pytest.mark.parametrize("way", EVERY)
def test_an_output_with_zero_bytes_is_fetched_whole_too(tmp_path: Path, way: str) -> None:
    desk, text = HiddenDesk(tmp_path, way), "\0\n".join(rows_for(way))
    (desk.root / "names.txt").write_text(text)
    fetched: list[str] = []

    def play() -> Play:
        fetched.append((yield from fetch((yield "bash", {"command": "cat names.txt"}))))

    desk.turn("list the names", play())
    assert fetched[0].count(text) == 1


@pytest.mark.states("SG-40")
@pytest.mark.parametrize("way", EVERY)
def test_a_large_result_is_fetched_whole_where_the_home_lies_in_the_project(tmp_path: Path, way: str) -> None:
    desk, rows = HiddenDesk(tmp_path, way), rows_for(way)
    desk.root = tmp_path
    (desk.root / "big.txt").write_text("\n".join(rows))
    fetched: list[str] = []

    def play() -> Play:
        fetched.append((yield from fetch((yield "bash", {"command": "cat big.txt"}))))

    desk.turn("show me big.txt", play())
    assert fetched[0].count("\n".join(rows)) == 1


@pytest.mark.states("SG-40")
def test_a_page_that_was_recalled_and_then_masked_is_fetched_whole_and_says_where_it_ends(tmp_path: Path) -> None:
    desk = HiddenDesk(tmp_path, "classroom")
    (desk.root / "big.txt").write_text("\n".join(MANY_ROWS))
    pages: list[str] = []

    def play() -> Play:
        stub = yield "bash", {"command": "cat big.txt"}
        named = re.search(r"recall id (\S+),", stub)
        assert named is not None
        pages.append((yield "recall", {"id": named[1]}))
        for number in range(4):
            yield "bash", {"command": f"head -n 20 big.txt # {number}"}
        (masked,) = [text for text in texts_of(desk.requests[-1]) if text.startswith("[Previous: used recall]")]
        pages.append((yield from fetch(masked)))

    desk.turn("show me big.txt", play())
    assert "go on with offset" in pages[0].splitlines()[-1]
    assert pages[1].startswith(pages[0])


# Of these the newest 15,000 tokens stay, unless fewer are set.
TAILED = {"palimpsest", "gateway", "gateway-thrifty"}
FOLDING = [way for way in EVERY if way not in {"none", "lossless"}]


@pytest.mark.states("SG-40", "SG-03")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", FOLDING)
def test_what_a_compaction_hides_is_fetched_by_what_its_message_says_also_after_a_resume(tmp_path: Path, way: str, mode: Mode) -> None:
    desk, small = (
        HiddenDesk(tmp_path, f"{way}@PAL_TAIL=100,PAL_RESULTS=0,PAL_MESSAGES=500" if way in TAILED else way, mode),
        "\n".join(ROWS[:40]),
    )
    (desk.root / "small.txt").write_text(small)
    for number in range(4):
        (desk.root / f"fill{number}.txt").write_text("\n".join(ROWS[200 * number + 100 : 200 * number + 300]))
    fetched: list[str] = []

    def first() -> Play:
        yield "bash", {"command": "cat small.txt"}
        for number in range(4 if way in TAILED else 0):
            yield "bash", {"command": f"cat fill{number}.txt"}

    def folded() -> Play:
        yield "compact", {}
        if way in TAILED:
            # The first only clears results.
            yield "compact", {}
        assert small not in desk.shown()
        fetched.append((yield from fetch(hiding_message(desk))))

    def later() -> Play:
        fetched.append((yield from fetch(hiding_message(desk))))

    desk.turn("show me small.txt" + ("\n".join(ROWS[800:]) if way in TAILED else ""), first())
    desk.turn("now sum it up", folded())
    desk.turn("what was in it?", later())
    # Ours leaves the results with their stubs, which another test follows, and shortens a long message.
    hidden = "\n".join(ROWS[800:]) if way in TAILED else small
    assert [hidden in plain(each) for each in fetched] == [True, True]
    # Some keep the messages of the user, which are then not hidden.
    assert ["show me small.txt" in f"{each}{desk.shown()}" for each in fetched] == [True, True]


@pytest.mark.states("SG-40")
@pytest.mark.parametrize("way", FOLDING)
def test_what_a_first_compaction_hid_is_one_call_away_after_a_second_one_too(tmp_path: Path, way: str) -> None:
    desk = HiddenDesk(tmp_path, f"{way}@PAL_TAIL=100,PAL_RESULTS=0,PAL_MESSAGES=500" if way in TAILED else way)
    first, prompt = "\n".join(ROWS[:40]), "\n".join(ROWS[800:])
    (desk.root / "first.txt").write_text(first)
    (desk.root / "fill.txt").write_text("\n".join(ROWS[100:300]))
    fetched: list[str] = []

    def back() -> Play:
        fetched.append((yield from fetch(hiding_message(desk))))

    fill: tuple[Call, ...] = (("bash", {"command": "cat fill.txt"}),) * (4 if way in TAILED else 1)
    # Ours only clears results at first.
    folds: tuple[Call, ...] = (("compact", {}),) * (2 if way in TAILED else 1)
    desk.turn(f"show me\n{prompt}", calls(("bash", {"command": "cat first.txt"}), *fill))
    desk.turn("sum it up", calls(*folds))
    desk.turn(f"show me more\n{prompt}", calls(*fill))
    desk.turn("sum it up again", calls(*folds))
    desk.turn("what was in it?", back())
    assert (prompt if way in TAILED else first) in plain(fetched[0])


@pytest.mark.states("SG-40")
@pytest.mark.parametrize("way", EVERY)
def test_in_a_home_without_files_a_stub_names_what_recall_takes(tmp_path: Path, way: str) -> None:
    desk, rows = HiddenDesk(tmp_path, way, on_disk=False), rows_for(way)
    (desk.root / "big.txt").write_text("\n".join(rows))
    fetched: list[str] = []

    def large() -> Play:
        fetched.append((yield from fetch((yield "bash", {"command": "cat big.txt"}))))

    desk.turn("show me big.txt", large())
    assert "\n".join(rows) in fetched[0]


@pytest.mark.states("SG-40")
@pytest.mark.parametrize("way", [way for way in FOLDING if way not in TAILED])
def test_in_a_home_without_files_a_compaction_names_what_recall_takes(tmp_path: Path, way: str) -> None:
    desk, small = HiddenDesk(tmp_path, way, on_disk=False), "\n".join(ROWS[:40])
    (desk.root / "small.txt").write_text(small)
    fetched: list[str] = []

    def back() -> Play:
        fetched.append((yield from fetch(hiding_message(desk))))

    desk.turn("show me small.txt", calls(("bash", {"command": "cat small.txt"})))
    desk.turn("sum it up", calls(("compact", {})))
    desk.turn("what was in it?", back())
    assert small in fetched[0]


CLEARING: tuple[tuple[str, int, Call | None], ...] = (
    ("palimpsest", 8, ("compact", {})),
    ("classroom", 6, None),
    ("opencode", 8, None),
    ("opencode-1.18@compaction.prune=true", 8, None),
    ("context-editing@clear_tool_uses.trigger=20000,clear_tool_uses.keep=1", 6, None),
    ("context-editing@clear_tool_uses.trigger=20000,clear_tool_uses.keep=1,clear_tool_uses.clear_tool_inputs=true", 6, None),
)


@pytest.mark.states("SG-40")
@pytest.mark.parametrize(("way", "files", "ends"), CLEARING)
def test_every_result_and_call_that_was_cleared_is_fetched_by_the_id_of_its_stub(
    tmp_path: Path, way: str, files: int, ends: Call | None
) -> None:
    desk = HiddenDesk(tmp_path, way)
    # Claude's context editing and OpenCode's pruning begin with many tokens.
    rows = 40 if way == "classroom" else 690
    texts = [f"file {number}\n" + "\n".join(f"{number} {row}" for row in ROWS[:rows]) for number in range(files)]
    # What is longer is a preview at once, under the limits of Claude Code's shell.
    most = 28_000 if way.startswith("context-editing") else 51_000
    for number, text in enumerate(texts):
        (desk.root / f"{number}.txt").write_text(text[:most])
    fetched: list[str] = []

    def show(number: int) -> Play:
        yield "bash", {"command": f"cat {number}.txt"}

    def back() -> Play:
        if ends is not None:
            yield ends
        else:
            yield "todo", {"items": []}
        stubs = [text for text in texts_of(desk.requests[-1]) if re.search(r"id [\d.]+\]", text) and len(text) < 200]
        for stub in stubs:
            whole = yield from fetch(stub)
            fetched.append(whole)

    for number in range(files):
        desk.turn(f"show me {number}", show(number))
    desk.turn("what was in them?", back())
    assert fetched
    wanted = [text[:most] for text in texts]
    assert [any(text in each or "cat " in each for text in wanted) for each in fetched] == [True] * len(fetched)


def plain(fetched: str) -> str:
    """A transcript as text; in one of JSON line breaks are escaped."""
    return fetched.replace("\\n", "\n")


def hiding_message(desk: HiddenDesk) -> str:
    """The first text of the newest request that says what a compaction hides."""
    return next(text for text in texts_of(desk.requests[-1]) if "What this hides is kept" in text or "full transcript" in text)
