"""Consolidation without a model."""

import random
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from palimpsest.memory.note import Note
from palimpsest.memory.weigh import DEFAULT_WEIGHING, Consolidated, ConsolidationStep, consolidate

NOW = datetime(2026, 6, 1, tzinfo=UTC)
NOTE = Note(
    name="project_a",
    kind="project",
    about="tests",
    backstory="said so",
    when="2026-05-01T00:00:00Z",
    evidence=("s:1",),
    trust="stated",
    body="Tests run with make.",
)


def words(text: str) -> frozenset[str]:
    return frozenset(text.lower().split())


@pytest.mark.states("ME-33")
def test_notes_that_agree_are_left_alone() -> None:
    other = replace(NOTE, name="project_b", about="office", body="It is in Ulm.")
    assert consolidate([NOTE, other], NOW, words) == Consolidated((), {"project_a": NOTE, "project_b": other})


@pytest.mark.states("ME-35")
def test_equal_notes_become_one_with_the_evidence_of_all() -> None:
    same = replace(NOTE, name="project_b", body="tests run with make", evidence=("s:2",))
    (step,) = consolidate([NOTE, same], NOW, words).steps
    kept = replace(NOTE, evidence=("s:1", "s:2"), rev=2, supersedes=("project_b@1",))
    assert step == ConsolidationStep("2 notes say the same", (kept,), (replace(same, status="superseded", superseded_by="project_a@2"),))


@pytest.mark.states("ME-07", "ME-35")
def test_a_chain_of_corrections_leaves_the_last_value_active() -> None:
    values = [
        replace(NOTE, name=f"project_{number}", attribute="weight", body=f"{kg} kg", when=f"2026-05-0{number}T00:00:00Z")
        for number, kg in ((1, 85), (2, 100), (3, 95))
    ]
    result = consolidate(values, NOW, words)
    assert {name: note.body for name, note in result.notes.items()} == {"project_3": "95 kg"}


@pytest.mark.states("ME-30")
def test_contested_notes_both_stay_and_are_named() -> None:
    one, other = replace(NOTE, attribute="port", body="8080"), replace(NOTE, name="project_b", attribute="port", body="9090")
    result = consolidate([one, other], NOW, words)
    assert (result.steps, result.contested) == ((), (("project_a", "project_b"),))


@pytest.mark.states("ME-27", "ME-35")
def test_an_old_unused_note_of_little_weight_expires_but_not_a_pinned_or_a_used_one() -> None:
    old = replace(NOTE, when="2024-01-01T00:00:00Z")
    assert [note.name for note in consolidate([old], NOW, words).steps[0].past] == ["project_a"]
    for kept in (replace(old, pinned=True), replace(old, last_used="2026-05-30T00:00:00Z")):
        assert consolidate([kept], NOW, words).steps == ()


@pytest.mark.states("SG-66")
@pytest.mark.parametrize(
    ("factor", "kept"),
    [
        ("uses", {"uses": 2}),
        ("age", {"kind": "user", "name": "user_a"}),
        ("intensity", {"intensity": 1.0}),
        ("uniqueness", {"intensity": 1.0}),
    ],
)
def test_each_factor_of_importance_keeps_a_note_that_leaves_without_it(factor: str, kept: dict[str, object]) -> None:
    old = replace(NOTE, when="2026-02-01T00:00:00Z")
    assert [note.name for step in consolidate([old], NOW, words).steps for note in step.past] == ["project_a"]
    note = replace(old, **kept)
    assert consolidate([note], NOW, words).steps == ()
    (step,) = consolidate([note], NOW, words, weighing=replace(DEFAULT_WEIGHING, **{factor: 0.0})).steps
    assert [each.name for each in step.past] == [note.name]


@pytest.mark.states("SG-66")
def test_of_old_notes_that_say_nearly_the_same_the_least_important_leaves_and_the_last_one_stays() -> None:
    texts = ("the staging server of the shop is alpha now", "the staging server of the shop is alpha again")
    one, other = (
        replace(NOTE, name=f"user_{n}", kind="user", about=text, body=text, when=f"2025-12-0{n}T00:00:00Z")
        for n, text in enumerate(texts, 1)
    )
    result = consolidate([one, other], NOW, words)
    assert [note.name for step in result.steps for note in step.past] == ["user_1"]
    assert sorted(result.notes) == ["user_2"]


@pytest.mark.states("ME-31")
def test_compressible_near_duplicates_leave_and_one_stands_for_them() -> None:
    orders = (
        *(
            "deploys go out on friday at noon",
            "deploys go out at noon on friday",
            "on friday deploys go out at noon",
            "at noon on friday deploys go out",
        ),
    )
    near = [
        replace(NOTE, name=f"project_{number}", body=body, about="deploys", when="2026-03-10T00:00:00Z")
        for number, body in enumerate(orders)
    ]
    used = replace(near[0], uses=9, last_used="2026-05-31T00:00:00Z")
    (step,) = consolidate([used, *near[1:]], NOW, words).steps
    assert step.why == "project_0 stands for 3 notes"
    assert step.saved[0].stands_for == ("project_1", "project_2", "project_3")


def test_the_last_of_two_corrections_holds_in_a_thousand_histories_and_a_second_run_changes_nothing() -> None:
    rng = random.Random(11)
    for _ in range(1_000):
        times = sorted(rng.sample(range(1, 28), 3))
        values = rng.sample(range(1_000), 3)
        notes = [
            replace(
                NOTE, name=f"project_{rng.randrange(10**6)}", attribute="port", body=f"port {value}", when=f"2026-05-{day:02}T00:00:00Z"
            )
            for day, value in zip(times, values, strict=True)
        ]
        rng.shuffle(notes)
        result = consolidate(notes, NOW, words)
        assert [note.body for note in result.notes.values()] == [f"port {values[-1]}"]
        assert consolidate(result.notes.values(), NOW, words).steps == ()
