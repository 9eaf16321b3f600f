"""Superseded reads and acknowledgements are masked when it frees enough tokens or nothing is cached."""

import pytest
from situations import prefix, situation, used, words

from palimpsest.core.items import Mask
from palimpsest.core.plans import Cache, CachedPrefix, Outcome, Use, proposal_of
from palimpsest.policies.clear import Supersede

READ = '{"file_path":"a.py"}'
ITEMS = (
    words("1.0", 10_000),
    *used(2, "Read", READ, 1_520),
    *used(4, "Edit", READ, 520),
    *used(6, "Bash", "{}", 9_000),
    *used(8, "Read", READ, 1_500),
)
USES = {
    "3.0": Use(1, superseded=2, died=5, kind="read"),
    "5.0": Use(2, died=3, kind="acknowledgement"),
    "7.0": Use(3, died=11, kind="other"),
    "9.0": Use(4, kind="read"),
}


def cleared(outcome: Outcome) -> tuple[str, ...]:
    return tuple(name for edit in proposal_of(outcome).edits if isinstance(edit, Mask) for name in edit.ids)


def test_superseded_reads_and_acknowledgements_are_cleared_and_nothing_else() -> None:
    now = situation(ITEMS, uses=USES, prefixes=[prefix("9.0", 20_000)], calls=20)
    proposal = proposal_of(Supersede().plan(now))
    assert proposal.edits == (Mask(("3.0",), "[Read a.py: 1520 tokens, id 3.0]"), Mask(("5.0",), "[Edit a.py: 520 tokens, id 5.0]"))
    assert proposal.why == "2 superseded results, 2000 tokens"


@pytest.mark.parametrize(
    ("gain", "prefixes", "expected"),
    [
        (2_001, [prefix("9.0", 20_000)], ()),
        (2_001, [prefix("9.0", 20_000, age=300_000)], ("3.0", "5.0")),
        (2_001, [], ("3.0", "5.0")),
    ],
)
def test_a_warm_cache_is_broken_only_for_enough_tokens(gain: int, prefixes: list[CachedPrefix], expected: tuple[str, ...]) -> None:
    assert cleared(Supersede(gain=gain).plan(situation(ITEMS, uses=USES, prefixes=prefixes, calls=20))) == expected


def test_it_rests_after_an_edit_and_when_nothing_is_superseded() -> None:
    assert Supersede().plan(situation(ITEMS, uses=USES, calls=20, cache=Cache(edited=True))) == ()
    assert Supersede().plan(situation(ITEMS, uses={"7.0": USES["7.0"]}, calls=20)) == ()
