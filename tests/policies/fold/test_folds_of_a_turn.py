"""How many folds a turn may have, and what happens when it had them."""

import itertools

import pytest
from workplace import offline, reply, say, use, work

from palimpsest.agent.editing import run_policies
from palimpsest.core.events import CallStarted, EditRefused, Failed, ViewEdited
from palimpsest.core.items import Fold, Keep, Put, Text
from palimpsest.core.plans import Situation
from palimpsest.policies.fold import FoldFromLog
from palimpsest.policies.named import profile
from palimpsest.policies.profile import Profile
from palimpsest.policies.profiles import ThriftNumbers, with_numbers


@pytest.mark.states("PA-20")
def test_at_most_two_folds_happen_in_a_turn() -> None:
    session = work(Profile("ours", (FoldFromLog(),), profile("palimpsest").budget, strictness="full"))
    say(session, "read all of it")
    for number in range(70):
        use(session, f"c{number}", "Read", f'{{"file_path":"f{number}.py"}}', f"value_{number} = 1\n" * 400)
    for number in range(2):
        assert offline(session, run_policies(session, "before_call")).folded
        use(session, f"d{number}", "Read", f'{{"file_path":"g{number}.py"}}', f"more_{number} = 1\n" * 30_000)
    assert offline(session, run_policies(session, "before_call")).folded is False
    assert offline(session, run_policies(session, "asked")).folded


@pytest.mark.states("PA-20")
def test_a_long_turn_has_two_folds_and_then_goes_on_by_clearing() -> None:
    # Results live so long that clearing frees nothing before the turn had its folds.
    session = work(with_numbers(ThriftNumbers(patience=100.0, usual=0), {}))
    say(session, "read all of it")
    edited: list[ViewEdited] = []
    for number in range(600):
        use(session, f"c{number}", "Read", f'{{"file_path":"f{number}.py"}}', f"value_{number} = 1\n" * 400)
        edited += [
            event.body for event in offline(session, run_policies(session, "before_call")).edited if isinstance(event.body, ViewEdited)
        ]
        assert session.used < 160_000
    kinds = ["fold" if isinstance(body.edits[0], Fold) else "clear" for body in edited]
    assert kinds.count("fold") == 2
    assert kinds[-1] == "clear"


@pytest.mark.states("PA-20")
def test_where_words_alone_fill_the_room_a_turn_folds_once_more_because_nothing_could_be_sent() -> None:
    session = work(profile("palimpsest"))
    say(session, "think about it")
    folds: list[int] = []
    for number in range(500):
        reply(session, Text(f"thought {number}: " + "something else again " * 600))
        if offline(session, run_policies(session, "before_call")).folded:
            folds.append(number)
        assert session.used < 197_000
    assert len(folds) > 2
    assert all(later - former > 50 for former, later in itertools.pairwise(folds[1:]))


class Growing:
    """A policy that claims to shrink and does not."""

    name = "growing"
    moments = FoldFromLog().moments
    shrinks = True

    def plan(self, situation: Situation) -> tuple[Fold, ...]:
        items = situation.view.items
        return (
            Fold(items[0].id, items[-1].id, (Keep(items[0].id), Put("summary", Text("more words than there were " * 1_000), "evidence"))),
        )


@pytest.mark.states("PA-20")
def test_a_view_that_would_not_shrink_is_refused() -> None:
    session = work(Profile("ours", (Growing(),), profile("palimpsest").budget, strictness="full"))
    say(session, "go")
    use(session, "c1", "Read", '{"file_path":"a.py"}', "x = 1\n" * 50)
    event = offline(session, run_policies(session, "asked")).events[0]
    assert isinstance(event.body, EditRefused)
    assert event.body.why == "the view would not be smaller"


@pytest.mark.states("PA-18")
def test_on_overflow_clearing_what_is_dead_comes_first_and_a_fold_only_if_that_is_not_enough() -> None:
    for useful, folds in ((10, False), (60, True)):
        session = work(profile("palimpsest"))
        say(session, "read all of it")
        for number in range(useful):
            use(session, f"u{number}", "Agent", f'{{"prompt":"look at part_{number}_of_it"}}', f"part_{number}_of_it is fine\n" * 300)
        for number in range(60 - useful):
            use(session, f"c{number}", "Bash", f'{{"command":"make {number}"}}', f"line {number} of the output\n" * 300)
        session.log.append(CallStarted(session.card.name, "anthropic", estimate=session.counter.raw(session.log.view)))
        session.log.append(Failed("call", "too_long", "prompt is too long"))
        ran = offline(session, run_policies(session, "overflow"))
        assert (useful, ran.folded) == (useful, folds)
        assert session.used < 136_000
