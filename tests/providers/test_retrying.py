import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import pytest
from every_case import every_case

from palimpsest.core.deltas import Delta, TextDelta, UsageDelta
from palimpsest.core.errors import BadInput, ConnectionLost, PalimpsestError, PromptTooLong, ProviderError, StreamCut, TimedOut, WireError
from palimpsest.core.events import ModelReplied, Usage
from palimpsest.core.ports import closing
from palimpsest.providers.retrying import RetryingProvider, RetryPolicy, is_transient, retry_delay
from palimpsest.providers.scripted import BrokenReply, Scripted, StalledReply

BUSY = ProviderError("overloaded", status=529)
LIMITED = ProviderError("slow down", status=429, retry_after=7.0)
PLAIN = RetryPolicy(retries=3, first=1.0, longest=3.0, total=60.0, jitter=0.0)


@dataclass(frozen=True)
class Letter:
    wire: str = "anthropic"
    body: bytes = b"{}"


@dataclass
class Sleeper:
    """Takes no time, and keeps how long it was asked to sleep."""

    slept: list[float] = field(default_factory=list)

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)


@every_case(
    ("error", "passes"),
    [
        (BUSY, True),
        (LIMITED, True),
        (ProviderError("no", status=500), True),
        (ProviderError("no", status=503), True),
        (ConnectionLost("gone"), True),
        (StreamCut("cut"), True),
        (PromptTooLong("too long", status=500), False),
        (ProviderError("no", status=400), False),
        (ProviderError("no", status=401), False),
        (ProviderError("no", status=404), False),
        (ProviderError("no", status=408), True),
        (ProviderError("no", status=409), True),
        (TimedOut("silent"), True),
        (ProviderError("silent"), False),
        (WireError("no JSON"), False),
        (BadInput("no wire"), False),
    ],
)
def test_only_transient_errors_are_retried(error: PalimpsestError, passes: bool) -> None:
    assert is_transient(error) is passes
    assert (retry_delay(error, 1) is not None) is passes


@every_case(
    ("error", "attempt", "waited", "wait"),
    [
        (BUSY, 1, 0.0, 1.0),
        (BUSY, 2, 1.0, 2.0),
        (BUSY, 3, 3.0, 3.0),
        (BUSY, 4, 6.0, None),
        (BUSY, 3, 58.0, None),
        (LIMITED, 1, 0.0, 7.0),
        (LIMITED, 3, 14.0, 7.0),
        (LIMITED, 1, 55.0, None),
        (ProviderError("slow down", status=429, retry_after=61.0), 1, 0.0, None),
        (ProviderError("slow down", status=429, retry_after=0.0), 1, 0.0, 0.0),
    ],
)
def test_the_delay_doubles_or_is_what_the_provider_requests_and_both_are_limited(
    error: ProviderError, attempt: int, waited: float, wait: float | None
) -> None:
    assert retry_delay(error, attempt, PLAIN, waited=waited) == wait


@pytest.mark.parametrize(
    ("error", "least", "most"), [(BUSY, 0.75, 1.25), (LIMITED, 7.0, 8.75), (ProviderError("", status=429, retry_after=59.0), 59.0, 60.0)]
)
def test_the_jitter_never_shortens_a_requested_delay_nor_exceeds_the_limit(error: ProviderError, least: float, most: float) -> None:
    policy = RetryPolicy(retries=3, first=1.0, total=60.0, jitter=0.25)
    assert (retry_delay(error, 1, policy, chance=0.0), retry_delay(error, 1, policy, chance=1.0)) == (least, most)


def ask(script: Scripted, sleeper: Sleeper, policy: RetryPolicy = PLAIN) -> list[Delta | ModelReplied]:
    async def collect() -> list[Delta | ModelReplied]:
        provider = RetryingProvider(script, policy, sleep=sleeper, chance=lambda: 0.5)
        return [each async for each in provider.stream(Letter())]

    return asyncio.run(collect())


def test_it_retries_until_a_reply_arrives() -> None:
    script, sleeper = Scripted(BUSY, LIMITED, ConnectionLost("gone"), "hello"), Sleeper()
    got = ask(script, sleeper)
    assert got[:2] == [UsageDelta(Usage(input=1)), TextDelta("hello")]
    assert isinstance(got[-1], ModelReplied)
    assert sleeper.slept == [1.0, 7.0, 3.0]
    assert len(script.requests) == 4


def test_the_last_error_is_raised_after_the_last_retry() -> None:
    last = ProviderError("still overloaded", status=529)
    script, sleeper = Scripted(BUSY, BUSY, BUSY, last, "never"), Sleeper()
    with pytest.raises(ProviderError, match="still overloaded"):
        ask(script, sleeper)
    assert (sleeper.slept, script.remaining) == ([1.0, 2.0, 3.0], 1)


def test_the_sum_of_the_delays_is_limited() -> None:
    script, sleeper = Scripted(LIMITED, LIMITED, "never"), Sleeper()
    with pytest.raises(ProviderError, match="slow down"):
        ask(script, sleeper, RetryPolicy(total=10.0, jitter=0.0))
    assert sleeper.slept == [7.0]


@pytest.mark.parametrize("error", [PromptTooLong("too long", gap=7), ProviderError("bad key", status=401)])
def test_a_permanent_error_is_raised_immediately(error: ProviderError) -> None:
    script, sleeper = Scripted(error, "never"), Sleeper()
    with pytest.raises(type(error)):
        ask(script, sleeper)
    assert (sleeper.slept, script.remaining) == ([], 1)


@pytest.mark.parametrize("after", [1, 2])
def test_there_is_no_retry_after_the_first_delta(after: int) -> None:
    script, sleeper = Scripted(BrokenReply("hello", after, BUSY), "never"), Sleeper()
    with pytest.raises(ProviderError, match="overloaded"):
        ask(script, sleeper)
    assert (sleeper.slept, script.remaining) == ([], 1)


def test_a_stream_that_breaks_before_its_first_delta_is_retried() -> None:
    script, sleeper = Scripted(BrokenReply("hello", 0), "hello"), Sleeper()
    assert ask(script, sleeper)[1] == TextDelta("hello")
    assert sleeper.slept == [1.0]


def test_closing_it_closes_the_wrapped_stream() -> None:
    async def close() -> list[str]:
        closed: list[str] = []

        class Watched:
            async def stream(self, request: object) -> AsyncGenerator[Delta | ModelReplied, None]:
                try:
                    yield TextDelta("one")
                    yield TextDelta("two")
                finally:
                    closed.append("closed")

        async with closing(RetryingProvider(Watched()).stream(Letter())) as stream:
            assert await anext(stream) == TextDelta("one")
        return closed

    assert asyncio.run(close()) == ["closed"]


def test_cancelling_a_wait_raises_nothing_else() -> None:
    async def cancel() -> int:
        stall = StalledReply("never", 0)
        script = Scripted(BUSY, stall)
        sleeping = asyncio.Event()

        async def sleep(seconds: float) -> None:
            sleeping.set()
            await asyncio.Event().wait()

        waiting = asyncio.ensure_future(anext(RetryingProvider(script, sleep=sleep).stream(Letter())))
        await sleeping.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return script.remaining

    assert asyncio.run(cancel()) == 1
