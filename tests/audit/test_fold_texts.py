"""Texts that a fold adds, within their token limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.audit.fold_texts import count_earlier_messages, evidence_block, lines_by_folder, older_messages_block, path_lines
from palimpsest.audit.visible import VisibleText
from palimpsest.core.plans import CommandRun, Evidence, UserMessage
from palimpsest.core.tokens import estimate

EVIDENCE = Evidence(
    edited=("a.py", "/repo/src/app/x.py", "/repo/src/app/main.py"),
    read=("README.md",),
    commands=(CommandRun("make", 0, 2), CommandRun("pytest -q", 1, 8), CommandRun("npm run dev", None, 9)),
    tests=CommandRun("pytest -q", 1, 8, "1 failed, 3 passed"),
    errors=(CommandRun("pytest -q", 1, 8, "1 failed, 3 passed"),),
    tasks=("write the changelog",),
    user_messages=(
        UserMessage("1.0", 0, "Hello"),
        UserMessage("5.0", 0, "Add a test."),
        UserMessage("6.0", 0, "and so on"),
        UserMessage("7.0", 0, "go"),
    ),
)


@pytest.mark.states("PA-14")
def test_the_block_lists_what_the_log_proves_in_a_fixed_order() -> None:
    assert evidence_block(EVIDENCE) == (
        "Edited:\n"
        "- /repo/src/: app/main.py, app/x.py\n"
        "- a.py\n"
        "Read:\n"
        "- README.md\n"
        "Commands, newest first, with exit codes:\n"
        "- [?] npm run dev\n"
        "- [1] pytest -q\n"
        "Last test:\n"
        "- [1] 1 failed, 3 passed | pytest -q\n"
        "Open errors:\n"
        "- [1] 1 failed, 3 passed | pytest -q\n"
        "Open tasks:\n"
        "- write the changelog"
    )


def test_nothing_proven_is_an_empty_block() -> None:
    assert evidence_block(Evidence()) == ""
    assert older_messages_block(()) == ""


@pytest.mark.states("PA-14")
def test_commands_are_cut_to_160_characters_and_to_60_when_not_all_fit() -> None:
    few = Evidence(commands=tuple(CommandRun(f"{number:03} " + "x" * 300, 0, 1) for number in range(3)))
    assert f"- [0] 002 {'x' * 156}…\n" in evidence_block(few)
    words = "npm run build in packages with production settings and all the checks that we have, one after the other"
    many = Evidence(commands=tuple(CommandRun(f"{number:03} {words} {words}", number % 3, 1) for number in range(120)))
    block = evidence_block(many)
    assert all(f"\n{number % 3} {number:03} {words[:56]}\n" in f"{block}\n" for number in range(120))
    assert estimate(block) <= 4_000


@pytest.mark.states("PA-14")
def test_every_edited_path_shows_and_too_many_are_counted_by_folder() -> None:
    paths = tuple(f"/home/me/project/packages/part{number % 7}/src/file{number}.ts" for number in range(300))
    block = VisibleText([evidence_block(Evidence(edited=paths))])
    assert all(block.shows_path(path) for path in paths[-120:])
    many = tuple(f"/srv/app/dir{number % 5}/module_{number:05}.ts" for number in range(5_000))
    text = evidence_block(Evidence(edited=many))
    assert estimate(text) <= 4_000
    assert "dir4/module_04999.ts" in text
    assert "- /srv/app/dir0/: " in text.replace(" more", "")


def test_commands_that_show_elsewhere_go_first_where_not_all_fit() -> None:
    many = Evidence(commands=tuple(CommandRun(f"{number:03} " + "x y z " * 40, 0, number) for number in range(400)))
    assert "000 x y z" not in evidence_block(many)
    assert "000 x y z" in evidence_block(many, elsewhere=frozenset(range(60, 400)))


def test_commands_of_older_turns_are_left_out() -> None:
    assert "make" not in evidence_block(EVIDENCE)
    assert "make" in evidence_block(EVIDENCE, turns=4)


@pytest.mark.states("PA-12")
def test_older_messages_show_id_time_and_opening_words() -> None:
    said = (UserMessage("1.0", 1_700_000_000_000, "Fix the parser"), UserMessage("9.0", 1_700_000_060_000, "now the docs"))
    assert older_messages_block(said, {"9.0"}) == "- 1.0, 2023-11-14 22:13: Fix the parser"


@pytest.mark.states("PA-12")
def test_messages_that_the_evidence_only_counts_are_earlier_ones_unless_they_are_shown() -> None:
    evidence = Evidence(user_messages=(UserMessage("40.0", 0, "go"), UserMessage("44.0", 0, "on")), earlier=7)
    # Shown are two of the seven, one that the evidence lists, and an item of an edit.
    assert count_earlier_messages(evidence, {"3.0", "9.0", "44.0", "12.0.1"}) == 5
    assert count_earlier_messages(Evidence(), {"3.0"}) == 0


def test_paths_share_their_beginning_and_windows_paths_too() -> None:
    assert lines_by_folder(("C:\\a\\b\\c.go", "C:\\a\\b\\d.go", "x/y.py")) == ["- x/y.py", "- C:\\a\\: b\\d.go, b\\c.go"]


PATHS = st.lists(st.text(alphabet="ab/.", min_size=1, max_size=30), max_size=60, unique=True)


@given(PATHS, st.integers(0, 200))
def test_paths_always_fit_their_room(paths: list[str], room: int) -> None:
    assert estimate("\n".join(path_lines(paths, room, estimate))) <= room


@given(
    st.builds(
        Evidence,
        edited=PATHS.map(tuple),
        read=PATHS.map(tuple),
        commands=st.lists(st.builds(CommandRun, st.text(max_size=300), st.none() | st.integers(-1, 300)), max_size=20).map(tuple),
        errors=st.lists(st.builds(CommandRun, st.text(max_size=300), st.integers(1, 9)), max_size=20).map(tuple),
        tasks=st.lists(st.text(max_size=100), max_size=20).map(tuple),
    ),
    st.integers(0, 4_000),
)
def test_the_block_is_within_its_room_and_always_the_same(evidence: Evidence, tokens: int) -> None:
    block = evidence_block(evidence, tokens)
    assert estimate(block) <= max(tokens, 0)
    assert block == evidence_block(evidence, tokens)
