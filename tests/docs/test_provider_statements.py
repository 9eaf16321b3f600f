"""Every statement about what providers demand has a test that carries its number."""

from itertools import chain

from stated_by import stated

# Sections by subject: bound thinking, threads, refused requests, usage, compaction, context editing, cache, changes without edits,
# reasoning that is dropped, cards, doors to other programs, ways of testing.
_SECTIONS = ((1, 19), (20, 23), (25, 33), (35, 38), (41, 48), (50, 52), (55, 57), (60, 66), (70, 73), (75, 78), (80, 84), (90, 92))
STATEMENTS = {f"PV-{number:02}" for number in chain.from_iterable(range(first, last + 1) for first, last in _SECTIONS)}


def test_every_statement_has_a_test_with_its_number() -> None:
    assert {code for codes in stated().values() for code in codes if code.startswith("PV-")} == STATEMENTS
