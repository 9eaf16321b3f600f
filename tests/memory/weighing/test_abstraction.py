"""Rules that several facts of one person share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palimpsest.memory.note import Note, Trust, check_note
from palimpsest.memory.weighing.abstraction import rule_steps, worded

FACT = Note(
    name="feedback_reply_length",
    kind="feedback",
    about="short replies",
    backstory="said",
    when="2026-05-01T10:00:00Z",
    evidence=("s1:1",),
    trust="stated",
    body="Reply shortly.\n",
    attribute="reply.length",
)
TONE = replace(FACT, name="feedback_reply_tone", about="plain tone", body="Plain.\n", attribute="reply.tone", evidence=("s2:1",))
ORDER = replace(
    FACT, name="feedback_reply_order", about="result first", body="First.\n", attribute="reply.order", when="2026-05-03T10:00:00Z"
)
FACTS = (FACT, ORDER, TONE)


def rule() -> Note:
    (step,) = rule_steps(FACTS)
    return step.saved[0]


def test_three_facts_of_two_sessions_with_one_pattern_give_a_proposed_rule() -> None:
    (step,) = rule_steps(FACTS)
    assert step.why == "3 facts of 2 sessions share reply"
    assert step.past == ()
    assert step.saved == (
        Note(
            name="feedback_rule_reply",
            kind="feedback",
            about="reply: short replies; result first; plain tone",
            backstory="Proposed by consolidation from 3 statements about reply.",
            when="2026-05-03T10:00:00Z",
            evidence=("s1:1", "s2:1"),
            trust="stated",
            body="Proposed from what these notes have in common:\n- short replies (feedback_reply_length)\n"
            "- result first (feedback_reply_order)\n- plain tone (feedback_reply_tone)\n",
            attribute="reply.rule",
            policy="set",
            level="rule",
            stands_for=("feedback_reply_length", "feedback_reply_order", "feedback_reply_tone"),
            by="consolidate",
        ),
    )
    assert check_note(step.saved[0]) == step.saved[0]


@pytest.mark.parametrize(
    "facts",
    [
        FACTS[:2],
        (FACT, ORDER, replace(TONE, evidence=("s1:9",))),
        (FACT, ORDER, replace(TONE, person="Ann")),
        (FACT, ORDER, replace(TONE, attribute="test.command")),
        (FACT, ORDER, replace(TONE, status="retracted")),
        tuple(replace(note, attribute="") for note in FACTS),
    ],
)
def test_fewer_facts_one_session_another_person_or_another_pattern_give_none(facts: tuple[Note, ...]) -> None:
    assert rule_steps(facts) == ()


@pytest.mark.parametrize("trust", ["observed", "quarantined"])
def test_what_no_user_stated_supports_no_rule(trust: Trust) -> None:
    assert rule_steps(tuple(replace(note, kind="project", name=f"project_{note.name}", trust=trust) for note in FACTS)) == ()


def test_values_of_one_attribute_that_has_many_share_a_pattern() -> None:
    facts = tuple(replace(note, attribute="language", policy="set") for note in FACTS)
    (step,) = rule_steps(facts)
    assert step.saved[0].attribute == "language.rule"


def test_me_12_a_rule_that_lost_one_of_three_supports_stays_and_is_written_again() -> None:
    (step,) = rule_steps((FACT, ORDER, rule()))
    (written,) = step.saved
    assert (written.stands_for, written.rev, written.status) == (("feedback_reply_length", "feedback_reply_order"), 2, "active")
    assert "plain tone" not in f"{written.about}{written.body}"
    assert written.evidence == ("s1:1",)


def test_me_12_a_rule_with_fewer_than_two_supports_is_retracted() -> None:
    (step,) = rule_steps((FACT, rule()))
    assert (step.saved, step.past) == ((), (replace(rule(), status="retracted"),))


def test_me_12_words_of_a_model_above_a_rule_leave_with_the_support_that_they_came_from() -> None:
    named = worded(rule(), "short and plain")
    assert rule_steps((*FACTS, named)) == ()
    (step,) = rule_steps((FACT, ORDER, named))
    assert step.saved[0].about == "reply: short replies; result first"


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(1, 3)), max_size=12))
def test_doing_it_again_changes_nothing(drawn: list[tuple[str, str, int]]) -> None:
    facts = [
        replace(FACT, name=f"feedback_{place}", attribute=f"{family}.{leaf}", evidence=(f"s{session}:1",))
        for place, (family, leaf, session) in enumerate(drawn)
    ]
    steps = rule_steps(facts)
    assert rule_steps((*facts, *(note for step in steps for note in step.saved))) == ()
