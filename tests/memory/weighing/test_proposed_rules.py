"""Rules that several facts of one person share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palimpsest.memory.note import Note, Trust, check_note
from palimpsest.memory.weigh import rule_steps, worded

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


def taken(*facts: Note, by: str = "feedback_rule_reply@1") -> tuple[Note, ...]:
    """Facts whose place a rule has taken."""
    return tuple(replace(note, status="superseded", superseded_by=by) for note in facts)


def test_three_facts_of_two_sessions_with_one_pattern_give_a_proposed_rule() -> None:
    (step,) = rule_steps(FACTS)
    assert step.why == "3 facts of 2 sessions share reply"
    assert step.past == taken(FACT, ORDER, TONE)
    assert step.saved == (
        Note(
            name="feedback_rule_reply",
            kind="feedback",
            about="reply: short replies; result first; plain tone",
            backstory="Proposed by consolidation from 3 statements about reply.",
            when="2026-05-03T10:00:00Z",
            evidence=("s1:1", "s2:1"),
            trust="stated",
            body="In the place of these notes:\n- short replies: Reply shortly. (feedback_reply_length)\n"
            "- result first: First. (feedback_reply_order)\n- plain tone: Plain. (feedback_reply_tone)\n",
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


@pytest.mark.states("ME-12")
def test_a_rule_that_lost_one_of_three_supports_stays_and_is_written_again() -> None:
    (step,) = rule_steps((rule(),), taken(FACT, ORDER))
    (written,) = step.saved
    assert (written.stands_for, written.rev, written.status) == (("feedback_reply_length", "feedback_reply_order"), 2, "active")
    assert "plain tone" not in f"{written.about}{written.body}"
    assert written.evidence == ("s1:1",)


@pytest.mark.states("ME-12")
def test_a_rule_with_fewer_than_two_supports_is_retracted() -> None:
    (step,) = rule_steps((rule(),), taken(FACT))
    assert (step.saved, step.past) == ((replace(FACT, rev=2),), (replace(rule(), status="retracted"),))


@pytest.mark.states("ME-12")
def test_words_of_a_model_above_a_rule_leave_with_the_support_that_they_came_from() -> None:
    named = worded(rule(), "short and plain")
    assert rule_steps((named,), taken(*FACTS)) == ()
    (step,) = rule_steps((named,), taken(FACT, ORDER))
    assert step.saved[0].about == "reply: short replies; result first"


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(1, 3)), max_size=12))
def test_doing_it_again_changes_nothing(drawn: list[tuple[str, str, int]]) -> None:
    facts = [
        replace(FACT, name=f"feedback_{place}", attribute=f"{family}.{leaf}", evidence=(f"s{session}:1",))
        for place, (family, leaf, session) in enumerate(drawn)
    ]
    steps = rule_steps(facts)
    past = [note for step in steps for note in step.past]
    gone = {note.name for note in past}
    left = [note for note in facts if note.name not in gone]
    assert rule_steps((*left, *(note for step in steps for note in step.saved)), past) == ()


EMOJI = replace(FACT, name="feedback_reply_emoji", about="no emoji", body="No emoji.\n", attribute="reply.emoji", evidence=("s3:1",))


@pytest.mark.states("SG-67")
def test_a_further_fact_of_the_pattern_joins_the_rule_and_a_newer_value_takes_the_place_of_the_old_one() -> None:
    longer = replace(FACT, about="long replies", body="Reply at length.\n", evidence=("s4:1",), rev=2)
    (step,) = rule_steps((rule(), EMOJI, longer), taken(*FACTS))
    (written,) = step.saved
    assert written.body == (
        "In the place of these notes:\n- long replies: Reply at length. (feedback_reply_length)\n- result first: First. "
        "(feedback_reply_order)\n- plain tone: Plain. (feedback_reply_tone)\n- No emoji. (feedback_reply_emoji)\n"
    )
    assert step.past == taken(longer, EMOJI, by="feedback_rule_reply@2")


@pytest.mark.states("SG-67")
@pytest.mark.parametrize(
    "kept", [replace(TONE, pinned=True), replace(TONE, valid_to="2027-01-01"), replace(TONE, body=f"{'Plain words. ' * 40}\n")]
)
def test_what_is_pinned_ends_or_says_more_than_a_line_stays_a_note_of_its_own(kept: Note) -> None:
    assert rule_steps((FACT, ORDER, kept)) == ()


@pytest.mark.states("SG-67")
def test_notes_of_commands_come_from_several_sessions_if_hours_lie_between_them() -> None:
    times = ("2026-05-01T10:00:00Z", "2026-05-01T10:05:00Z", "2026-05-01T15:30:00Z")
    typed = [replace(note, when=when, evidence=("memory.user:3",)) for note, when in zip(FACTS, times, strict=True)]
    assert rule_steps(typed) == ()
    (step,) = rule_steps((*typed[:2], replace(typed[2], when="2026-05-01T16:30:00Z")))
    assert step.why == "3 facts of 2 sessions share reply"


@pytest.mark.states("SG-67")
def test_a_rule_that_was_undone_is_proposed_again_only_with_another_case() -> None:
    undone = replace(rule(), status="retracted", superseded_by="feedback_reply_length@2")
    assert rule_steps(FACTS, (undone,)) == ()
    assert [step.why for step in rule_steps((*FACTS, EMOJI), (undone,))] == ["4 facts of 3 sessions share reply"]
