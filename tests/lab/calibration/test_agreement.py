import pytest
from corpus import CORPUS, WITHOUT
from recorded import log_of, replied, said

from pal.replay.recording import load_all
from pal_lab.cost.calibration import SessionAgreement, agreement_of, compare_cache
from palimpsest.core.events import Usage
from palimpsest.core.items import Text

YES = Text("Yes.", "assistant")


def test_a_cache_that_does_as_the_rules_say_agrees_to_the_token() -> None:
    log = log_of(
        *said(0, "one " * 2_000),
        *replied(1, YES, usage=Usage(0, 0, 12_000, 0, 5)),
        *said(60, "two"),
        *replied(61, YES, usage=Usage(0, 12_000, 20, 0, 5)),
        *said(500, "three"),
        *replied(501, YES, usage=Usage(0, 0, 12_040, 0, 5)),
        *said(560, "four"),
        *replied(561, YES, usage=Usage(0, 12_040, 15, 0, 5)),
    )

    assert compare_cache("s", "claude", log.events()) == SessionAgreement("s", "claude", 4, 24_040, 24_040, 0.0, 0.0)


def test_entries_that_were_written_for_an_hour_last_for_an_hour() -> None:
    log = log_of(
        *said(0, "one " * 2_000),
        *replied(1, YES, usage=Usage(0, 0, 0, 12_000, 5)),
        *said(3_000, "two"),
        *replied(3_001, YES, usage=Usage(0, 12_000, 0, 20, 5)),
    )

    reported = compare_cache("s", "claude", log.events())
    assert reported is not None
    assert reported.error == 0.0


def test_usage_that_the_rules_do_not_explain_counts_as_error() -> None:
    log = log_of(
        *said(0, "one " * 2_000),
        *replied(1, YES, usage=Usage(0, 0, 12_000, 0, 5)),
        *said(60, "two"),
        *replied(61, YES, usage=Usage(0, 6_000, 6_020, 0, 5)),
    )

    assert compare_cache("s", "claude", log.events()) == SessionAgreement("s", "claude", 2, 6_000, 12_000, 1.0, 1.0)


def test_a_session_that_reports_no_cache_says_nothing() -> None:
    assert compare_cache("s", "claude", log_of(*said(0, "one"), *replied(1, YES, usage=Usage(input=30))).events()) is None


def test_the_median_is_that_of_sessions_of_one_format() -> None:
    rows = [
        SessionAgreement(str(number), form, 1, 1, 1, error, 0.0)
        for number, (form, error) in enumerate((("a", 0.1), ("a", 0.3), ("b", 0.5)))
    ]

    assert agreement_of(rows).median == {"a": 0.2, "b": 0.5}


@pytest.mark.skipif(not CORPUS.is_dir(), reason=WITHOUT)
def test_on_recorded_claude_sessions_the_median_error_of_cache_reads_is_below_two_percent() -> None:
    taken = load_all([CORPUS / "claude-code"])
    reported = agreement_of([one for each in taken if (one := compare_cache(each.id, each.format, each.events)) is not None])

    assert len(reported.sessions) >= 15
    assert reported.median["claude"] <= 0.02, reported
