"""When the provider and we agree on what its cache did."""

import msgspec
import pytest
from every_case import every_case
from msgspec import Raw

from palimpsest.audit.cache import CacheCheck, cache_checks
from palimpsest.core.events import CacheDiagnosis, CallStarted, Event, ModelReplied, Usage

SAME, PENDING = CacheDiagnosis("same"), CacheDiagnosis("unknown")
CHANGED = CacheDiagnosis("changed", "system_changed", 30_000)


def check(
    expected: int, read: int, diagnosis: CacheDiagnosis | None, compared: str | None = "msg_1", purpose: str = "turn"
) -> list[CacheCheck]:
    params = {} if compared is None else {"compared_reply": compared}
    call = CallStarted("claude-opus-5", "anthropic", Raw(msgspec.json.encode(params)), cached=expected, purpose=purpose)
    reply = ModelReplied((), call=1, usage=Usage(input=9, cache_read=read), diagnosis=diagnosis, purpose=purpose)
    return list(cache_checks([Event(1, 0, 0, "", call), Event(2, 1, 0, "", reply)]))


@pytest.mark.states("PV-56")
@every_case(
    ("expected", "read", "diagnosis", "agrees"),
    [
        (50_000, 50_000, SAME, True),
        (50_000, 48_000, SAME, True),
        (50_000, 20_000, SAME, False),
        (0, 50_000, SAME, False),
        (0, 0, SAME, True),
        (50_000, 20_000, CHANGED, False),
        (20_000, 20_000, CHANGED, True),
        (20_000, 25_000, CHANGED, True),
        (50_000, 0, PENDING, None),
        (50_000, 0, None, None),
    ],
)
def test_a_named_change_must_have_been_expected_and_without_one_the_reads(
    expected: int, read: int, diagnosis: CacheDiagnosis | None, agrees: bool | None
) -> None:
    assert check(expected, read, diagnosis) == [CacheCheck(2, expected, read, diagnosis, agrees)]


def test_only_calls_of_a_turn_that_name_an_earlier_reply_are_compared() -> None:
    assert [check(50_000, 0, SAME, compared) for compared in (None, "")] == [[], []]
    assert check(50_000, 0, SAME, purpose="summary") == []
