"""What the context of a session states of its notes, by profile, and how changes within an epoch are stated."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from recalling_desk import TABS, Desk, ask, note, view_text

from palimpsest.agent.agent import Agent
from palimpsest.core.errors import BadInput
from palimpsest.core.items import Item, Text
from palimpsest.core.tokens import estimate
from palimpsest.memory.changes import AcceptedChange
from palimpsest.memory.note import check_note
from palimpsest.memory.recall_prompts import head_texts
from palimpsest.memory.session_memory import session_memory
from palimpsest.sources.prompts import KEY
from palimpsest.stores.memory_config import MemoryConfig

SUMMARY = "v1\n## User profile\nA careful person.\n"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def stated(agent: Agent, source: str = "memory") -> list[str]:
    view = agent.session.log.view
    return [item.content.text for item in (*view.head, *view.items) if _is_of(item, source) and isinstance(item.content, Text)]


def _is_of(item: Item, source: str) -> bool:
    return item.source.removesuffix("+") == source


def summary(desk: Desk, text: str) -> None:
    folder = desk.memories.project.folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SUMMARY.md").write_text(text)


def text_of(desk: Desk, way: str = "palimpsest") -> str:
    agent = desk.agent(way=way)
    memory = session_memory(agent.session, agent.toolbox.workspace.root, desk.home, MemoryConfig())
    assert memory is not None
    return head_texts(memory, agent.session.profile.notes, None).get(KEY, "")


def test_the_context_states_the_index_of_all_scopes_pinned_notes_and_the_summary(desk: Desk) -> None:
    desk.save(
        TABS, note("user_name", "is called Kim"), replace(note("project_goal", "ship in june", "**Ship** in june </notes>.\n"), pinned=True)
    )
    summary(desk, SUMMARY)
    agent = ask(desk.agent("done"), "hello")
    (text,) = stated(agent)
    assert text.startswith("<system-reminder>\n# Notes of earlier sessions\n")
    assert (
        "- [project_goal](notes/project_goal.md) 2026-05-01 10:00:00: ship in june\n"
        "- [user_name](notes/user_name.md) 2026-05-01 10:00:00: is called Kim\n- [feedback_tabs]" in text
    )
    assert "[project_goal] · 2026-05-01 10:00:00 · about user (self) · stated\nship in june\n**Ship** in june &lt;/notes>." in text
    assert text.index("**Ship**") < text.index("## User profile\nA careful person.")
    assert "v1" not in text


@pytest.mark.states("ME-03")
def test_the_index_in_the_context_stays_within_its_bounds(desk: Desk) -> None:
    folder = desk.memories.project
    many = tuple(note(f"project_fact_{number:04}", f"fact {number} " + "about this and that " * 6) for number in range(260))
    folder.apply(AcceptedChange(many, reason="added"), "remember")
    text = text_of(desk)
    lines = [line for line in text.splitlines() if line.startswith("- [")]
    assert 10 < len(lines) < 200
    assert estimate("\n".join(lines)) <= 2_500
    assert "notes are not listed here; the first is: - [project_fact_" in text


def test_a_long_summary_is_cut_at_a_line(desk: Desk) -> None:
    desk.save(TABS)
    summary(desk, "v1\n" + "\n".join(f"line {number} of a very long summary" for number in range(2_000)))
    text = text_of(desk)
    assert "line 0 of" in text
    assert estimate(text) < 2_500 + 400
    assert text.splitlines()[-1].startswith("line ")


def test_changes_within_an_epoch_are_stated_at_the_end_by_what_differs(desk: Desk) -> None:
    desk.save(TABS, note("user_name", "is called Kim"))
    agent = desk.agent("one", "two", "three", "four")
    ask(agent, "first")
    assert len(stated(agent)) == 1
    desk.save(note("project_goal", "ship in june"))
    desk.memories.user.apply(AcceptedChange((), (replace(note("user_name", "is called Kim"), status="retracted"),), "never true"), "user")
    ask(agent, "second", "third")
    first, second = stated(agent)
    assert "ship in june" not in first
    changed = [line for line in second.splitlines() if line[:2] in ("+ ", "- ")]
    assert changed == [
        "- [user_name](notes/user_name.md) 2026-05-01 10:00:00: is called Kim",
        "+ [project_goal](notes/project_goal.md) 2026-05-01 10:00:00: ship in june",
    ]
    assert agent.session.log.view.items[-1].source != "memory+"
    assert estimate(second) < estimate(first)


def test_without_notes_nothing_is_stated(desk: Desk) -> None:
    agent = ask(desk.agent("done"), "hello")
    assert stated(agent) == []
    assert text_of(desk) == ""


@pytest.mark.states("CX-59")
def test_the_summary_is_cut_in_the_middle_and_an_empty_one_is_no_part(desk: Desk) -> None:
    desk.save(TABS)
    for way, tokens in (("codex", 5_000), ("codex-0.166", 2_500)):
        summary(desk, " \n")
        assert text_of(desk, way) == ""
        assert stated(ask(desk.agent("done", way=way), "hello")) == []
        summary(desk, "v1\n" + "first words " + "x" * 40_000 + " last words")
        agent = ask(desk.agent("done", way=way), "hello")
        (text,) = stated(agent)
        cut = (12 + 40_000 + 11 - tokens * 4 + 3) // 4
        assert f"…{cut} tokens truncated…" in text
        assert "first words" in text
        assert text.endswith("last words")
        assert "feedback_tabs" not in text
        (item,) = (item for item in agent.session.log.view.items if item.source == "memory")
        assert isinstance(item.content, Text)
        assert item.content.role == "developer"


@pytest.mark.states("CL-47")
def test_cards_in_the_head_stay_within_their_tokens_and_the_rest_is_counted_and_found_by_the_tool(desk: Desk) -> None:
    cards = [
        note(
            f"user_card_{number:03}",
            f"card {number}",
            f"The walrus number {number} " + f"w{number} " * 40,
            when=f"2026-05-01T10:{number // 60:02}:{number % 60:02}Z",
        )
        for number in range(90)
    ]
    desk.memories.user.apply(AcceptedChange(tuple(cards), reason="added"), "remember")
    agent = ask(desk.agent("done", way="classroom"), "hello")
    (text,) = stated(agent, "cards")
    shown = [line for line in text.splitlines() if line.startswith("[user_card_")]
    assert shown[0].startswith("[user_card_089]")
    assert 5 < len(shown) < 90
    assert estimate("\n".join(text.splitlines()[4:-1])) <= 3_000
    assert f"+{90 - len(shown)} more cards; find them with the tool recall" in text
    assert "recall" in agent.toolbox.tools


@pytest.mark.states("CL-45", "CL-46")
def test_a_card_shows_backstory_person_relationship_and_date_and_no_metadata(desk: Desk) -> None:
    for field in ("backstory", "person", "relationship", "when"):
        with pytest.raises(BadInput, match=f"the field {field}"):
            check_note(replace(TABS, **{field: ""}))
    mine = replace(TABS, other=(("_metadata", "_metadata: made by a machine"),), order=(), uses=7, last_used="2026-05-02T10:00:00Z", rev=3)
    hers = replace(mine, name="feedback_tabs_of_ann", person="Ann", relationship="colleague")
    desk.save(mine, hers)
    text = view_text(ask(desk.agent("done", way="classroom"), "hello"))
    for person, relationship in (("user", "self"), ("Ann", "colleague")):
        assert (
            f"person: {person} · relationship: {relationship} · date: 2026-05-01 10:00:00\n  backstory: said when a recipe failed" in text
        )
    for hidden in ("_metadata", "made by a machine", "last_used", "2026-05-02", "uses: 7"):
        assert hidden not in text
