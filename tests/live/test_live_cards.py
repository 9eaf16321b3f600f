"""Cards in live sessions: whose fact a note is, what is due, and what matters more."""

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from coding_tasks import use
from msgspec.structs import replace
from pal_runs import Pal
from recalling_desk import Desk, note, recalled, recalled_text

from palimpsest.agent.agent import Agent
from palimpsest.coding.build import equip
from palimpsest.coding.settings import CodingSettings, McpSettings
from palimpsest.core.events import ModelReplied
from palimpsest.memory.writing import NewNote, add_note
from palimpsest.providers.scripted import Scripted

SAID = "Lena is allergic to peanuts, the doctor told us in March. Please keep that in mind for the bake sale page."
CARD = {
    "text": "Lena is allergic to peanuts.",
    "about": "allergic to peanuts",
    "kind": "user",
    "person": "Lena",
    "relationship": "daughter",
    "backstory": "the doctor told them in March; it came up for the bake sale page",
    "quote": "Lena is allergic to peanuts",
    "intensity": 0.8,
}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def agent_with_all_tools(desk: Desk, *replies: Any, resume: str = "") -> Agent:
    desk.model = Scripted(*replies)
    agent = Agent("claude-sonnet-4-5", provider=desk.model, cwd=desk.root, home=desk.home, resume=resume)
    equip(agent, desk.home, CodingSettings(sandbox="off", snapshots=False, tools=(), mcp=McpSettings(active=False)))
    return agent


class Asked(NamedTuple):
    """A session that was closed: its id, and the names and texts of the notes that its prompts recalled."""

    session: str
    recalled: list[tuple[str, ...]]
    text: str


def ask(agent: Agent, *prompts: str) -> Asked:
    """Ask an agent each prompt and close it, so that its session can go on."""

    async def scenario() -> Asked:
        async with agent:
            for prompt in prompts:
                await agent.ask(prompt)
            return Asked(agent.session.log.session, recalled(agent), recalled_text(agent))

    return asyncio.run(scenario())


def request_texts(desk: Desk, number: int) -> list[str]:
    """Every text of the messages of a request."""
    messages = json.loads(desk.model.requests[number].body)["messages"]
    blocks = (block for message in messages for block in message["content"] if isinstance(message["content"], list))
    return [block["text"] for block in blocks if block.get("type") == "text"]


def lines_of_notes(desk: Desk, number: int = 0) -> list[str]:
    return [line for text in request_texts(desk, number) for line in text.splitlines() if line.startswith("- [")]


@pytest.mark.states("SG-64")
def test_a_card_that_the_model_remembers_says_whose_it_is_in_the_index_in_recall_and_in_search(desk: Desk) -> None:
    session = ask(agent_with_all_tools(desk, ModelReplied((use("remember", **CARD),)), "noted"), SAID).session
    (saved,) = desk.memories.user.notes().active.values()
    assert (saved.person, saved.relationship, saved.backstory, saved.intensity) == ("Lena", "daughter", CARD["backstory"], 0.8)
    assert (saved.trust, saved.when) == ("stated", "2026-05-28T20:26:40Z")

    ask(agent_with_all_tools(desk, "no nuts then"), "Which cake do we take to the party of Lena?")
    assert lines_of_notes(desk) == [
        "- [user_allergic_to_peanuts](notes/user_allergic_to_peanuts.md) 2026-05-28 · about Lena (daughter): allergic to peanuts"
    ]
    block = (
        "<notes>\n[user_allergic_to_peanuts] · 2026-05-28 20:26:40 · about Lena (daughter) · stated\nallergic to peanuts\n"
        "Lena is allergic to peanuts.\nBackstory: the doctor told them in March; it came up for the bake sale page\n</notes>"
    )
    assert [text for text in request_texts(desk, 0) if text.startswith("<notes>")] == [block]

    resumed = ask(agent_with_all_tools(desk, "no nuts", resume=session), "And what does my daughter get?")
    assert resumed.recalled[-1:] == [("user_allergic_to_peanuts",)]

    pal = Pal(desk.home.folder)
    for words in ("Lena", "daughter", "doctor", "bake sale"):
        found = pal.json("memory", "search", *words.split(), "--cwd", str(desk.root))
        assert [each["note"] for each in found] == ["user_allergic_to_peanuts"], words


@pytest.mark.states("SG-64")
def test_the_same_fact_of_two_persons_is_shown_for_both(desk: Desk) -> None:
    desk.save(
        note("user_lena_nuts", "allergic to peanuts", "Allergic to peanuts.\n", person="Lena", relationship="daughter"),
        note("user_nuts", "allergic to peanuts", "Allergic to peanuts.\n"),
    )
    asked = ask(desk.agent("none with nuts"), "Who is allergic to peanuts?")
    assert [sorted(names) for names in asked.recalled] == [["user_lena_nuts", "user_nuts"]]


TRIP = note("user_trip", "flies to Tokyo with Lena on 2026-09-20", "The user flies to Tokyo with Lena on 2026-09-20.\n")
PASSPORT = note("user_lena_passport", "passport expires 2026-09-01", person="Lena", relationship="daughter")
OTHERS = tuple(note(f"project_{word}", f"the {word} is decided on fridays") for word in ("banner", "harbour", "lantern", "meadow"))


@pytest.mark.states("SG-65")
def test_what_is_due_is_shown_when_a_note_that_the_prompt_finds_leads_to_it(desk: Desk) -> None:
    desk.save(TRIP, PASSPORT, *OTHERS)
    asked = ask(desk.agent("check the passport"), "Is everything ready for Tokyo?")
    assert asked.recalled == [("user_lena_passport", "user_trip")]
    assert "about Lena (daughter) · stated\npassport expires 2026-09-01" in asked.text
    desk.memories.user.forget("user_trip")
    assert ask(desk.agent("fine"), "Is everything ready for Tokyo?").recalled == []


@pytest.mark.states("SG-65")
def test_what_is_due_is_shown_inside_the_dates_that_are_asked_for_whomever_it_is_about(desk: Desk) -> None:
    desk.save(PASSPORT, *OTHERS)
    prompt = "Plan the weeks from {} to {} for me."
    assert ask(desk.agent("ok"), prompt.format("25 August 2026", "10 September 2026")).recalled == [("user_lena_passport",)]
    assert ask(desk.agent("ok"), prompt.format("5 September 2026", "10 September 2026")).recalled == []


@pytest.mark.states("SG-65")
def test_what_is_due_is_shown_for_what_was_asked_before_also_after_a_resume(desk: Desk) -> None:
    dentist = note("user_lena_dentist", "dentist on 2026-06-10", person="Lena", relationship="daughter")
    first = ask(desk.agent("which one?"), "Please help me with the calendar of my daughter.")
    desk.save(dentist, *OTHERS)
    resumed = ask(desk.agent("mind the dentist", resume=first.session), "Is the second week of the month free?")
    assert resumed.recalled == [("user_lena_dentist",)]
    assert ask(desk.agent("free"), "Is the second week of the month free?").recalled == []


def found(desk: Desk, *words: str) -> list[str]:
    return [each["note"] for each in Pal(desk.home.folder).json("memory", "search", *words, "--cwd", str(desk.root))]


@pytest.mark.states("SG-66")
def test_of_notes_that_match_alike_the_one_that_matters_more_stands_first(desk: Desk) -> None:
    said = "2026-05-01T10:00:00Z"
    factors: dict[str, dict[str, object]] = {
        "birch": {"intensity": 1.0},
        "cedar": {"uses": 6, "last_used": said},
        "daisy": {"when": "2026-05-27T10:00:00Z"},
    }
    for colour, factor in factors.items():
        other = replace(note("project_b", f"the walrus server is {colour}"), **{"when": said, **factor})
        desk.save(note("project_a", "the walrus server is amber", when=said), other)
        asked = ask(desk.agent("it is"), "walrus server")
        assert asked.recalled[0][0] == "project_b", factor
        for name in ("project_a", "project_b"):
            desk.memories.project.forget(name)


@pytest.mark.states("SG-66")
def test_what_only_one_note_says_stands_before_what_several_say(desk: Desk) -> None:
    desk.save(
        note("project_a", "the walrus server is amber cold"),
        note("project_b", "the walrus server is amber warm"),
        note("project_c", "a walrus parser has birch leaves"),
    )
    pal = Pal(desk.home.folder)
    found = pal.json("memory", "search", "walrus", "--cwd", str(desk.root))
    assert found[0]["note"] == "project_c"


WISHES = {
    "reply.length": "Please keep replies short from now on.",
    "reply.tone": "Please use plain words in replies.",
    "reply.order": "Please put the result first in replies.",
    "reply.emoji": "Please put no emoji into replies.",
}


def wish(attribute: str, said: str, about: str = "") -> ModelReplied:
    """The call by which a model notes what the user said."""
    arguments = {"text": said, "about": about or said, "kind": "feedback", "attribute": attribute, "quote": said}
    return ModelReplied((use("remember", **arguments),))


@pytest.mark.states("SG-67")
def test_a_rule_takes_the_place_of_its_cases_and_gives_it_back(desk: Desk) -> None:
    for attribute, said in WISHES.items():
        ask(agent_with_all_tools(desk, wish(attribute, said), "noted"), said)
    pal, place = Pal(desk.home.folder), ("--cwd", str(desk.root))
    assert pal("memory", "run", "--now", "--no-model").exit_code == 0

    ask(agent_with_all_tools(desk, "hello"), "Hello there")
    listed = ("reply.emoji", "reply.length", "reply.order", "reply.tone")
    about = f"reply: {'; '.join(WISHES[each] for each in listed)}"[:150]
    assert lines_of_notes(desk) == [f"- [feedback_rule_reply](notes/feedback_rule_reply.md) 2026-05-28: {about}"]
    (rule,) = desk.memories.project.notes().active.values()
    assert rule.body == "In the place of these notes:\n" + "".join(
        f"- {WISHES[f'reply.{each}']} (feedback_reply_{each})\n" for each in ("emoji", "length", "order", "tone")
    )
    # The cases are one call away: for the model by its words, for a person by its name.
    found = ask(agent_with_all_tools(desk, ModelReplied((use("recall", query="emoji in replies"),)), "none"), "Any emoji?")
    assert found.recalled == [("feedback_rule_reply",)]
    assert "feedback_reply_emoji" in pal("memory", "show", "feedback_reply_emoji", *place).stdout

    # A correction is stated beside a rule that no longer says what it corrects, before anything is consolidated.
    said = "From now on I want long replies."
    session = ask(agent_with_all_tools(desk, wish("reply.length", said), "noted"), said).session
    ask(agent_with_all_tools(desk, "hello", resume=session), "Hello again")
    notes = desk.memories.project.notes().active
    assert sorted(notes) == ["feedback_reply_length", "feedback_rule_reply"]
    assert (notes["feedback_reply_length"].body.strip(), notes["feedback_reply_length"].supersedes) == (said, ("feedback_reply_length@1",))
    assert "short" not in notes["feedback_rule_reply"].body + notes["feedback_rule_reply"].about

    pal("memory", "run", "--now", "--no-model")
    (rule,) = desk.memories.project.notes().active.values()
    assert said in rule.body

    assert "undone" in pal("memory", "undo", "feedback_rule_reply", *place).stdout
    after = {name: note.body.strip() for name, note in desk.memories.project.notes().active.items()}
    assert after == {f"feedback_{each.replace('.', '_')}": text for each, text in (WISHES | {"reply.length": said}).items()}
    pal("memory", "run", "--now", "--no-model")
    assert sorted(desk.memories.project.notes().active) == sorted(after)


@pytest.mark.states("SG-67")
def test_notes_that_a_person_writes_on_several_days_become_a_rule_and_those_of_one_sitting_do_not(desk: Desk) -> None:
    pal, names = Pal(desk.home.folder), [f"feedback_reply_{each.partition('.')[2]}" for each in sorted(WISHES)]
    for days, left in ((("01", "01", "01", "01"), names), (("01", "02", "01", "02"), ["feedback_rule_reply"])):
        for name in tuple(desk.memories.project.notes().active):
            desk.memories.project.forget(name)
        for day, (attribute, said) in zip(days, sorted(WISHES.items()), strict=True):
            add_note(desk.memories.project, NewNote(kind="feedback", text=said, attribute=attribute), f"2026-05-{day}T10:00:00Z")
        assert pal("memory", "run", "--now", "--no-model").exit_code == 0
        assert sorted(desk.memories.project.notes().active) == left
