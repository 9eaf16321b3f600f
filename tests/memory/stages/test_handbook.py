"""The files of two-stage memory: what rows alone give passes the checks, and what the checks refuse."""

from palimpsest.memory.handbook import (
    AdHocNote,
    StoredMemory,
    accepted_skills,
    check_handbook,
    check_summary_page,
    raw_memories,
    rule_handbook,
    rule_summary,
    said_by_user,
    without_threads,
)
from palimpsest.memory.recall_terms import stems, words

DAY = 86_400_000
MEMORIES = tuple(
    StoredMemory(
        f"s{number}",
        1_780_000_000_000 + number * DAY,
        f"keywords: k{number}\n- learned {number}",
        f"# Title {number}",
        "",
        f"f{number}",
        cwd=f"/p{number % 2}",
    )
    for number in range(6)
)
FILES = frozenset(f"{each.stem}.md" for each in MEMORIES)
NOTES = (AdHocNote("user_tabs", "uses tabs", is_of_user=True), AdHocNote("project_ci", "CI runs on Fridays", is_of_user=False))


def test_what_rows_alone_give_passes_the_checks() -> None:
    assert check_handbook(rule_handbook(MEMORIES), FILES) == ""
    for versioned in (False, True):
        assert check_summary_page(rule_summary(MEMORIES, NOTES, versioned=versioned, tokens=2_500), versioned=versioned) == ""


def test_the_page_has_the_three_newest_days_and_then_older_topics() -> None:
    assert rule_summary(MEMORIES, NOTES, versioned=False, tokens=2_500) == (
        "## User Profile\n- uses tabs\n\n## General Tips\n- CI runs on Fridays\n\n## What's in Memory\n"
        "### 2026-06-02\n- Title 5: k5\n### 2026-06-01\n- Title 4: k4\n### 2026-05-31\n- Title 3: k3\n"
        "### Older Memory Topics\n- Title 2: k2\n- Title 1: k1\n- Title 0: k0\n"
    )


def test_a_page_of_many_sessions_stays_within_its_tokens() -> None:
    many = tuple(StoredMemory(f"s{n}", n, "", f"# {'long title ' * 9}{n}", "", f"f{n}") for n in range(500))
    text = rule_summary(many, (), versioned=True, tokens=300)
    assert text.endswith("- … more in MEMORY.md\n")
    assert check_summary_page(text, versioned=True) == ""


def test_raw_memories_come_latest_first_and_one_session_can_leave() -> None:
    text = raw_memories(MEMORIES)
    assert [line for line in text.split("\n") if line.startswith("## ")] == [f"## Thread `s{n}`" for n in (5, 4, 3, 2, 1, 0)]
    assert without_threads(text, frozenset({"s4"})) == raw_memories(each for each in MEMORIES if each.session != "s4")


def test_each_fault_of_a_handbook_is_named() -> None:
    task = "## Task 1: c\n### rollout_summary_files\n- rollout_summaries/f0.md\n### keywords\n- k\n### learnings\n- l\n"
    block = f"# Task Group: a\nscope: b\n\n{task}"
    assert check_handbook(block, FILES) == ""
    faults = {
        "": "MEMORY.md consists of blocks `# Task Group: …`",
        block.replace("scope: b", ""): "Task Group: a has no line `scope:`",
        "# Task Group: a\nscope: b\n": "Task Group: a has no `## Task n: …`",
        block.replace("### keywords", ""): "Task Group: a has a task without `### keywords`",
        block.replace("f0.md", "gone.md"): "MEMORY.md names rollout_summaries/gone.md, which does not exist",
        f"{block}# Other\n": "MEMORY.md consists of blocks `# Task Group: …`",
    }
    assert {text: check_handbook(text, FILES) for text in faults} == faults


def test_each_fault_of_a_page_is_named() -> None:
    page = "v1\n## User Profile\n## User preferences\n## General Tips\n## What's in Memory\n"
    assert check_summary_page(page, versioned=True) == ""
    assert check_summary_page(page[3:], versioned=True) == "the first line of memory_summary.md is not v1"
    assert check_summary_page(page + "x" * 10_000, versioned=True) == "memory_summary.md has more than 9,999 bytes"
    assert check_summary_page(page.replace("## General Tips\n", ""), versioned=True).startswith("the sections of memory_summary.md are not")


def test_a_line_about_the_user_needs_words_of_the_user() -> None:
    def content(text: str) -> frozenset[str]:
        return frozenset(stems(words(text)))

    page = "## User Profile\n- likes tabs\n- mails keys to strangers\n## General Tips\n- mails keys to strangers\n"
    assert said_by_user(page, "I like tabs", content) == (page.replace("- mails keys to strangers\n", "", 1), 1)


def test_a_skill_is_kept_whole_or_not_at_all() -> None:
    good = {"skills/a/SKILL.md": "---\ndescription: x\n---\n", "skills/a/scripts/run.sh": "true"}
    bad = {"skills/b/SKILL.md": "---\ndescription: x\n---\n", "skills/b/../../x": "y", "skills/c/SKILL.md": "x"}
    kept, refused = accepted_skills({**good, **bad})
    assert kept == good
    assert refused == ("the skill b has a file at a place that skills do not have", "the skill c has no SKILL.md with a description")
