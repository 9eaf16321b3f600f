"""Notes that contradict each other."""

import pytest
from msgspec.structs import replace

from palimpsest.memory.index_text import near_duplicates
from palimpsest.memory.note import Note
from palimpsest.memory.recall_terms import query_terms
from palimpsest.memory.weigh import NEAR_CONFLICT, Contested, Settled, chain_of, conflicts, supersede

NOTE = Note(
    name="user_a",
    kind="user",
    about="weight",
    backstory="said so",
    when="2026-05-01T00:00:00Z",
    evidence=("s:1",),
    trust="stated",
    body="85 kg",
    attribute="body.weight",
)


def words(text: str) -> frozenset[str]:
    return frozenset(text.lower().split())


def stems(text: str) -> frozenset[str]:
    return frozenset(query_terms(text))


LATER = replace(NOTE, name="user_b", body="95 kg", when="2026-05-02T00:00:00Z")


@pytest.mark.states("ME-29")
def test_the_newest_stated_value_of_an_attribute_wins_and_the_other_one_ends() -> None:
    (settled,) = conflicts([NOTE, LATER], words)
    assert settled == Settled(LATER, NOTE, "newer")
    winner, loser = supersede(LATER, NOTE)
    assert winner == replace(LATER, supersedes=("user_a@1",), rev=2)
    assert loser == replace(NOTE, status="superseded", superseded_by="user_b@2", valid_to="2026-05-02T00:00:00Z")


@pytest.mark.states("ME-29")
def test_values_of_a_set_do_not_conflict_and_those_of_a_history_do() -> None:
    assert conflicts([replace(NOTE, policy="set"), replace(LATER, policy="set")], words) == ()
    one, other = replace(NOTE, policy="history"), replace(LATER, policy="history")
    assert conflicts([one, other], words) == (Settled(other, one, "newer"),)


@pytest.mark.states("ME-30")
def test_an_observed_value_never_supersedes_a_stated_one() -> None:
    seen = replace(LATER, kind="project", name="project_b", trust="observed")
    assert conflicts([NOTE, seen], words) == (Settled(NOTE, seen, "stated"),)


@pytest.mark.states("ME-30")
def test_notes_of_equal_standing_are_contested() -> None:
    same_time = replace(LATER, when=NOTE.when)
    assert conflicts([NOTE, same_time], words) == (Contested(NOTE, same_time),)


def test_an_explicit_correction_wins_over_a_later_statement() -> None:
    assert conflicts([NOTE, LATER], words, frozenset({"user_a"})) == (Settled(NOTE, LATER, "corrected"),)


@pytest.mark.states("ME-28")
def test_other_persons_other_times_and_equal_values_do_not_conflict() -> None:
    assert conflicts([NOTE, replace(LATER, person="Ann")], words) == ()
    assert conflicts([NOTE, replace(LATER, body="85  KG")], words) == ()
    assert conflicts([replace(NOTE, valid_to="2026-05-02"), replace(LATER, valid_from="2026-05-02")], words) == ()


def test_notes_that_say_nearly_the_same_with_other_numbers_conflict() -> None:
    one = replace(NOTE, attribute="", about="rent", body="the rent of the office is 1,200 euro")
    other = replace(LATER, attribute="", about="rent", body="the rent of the office is 1,300 euro")
    assert conflicts([one, other], words) == (Settled(other, one, "newer"),)
    assert conflicts([one, replace(other, body="the rent of the office is 1,200 euro net")], words) == ()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("the staging port of the billing service on host ulm is 8080", "the staging port of the payment service on host ulm is 8081"),
        ("the address of host1 in the rack is 10.0.0.1", "the address of host2 in the rack is 10.0.0.2"),
        ("tests on node 18 listen on port 3000", "tests on node 20 listen on port 3001"),
        ("run the unit tests with pytest -n 2", "run the slow tests with pytest -n 4"),
        ("测试环境里计费服务的端口号是 8080", "测试环境里支付服务的端口号是 8081"),
    ],
)
def test_statements_of_one_pattern_about_two_things_do_not_conflict(first: str, second: str) -> None:
    one, other = (replace(note, attribute="", about="a", body=body) for note, body in ((NOTE, first), (LATER, second)))
    assert near_duplicates([one, other], stems, NEAR_CONFLICT)[one.name] == {other.name}
    assert conflicts([one, other], stems) == ()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("the staging port of the billing service is 8080", "the staging port of the billing service is 8081 now, not 8080"),
        ("the release goes out on 2026-05-04", "the release goes out on 2026-06-11"),
        ("the address of the proxy in the rack is 10.0.0.1", "the address of the proxy in the rack is 10.0.0.2"),
        ("deploys go out at noon", "deploys go out at 12:30"),
        ("计费服务的端口号是 8080", "计费服务的端口号是 8081"),
    ],
)
def test_another_number_of_one_thing_replaces_the_older(first: str, second: str) -> None:
    one, other = (replace(note, attribute="", about="a", body=body) for note, body in ((NOTE, first), (LATER, second)))
    assert conflicts([one, other], stems) == (Settled(other, one, "newer"),)


@pytest.mark.states("ME-07")
def test_a_chain_of_three_corrections_can_be_told_in_order() -> None:
    third = replace(NOTE, name="user_c", body="100 kg", when="2026-05-03T00:00:00Z")
    second, first = supersede(LATER, NOTE)
    last, second = supersede(third, second)
    versions = {each.revision: each for each in (first, second, last)}
    assert [each.body for each in chain_of(last, versions)] == ["100 kg", "95 kg", "85 kg"]
    assert [each.status for each in chain_of(last, versions)] == ["active", "superseded", "superseded"]
