"""Looking costs next to nothing: how much work a plan is for a view of 200k tokens."""

import time
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial

import pytest
from msgspec import structs
from workplace import offline, say, use, work

from palimpsest.core.policy import Policy
from palimpsest.core.situation import Situation
from palimpsest.engine.policies import run_policies
from palimpsest.engine.session import Session
from palimpsest.profiles.named import PROFILES, profile


def full(name: str) -> Session:
    """A hundred files of 2,000 tokens each, most of them long out of use."""
    session = work(profile(name))
    say(session, "read all of it, and never touch a.py")
    for number in range(100):
        use(session, f"c{number}", "Read", f'{{"file_path":"f{number}.py"}}', f"value_{number} = 1\n" * 560)
    return session


def work_of(step: Callable[[], object], times: int = 20) -> float:
    """The least work that a step took, in seconds; what else the machine does in that time does not count."""
    took = []
    for _ in range(times):
        start = time.process_time()
        step()
        took.append(time.process_time() - start)
    return min(took)


def plan(policy: Policy, situation: Situation) -> None:
    """What a plan costs: all of it, or up to the first thing that it wants from outside."""
    made = policy.plan(situation)
    if isinstance(made, Generator):
        next(made, None)


@pytest.mark.parametrize("name", PROFILES)
def test_planning_costs_at_most_a_millisecond_for_a_view_of_200k_tokens(name: str) -> None:
    session = full(name)
    assert session.counter.total(session.log.view) >= 180_000
    for policy in session.profile.policies:
        situation = session.situation("before_call")
        # A fold that is made is no longer a look: it has a limit of its own.
        if "before_call" in policy.moments and policy.name != "fold":
            assert work_of(partial(plan, policy, situation)) <= 0.001, policy.name


@pytest.mark.parametrize("name", PROFILES)
def test_resting_costs_at_most_a_millisecond_for_a_view_of_200k_tokens(name: str) -> None:
    session = full(name)
    roomy = structs.replace(session.card, window=3_000_000, input_limit=None)
    session.switch(roomy)
    for policy in session.profile.policies:
        for moment in policy.moments - {"asked", "overflow"}:
            situation = replace(session.situation(moment, used=40_000), rent=0.0)
            assert work_of(partial(plan, policy, situation)) <= 0.001, (policy.name, moment)


# An automatic cache can be read up to every item, so that there is more to compare.
@pytest.mark.parametrize(("model", "count"), [("claude-sonnet-4-5", 800), ("gpt-5", 500)])
@pytest.mark.parametrize("wait", [1, 400_000], ids=["warm", "cold"])
def test_hundreds_of_small_dead_results_make_it_no_slower(model: str, count: int, wait: int) -> None:
    session = work(profile("palimpsest"), model)
    for number in range(count):
        use(session, f"c{number}", "Bash", f'{{"command":"make t{number}"}}', f"value_{number} = 1\n" * (38_400 // count))
    assert session.counter.total(session.log.view) >= 180_000
    now = session.situation("before_call", used=150_000)
    uses = {name: structs.replace(use, died=use.died or 2) for name, use in now.uses.items()}
    situation = replace(now, now=now.now + wait, uses=uses)
    assert len(uses) == count
    policy = session.profile.policies[0]
    assert work_of(partial(policy.plan, situation), 200) <= 0.001


def test_pa_15_a_fold_of_200k_tokens_takes_at_most_50_ms_with_its_gate_price_and_loss() -> None:
    sessions = [full("palimpsest") for _ in range(3)]
    assert work_of(lambda: offline(session := sessions.pop(), run_policies(session, "asked")), 3) <= 0.05
    session = full("palimpsest")
    assert offline(session, run_policies(session, "asked")).folded
