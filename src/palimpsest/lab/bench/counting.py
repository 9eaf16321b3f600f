"""How far the token estimate is off once it has learned from reported usage: against the exact tokenizer of a model family."""

from collections.abc import Callable, Iterator
from random import Random
from statistics import mean

from palimpsest.core.tokens import Calibration, estimate, learn
from palimpsest.lab.bench.bars import Bar, bar, peer_of
from palimpsest.lab.bench.peer_langchain import NAME, Langchain
from palimpsest.lab.bench.room import Room, optional
from palimpsest.lab.bench.texts import KINDS

_MODEL = "gpt-5.5"
_CALLS = 60


def measure_counting(room: Room, wanted: frozenset[str]) -> Iterator[Bar]:
    """`tokens_error`; null without the exact tokenizer."""
    room.tell("counting tokens")
    library = optional("rs_bpe.bpe")
    if library is None:
        yield bar("tokens_error", None)
        return
    exact: Callable[[str], int] = library.openai.o200k_base().count
    calls = list(_calls())
    errors: dict[str, list[float]] = {}
    calibration = Calibration()
    for kind, text in calls:
        raw, counted = estimate(text), exact(text)
        guess = raw * calibration.factor(_MODEL)
        errors.setdefault(kind, []).append(abs(guess - counted) / counted * 100)
        calibration = learn(calibration, _MODEL, raw, counted)
    langchain = Langchain.find(room)
    peer = langchain and mean(abs(langchain.count_text(text) - exact(text)) / exact(text) * 100 for _, text in calls)
    every = [error for some in errors.values() for error in some]
    yield bar("tokens_error", mean(every), peer_of(NAME, peer), **{kind: mean(some) for kind, some in errors.items()})


def _calls() -> Iterator[tuple[str, str]]:
    """Calls in which one kind of text outweighs the others, the kinds in turn but no session of one kind only."""
    random = Random(5)  # noqa: S311 - made-up calls keep no secret
    for number in range(_CALLS):
        main = list(KINDS)[number % len(KINDS)]
        others = [kind for kind in KINDS if kind != main]
        parts = [KINDS[main](random) for _ in range(6)] + [KINDS[kind](random) for kind in random.sample(others, 2)]
        yield main, "\n".join(parts)
