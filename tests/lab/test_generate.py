from collections import Counter

from generated import FOLD_AT, generate

from palimpsest.core.events import Body, ModelReplied, SessionOpened, ToolReturned, UserSaid, ViewEdited
from palimpsest.core.items import Text, unanswered_calls
from palimpsest.core.lines import encode_body
from palimpsest.core.log import Log
from palimpsest.core.token_counter import TokenCounter
from palimpsest.core.tokens import palimpsest_size
from palimpsest.stores.in_memory import FixedClock, MemorySessions


def _log(bodies: list[Body]) -> Log:
    log = Log.create(MemorySessions(), SessionOpened("made-up"), FixedClock(1_000, 1_000))
    for body in bodies:
        log.append(body)
    return log


def test_a_seed_always_gives_the_same_session_and_another_seed_another() -> None:
    once, again, other = ([encode_body(body) for body in generate(seed, 200)] for seed in (7, 7, 8))

    assert once == again
    assert once != other
    assert len(once) == 200


def test_a_short_session_is_the_beginning_of_a_longer_one() -> None:
    assert [encode_body(body) for body in generate(3, 120)] == [encode_body(body) for body in generate(3, 400)][:120]


def test_a_long_session_is_accepted_by_a_log_and_always_fits_its_window() -> None:
    bodies = list(generate(1, 3_000))
    log = _log(bodies)

    assert sum(isinstance(body, ViewEdited) for body in bodies) >= 5
    assert TokenCounter(palimpsest_size).total(log.view) < FOLD_AT * 1.3


def test_every_call_is_answered_except_perhaps_the_last_ones() -> None:
    log = _log(list(generate(5, 1_000, fold_at=None)))

    assert len(unanswered_calls(log.view.items)) <= 2


def test_sessions_are_shaped_like_real_ones() -> None:
    bodies = list(generate(11, 4_000))
    results = [body for body in bodies if isinstance(body, ToolReturned)]
    asked = [part.text for body in bodies if isinstance(body, UserSaid) for part in body.parts if isinstance(part, Text)]
    size = sum(len(encode_body(body)) for body in bodies) / len(bodies)

    assert {body.tool for body in results} == {"read", "grep", "edit", "bash"}
    assert Counter(body.exit for body in results).keys() == {None, 0, 1}
    assert any(body.result.error for body in results)
    assert 0 < sum(not text.isascii() for text in asked) < len(asked) / 3
    assert 1_500 < size < 4_000
    assert all(body.usage.prompt > 0 for body in bodies if isinstance(body, ModelReplied))


def test_a_session_that_is_full_before_it_has_old_turns_folds_later() -> None:
    bodies = list(generate(1, 400, fold_at=5_000))
    assert len(bodies) == 400
    assert any(isinstance(body, ViewEdited) for body in bodies)
