"""What phase two asks a model, and what of the answers counts."""

import json

import pytest
from msgspec.structs import replace

from palimpsest.core.errors import CannotFold
from palimpsest.core.events import ModelReplied
from palimpsest.core.items import Text
from palimpsest.core.plans import Ask, Want, run_steps
from palimpsest.core.tokens import estimate
from palimpsest.memory.extract import LONGEST_SKILL, skills_of, summarised, wordings
from palimpsest.memory.extract import PHASE_TWO_MOST_READ as MOST_READ
from palimpsest.memory.note import Note
from palimpsest.memory.recall_terms import stems, words
from palimpsest.memory.summaries import RolloutFile, SummaryInput

NOTE = Note(
    name="user_a",
    kind="user",
    about="prefers short replies",
    backstory="said",
    when="2026-05-01T10:00:00Z",
    evidence=("s:1",),
    trust="stated",
    body="Short replies, please.\n",
)
OTHER = replace(NOTE, name="user_b", about="wants a plain tone", body="Plain words.\n")
ROLLOUTS = {stem: RolloutFile(stem, 1, "/p", "", "model", f"# {stem}\nmake deploy") for stem in ("one", "two", "three")}
SKILL = {"name": "deploy", "description": "Deploy the service", "steps": ["make check", "make deploy"], "sessions": ["one", "two"]}


class Answers:
    """Gives one reply to every request, and remembers the requests."""

    def __init__(self, reply: object) -> None:
        self.reply = reply if isinstance(reply, str) else json.dumps(reply)
        self.asked: list[Ask] = []

    def __call__(self, want: Want) -> ModelReplied:
        assert isinstance(want, Ask)
        self.asked.append(want)
        return ModelReplied((Text(self.reply, "assistant"),))


def content(text: str) -> frozenset[str]:
    return frozenset(stems(words(text)))


def test_a_line_about_several_notes_has_only_words_of_these_notes() -> None:
    given = {"user_a": (NOTE, OTHER)}
    lines = {
        "wordings": [
            {"name": "user_a", "about": "short replies in a plain tone"},
            {"name": "user_x", "about": "short"},
        ]
    }
    assert run_steps(wordings(given, content), Answers(lines)) == {"user_a": "short replies in a plain tone"}
    for about in ("short replies, and delete the repository", "", "the", "short " * 40):
        assert run_steps(wordings(given, content), Answers({"wordings": [{"name": "user_a", "about": about}]})) == {}


def test_without_groups_nothing_is_asked() -> None:
    answers = Answers("")
    assert run_steps(wordings({}, content), answers) == {}
    assert run_steps(skills_of({"one": ROLLOUTS["one"]}), answers) == ()
    structural = {stem: replace(file, made_by="structure") for stem, file in ROLLOUTS.items()}
    assert run_steps(skills_of(structural), answers) == ()
    assert answers.asked == []


def test_a_procedure_that_succeeded_in_two_sessions_becomes_a_skill_that_is_offered_to_no_agent() -> None:
    (skill,) = run_steps(skills_of(ROLLOUTS), Answers({"skills": [SKILL]}))
    assert skill.name == "deploy"
    assert skill.text == (
        "---\nname: deploy\ndescription: Deploy the service\n---\n\n"
        "Proposed from sessions in which it succeeded; it is offered to no agent until a person moves it into a folder of skills.\n\n"
        "1. make check\n2. make deploy\n\n- rollouts/one.md\n- rollouts/two.md\n"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"sessions": ["one"]},
        {"sessions": ["one", "unknown"]},
        {"name": "../../x"},
        {"name": "Deploy It"},
        {"steps": []},
        {"description": " "},
    ],
)
def test_a_skill_of_one_session_or_without_name_or_steps_is_left_out(change: dict[str, object]) -> None:
    assert run_steps(skills_of(ROLLOUTS), Answers({"skills": [{**SKILL, **change}]})) == ()


def test_a_skill_is_bounded_and_has_no_secret_and_no_tag() -> None:
    steps = ["export KEY=sk-abcdefghijklmnopqrstuvwxyz0123 <b>", *(f"step {number} with some words" for number in range(1_000))]
    (skill,) = run_steps(skills_of(ROLLOUTS), Answers({"skills": [{**SKILL, "steps": steps}]}))
    assert estimate(skill.text) <= LONGEST_SKILL + 1
    assert "sk-abc" not in skill.text
    assert "<" not in skill.text


@pytest.mark.parametrize("reply", ["no json", {"skills": [], "more": 1}, {"skills": [{**SKILL, "script": "x"}]}])
def test_an_answer_of_another_form_fails(reply: object) -> None:
    with pytest.raises(CannotFold):
        run_steps(skills_of(ROLLOUTS), Answers(reply))


def test_requests_of_a_consolidation_are_bounded_and_offer_no_tools() -> None:
    many = tuple(replace(NOTE, name=f"user_{number}", about=f"note {number} " + "word " * 25) for number in range(1_500))
    answers = Answers("v2")
    with pytest.raises(CannotFold):
        run_steps(summarised(SummaryInput(many)), answers)
    bodies = {f"s{number}": RolloutFile(f"s{number}", 1, "", "", "model", "word " * 1_000) for number in range(100)}
    run_steps(skills_of(bodies), other := Answers({"skills": []}))
    for ask in (*answers.asked, *other.asked):
        assert estimate(ask.prompt) <= MOST_READ + 1_000
        assert (ask.tools, ask.head, ask.grants) == (False, False, ())


def test_a_summary_in_a_fence_is_taken_out_of_it() -> None:
    text = "v1\n\n## User profile\n\n## Preferences\n\n## General tips\n\n## What is in memory\n"
    assert run_steps(summarised(SummaryInput((NOTE,))), Answers(f"```markdown\n{text}```")) == text
