"""Notes that say the same, or nearly."""

import random

import pytest
from msgspec.structs import replace

from palimpsest.memory.index_text import Cluster, claim_of, clusters, merged, near_duplicates, overlap
from palimpsest.memory.note import Note

NOTE = Note(
    name="project_a",
    kind="project",
    about="x",
    backstory="said so",
    when="2026-05-29T00:00:00Z",
    evidence=("s:1",),
    trust="stated",
    body="x",
)


def words(text: str) -> frozenset[str]:
    return frozenset(text.lower().split())


def note(name: str, body: str, **more: object) -> Note:
    return replace(NOTE, name=name, about=body[:150], body=body, **more)


def test_equal_claims_are_merged_with_all_evidence_and_the_newest_time() -> None:
    one = note("project_a", "Tests run with `make test`.", uses=2, valid_from="2026-02-01")
    other = note(
        "project_b", "tests run with make test", when="2026-05-30T00:00:00Z", evidence=("s:2", "s:1"), uses=1, valid_from="2026-01-01"
    )
    assert claim_of(one) == claim_of(other)
    assert merged([other, one]) == replace(one, evidence=("s:2", "s:1"), when="2026-05-30T00:00:00Z", uses=3, valid_from="2026-01-01")


@pytest.mark.states("ME-28")
def test_notes_that_differ_only_in_person_are_not_merged_and_not_near() -> None:
    one, other = note("project_a", "likes green tea", person="Ann"), note("project_b", "likes green tea", person="Bob")
    assert claim_of(one) != claim_of(other)
    assert near_duplicates([one, other], words) == {"project_a": frozenset(), "project_b": frozenset()}


@pytest.mark.states("ME-26")
def test_superseded_notes_are_no_duplicates() -> None:
    one, other = note("project_a", "likes green tea"), note("project_b", "likes green tea", status="superseded")
    assert near_duplicates([one, other], words) == {"project_a": frozenset()}


@pytest.mark.states("ME-31")
def test_of_three_near_duplicates_the_newest_stands_for_the_others_names_them_and_keeps_their_evidence() -> None:
    texts = ["deploys go out on friday at noon", "deploys go out on friday at night", "deploys go out on friday at noon sharp"]
    days = ("2026-05-02T00:00:00Z", "2026-05-09T00:00:00Z", "2026-05-05T00:00:00Z")
    group = [note(f"project_{at}", text, evidence=(f"s:{at}",), when=days[at]) for at, text in enumerate(texts)]
    alone = note("project_z", "the office is in Ulm")
    near = near_duplicates([*group, alone], words)
    (found,) = clusters([*group, alone], near, words)
    assert found == Cluster(group[1], (group[0], group[2]))
    standing = found.standing_for_all()
    assert (standing.level, standing.stands_for, standing.evidence) == ("representative", ("project_0", "project_2"), ("s:1", "s:0", "s:2"))
    assert clusters(group[:2], near_duplicates(group[:2], words), words) == ()


@pytest.mark.states("ME-27")
def test_a_pinned_note_is_in_no_cluster() -> None:
    group = [note(f"project_{place}", "deploys go out on friday", pinned=place == 0) for place in range(3)]
    assert clusters(group, near_duplicates(group, words), words) == ()


def test_statements_of_one_pattern_about_different_things_have_none_that_stands_for_all() -> None:
    names = (("billing", "ann"), ("search", "bob"), ("login", "cid"), ("mail", "dan"))
    pattern = "the owner of the {} module in the repository of the platform team is {}, ask before a merge"
    group = [note(f"project_{place}", pattern.format(*each)) for place, each in enumerate(names)]
    near = near_duplicates(group, words)
    assert {len(others) for others in near.values()} == {3}
    assert clusters(group, near, words) == ()


def test_all_pairs_with_enough_overlap_are_found() -> None:
    rng = random.Random(7)
    vocabulary = [f"w{number}" for number in range(12)]
    notes = [note(f"project_{number}", " ".join(rng.sample(vocabulary, rng.randint(1, 8)))) for number in range(60)]
    expected = {
        one.name: frozenset(
            other.name for other in notes if other.name != one.name and overlap(words(one.body + " " + one.about), words(other.body)) >= 0.5
        )
        for one in notes
    }
    assert near_duplicates(notes, words, 0.5) == expected
