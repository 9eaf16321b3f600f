"""Cursors of jobs: they move with runs that end well, and follow the path."""

import msgspec
from histories import new_log
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.events import (
    TURN,
    Body,
    CallStarted,
    Event,
    Failed,
    Interrupted,
    JobRan,
    ModelReplied,
    Rewound,
    SessionOpened,
    Titled,
    TurnEnded,
    UserSaid,
)
from palimpsest.core.items import Text
from palimpsest.core.ledger import JobCursors, JobState, JobStates, job_purpose
from palimpsest.core.log import Log
from palimpsest.stores.in_memory import FixedClock, MemorySessions

SAID = UserSaid((Text("go on"),))


def _states(*bodies: Body) -> JobStates:
    return _projection(*bodies).value()


def _projection(*bodies: Body) -> JobCursors:
    projection = JobCursors()
    for seq, body in enumerate(bodies):
        projection.take(Event(seq, seq - 1, 1_000 + seq, "", body))
    return projection


def test_a_job_that_never_ran_lags_behind_the_whole_conversation() -> None:
    states = _states(SessionOpened("s"), SAID, TurnEnded())
    assert (states.of("titles"), states.lag("titles")) == (JobState(), 3)


def test_a_run_that_ends_well_moves_the_cursor() -> None:
    states = _states(SAID, JobRan("titles", 0, took_ms=7))
    assert states == JobStates(0, {"titles": JobState(0, 1_001, "done", took_ms=7, repeats=1)})
    assert states.lag("titles") == 0


def test_a_run_that_fails_or_is_skipped_or_cancelled_leaves_the_cursor_whatever_it_claims() -> None:
    for status in ("failed", "skipped", "cancelled"):
        ran = JobRan("extract", 99, status, "no")
        state = _states(SAID, JobRan("extract", 0), SAID, ran).of("extract")
        assert state == JobState(0, 1_003, status, "no", failures=int(status == "failed"))


def test_failures_count_in_a_row_until_a_run_ends_well() -> None:
    failed, cancelled = JobRan("extract", -1, "failed"), JobRan("extract", -1, "cancelled")
    assert _states(SAID, failed, cancelled, failed).of("extract").failures == 2
    assert _states(SAID, failed, failed, JobRan("extract", 0)).of("extract").failures == 0


def test_what_jobs_cause_is_no_news_for_jobs() -> None:
    purpose = job_purpose("titles")
    own = (
        CallStarted("m", "chat", purpose=purpose),
        ModelReplied((), call=1, purpose=purpose),
        Failed("call", "provider", call=1, purpose=purpose),
        Interrupted(1, purpose=purpose),
        Titled("A title", by="titles"),
        JobRan("titles", 0),
    )
    assert _states(SAID, *own).newest == 0
    assert _states(SAID, CallStarted("m", "chat", purpose=TURN)).newest == 1


def test_repeats_count_until_the_conversation_goes_on() -> None:
    ran = JobRan("keep_alive", 0)
    assert _states(SAID, ran, ran).of("keep_alive").repeats == 2
    assert _states(SAID, ran, ran, SAID).of("keep_alive").repeats == 0


def test_after_a_rewind_the_cursor_is_that_of_the_path() -> None:
    log = new_log()
    log.append(SAID)
    log.append(JobRan("extract", 1))
    log.append(SAID)
    log.append(JobRan("extract", 3))
    assert (log.jobs.of("extract").cursor, log.jobs.lag("extract")) == (3, 0)
    log.append(Rewound(2))
    assert (log.jobs.of("extract").cursor, log.jobs.lag("extract")) == (1, 4)
    log.append(Rewound(1))
    assert log.jobs.of("extract") == JobState()


def test_a_fork_starts_with_the_cursors_of_its_base() -> None:
    store = MemorySessions()
    log = new_log(store)
    log.append(SAID)
    log.append(JobRan("extract", 1))
    log.append(SAID)
    log.append(JobRan("extract", 3))
    forks = (log.fork(store, "now").jobs, log.fork(store, "then", 3).jobs)
    assert [fork.of("extract").cursor for fork in forks] == [3, 1]


BODIES = st.lists(
    st.one_of(
        st.just(SAID),
        st.just(TurnEnded()),
        st.just(Titled("x")),
        st.builds(
            JobRan,
            st.sampled_from(["a", "b"]),
            st.integers(0, 9),
            st.sampled_from(["done", "failed", "skipped", "cancelled"]),
            st.text("x"),
        ),
        st.builds(Rewound, st.just(0)),
    )
)


@given(BODIES)
def test_rebuilt_states_equal_the_live_ones(bodies: list[Body]) -> None:
    store = MemorySessions()
    log = new_log(store)
    for number, body in enumerate(bodies):
        log.append(body)
        if number == 3:
            log.checkpoint()
    live = log.jobs
    log.close()
    assert Log.open(store, "s", FixedClock(1, 1)).jobs == live


@given(BODIES, st.integers(0, 9))
def test_a_snapshot_goes_on_as_if_it_had_seen_everything(bodies: list[Body], cut: int) -> None:
    bodies = [body for body in bodies if not isinstance(body, Rewound)]
    whole, restored = _projection(*bodies), JobCursors()
    restored.restore(_projection(*bodies[:cut]).snapshot())
    for seq, body in enumerate(bodies[cut:], min(cut, len(bodies))):
        restored.take(Event(seq, seq - 1, 1_000 + seq, "", body))
    assert restored.value() == whole.value()
    assert msgspec.json.decode(whole.snapshot(), type=JobStates) == whole.value()
