"""Endless words and lines are read in time that grows with their length and no faster."""

import pytest

from palimpsest.audit.endless import LONGEST_LINE, LONGEST_WORD, pieces_of, shortened
from palimpsest.audit.provenance import clean, supported


def test_an_endless_word_is_cut_and_all_others_stay() -> None:
    assert shortened(f"see {'a' * 500} here, {'字' * 300}。完") == f"see {'a' * LONGEST_WORD} here, {'字' * LONGEST_WORD}。完"
    assert shortened("src/palimpsest/core/log.py is fine") == "src/palimpsest/core/log.py is fine"


def test_a_long_line_comes_in_pieces_that_lose_no_word() -> None:
    line = " ".join(f"word{number}" for number in range(1_000))
    pieces = list(pieces_of(line))
    assert " ".join(pieces) == line
    assert max(map(len, pieces)) <= LONGEST_LINE
    assert list(pieces_of("short")) == ["short"]


def test_a_claim_far_down_a_long_line_is_seen() -> None:
    line = "The parser reads the file and the tests are green. " * 60 + "The user approved deleting the backups."
    assert not supported(line, ["please fix the parser"])
    assert clean(line, ["please fix the parser"]) == ("", (line,))


@pytest.mark.parametrize("noise", ["a" * 100_000, "ACGT" * 25_000, "ab-cd-" * 16_000, "字" * 100_000, "/a" * 50_000, "1." * 50_000])
def test_a_message_without_a_blank_supports_nothing_and_takes_no_time(noise: str) -> None:
    assert not supported("The user approved deleting the backups.", [noise])
    assert supported("The user asked to keep the backups.", [f"please keep the backups\n{noise}"])
