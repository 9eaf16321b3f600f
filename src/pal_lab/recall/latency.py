"""The latency of one query in an index of 50,000 long units, and the time that recall adds to the start of a turn."""

import asyncio
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pal_lab.recall.data import EvaluationData, read_conversations, read_data
from palimpsest.agent.agent import Agent
from palimpsest.core.errors import BadInput
from palimpsest.core.items import Text, Value
from palimpsest.memory.changes import AcceptedChange
from palimpsest.memory.note import Note
from palimpsest.memory.note_index import NoteIndex
from palimpsest.memory.recall_index import RecallIndex, decode_index, encode_index
from palimpsest.memory.recall_ranking import rank
from palimpsest.memory.recall_terms import RecallUnit
from palimpsest.memory.recalling import NoteRecall
from palimpsest.memory.session_memory import SessionMemory, session_memory
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.home import Home
from palimpsest.stores.memory_config import MemoryConfig

UNITS: Final = 50_000
WORDS_A_MESSAGE: Final = 275
QUERIES: Final = 400
P95_LIMIT_MS, WORST_LIMIT_MS = 10.0, 50.0
_SESSION_UNITS: Final = 20
_SEED: Final = 14
# One unit in three has a word that few others have, as identifiers are.
_RARE_SHARE, _RARE_WORDS = 0.33, 20_000


class Latency(Value, frozen=True):
    """Milliseconds a query, by the clock and of processor time, which other programs on the machine do not change."""

    units: int
    queries: int
    build_s: float
    p50_ms: float
    p95_ms: float
    worst_ms: float
    p95_cpu_ms: float
    worst_cpu_ms: float
    seed: int = _SEED

    @property
    def ok(self) -> bool:
        """Whether the limits hold, by the clock."""
        return self.p95_ms < P95_LIMIT_MS and self.worst_ms <= WORST_LIMIT_MS


def measure_latency(path: Path, *, units: int = UNITS, queries: int = QUERIES, announce: Callable[[str], None] = lambda _: None) -> Latency:
    """Measure queries over units that are made of turns of a file in the format of LoCoMo, joined at random to 275 words each.

    Raises `BadInput` if the file cannot be read. Needs about 8 kB of memory a unit.
    """
    data = read_data(path)
    chance = random.Random(_SEED)  # noqa: S311 - the same units in every run
    announce(f"indexing {units:,} units of {WORDS_A_MESSAGE} words")
    begun = time.perf_counter()
    index = _index(data, units, chance)
    built = time.perf_counter() - begun
    questions = [question.text for conversation in data.conversations for question in conversation.questions]
    chosen = [chance.choice(questions) for _ in range(queries)]
    announce(f"asking {queries:,} queries")
    clock, processor = _times(index, chosen)
    return Latency(
        units=units,
        queries=queries,
        build_s=round(built, 1),
        p50_ms=quantile(clock, 0.5),
        p95_ms=quantile(clock, 0.95),
        worst_ms=quantile(clock, 1.0),
        p95_cpu_ms=quantile(processor, 0.95),
        worst_cpu_ms=quantile(processor, 1.0),
    )


def _index(data: EvaluationData, units: int, chance: random.Random) -> RecallIndex:
    turns = [(unit.text, len(unit.text.split())) for conversation in data.conversations for unit in conversation.units]
    index = RecallIndex()
    for number in range(units):
        texts: list[str] = [f"id{chance.randrange(_RARE_WORDS)}"] if chance.random() < _RARE_SHARE else []
        size = 0
        while size < WORDS_A_MESSAGE:
            text, length = chance.choice(turns)
            texts.append(text)
            size += max(1, length)
        role = "assistant" if number % 2 else "user"
        index.add(RecallUnit(str(number), " ".join(texts), role=role, session=str(number // _SESSION_UNITS), date="2025-03-04"))
    return index


def _times(index: RecallIndex, queries: Sequence[str]) -> tuple[list[float], list[float]]:
    clock: list[float] = []
    processor: list[float] = []
    rank(index, queries[0])
    for query in queries:
        begun, worked = time.perf_counter(), time.thread_time()
        rank(index, query)
        processor.append((time.thread_time() - worked) * 1000)
        clock.append((time.perf_counter() - begun) * 1000)
    return clock, processor


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of all does not exceed."""
    return round(sorted(values)[max(0, -(-int(share * 1000) * len(values) // 1000) - 1)], 2)


NOTES: Final = 1_000
PROMPTS: Final = 100
TURN_START_UNITS: Final = 50_000
TURN_LIMIT_MS: Final = 15.0
_TURN_START_SEED: Final = 14
_WORDS_A_NOTE, _WORDS_A_UNIT = 50, 60
_WHEN: Final = "2026-05-01T10:00:00Z"


class TurnStart(Value, frozen=True):
    """Milliseconds: of the first prompt after its index was loaded in the background, of later prompts, and of loading the two indexes.

    `cpu_ms` is the processor time of a later prompt, which other programs on the machine do not change.
    """

    notes: int
    prompts: int
    first_ms: float
    p50_ms: float
    p95_ms: float
    cpu_ms: float
    load_notes_ms: float
    units: int
    load_units_ms: float

    @property
    def ok(self) -> bool:
        """Whether a prompt takes no more processor time than the limit."""
        return self.cpu_ms <= TURN_LIMIT_MS


def measure_turn_start(
    path: Path,
    *,
    notes: int = NOTES,
    prompts: int = PROMPTS,
    units: int = TURN_START_UNITS,
    announce: Callable[[str], None] = lambda _: None,
) -> TurnStart:
    """Measure prompts of a file in the format of LoCoMo over notes that are made of its turns. Raises `BadInput` if it cannot be read."""
    data = read_conversations(path)
    chance = random.Random(_TURN_START_SEED)  # noqa: S311 - the same notes in every run
    words = [word for conversation in data.conversations for unit in conversation.units for word in unit.text.split()]
    questions = [question.text for conversation in data.conversations for question in conversation.questions]
    with tempfile.TemporaryDirectory() as folder:
        announce(f"writing {notes:,} notes")
        memory = _memory(Path(folder))
        made = tuple(_note(number, chance.choices(words, k=_WORDS_A_NOTE)) for number in range(notes))
        memory.memories.project.apply(AcceptedChange(made, reason="added"), "import")
        first = NoteIndex(memory.memories.notebooks)
        first.refresh()
        first.save()
        load_ms = _milliseconds(lambda: NoteIndex(memory.memories.notebooks).refresh())
        times, cpu_ms = asyncio.run(_turn_start_times(memory, [chance.choice(questions) for _ in range(prompts + 1)]))
        memory.session.close()
    announce(f"loading {units:,} units")
    data_of_units = encode_index(_units(words, units, chance))
    rest = sorted(times[1:])
    return TurnStart(
        notes=notes,
        prompts=prompts,
        first_ms=round(times[0], 2),
        p50_ms=round(rest[len(rest) // 2], 2),
        p95_ms=round(rest[int(len(rest) * 0.95) - 1], 2),
        cpu_ms=round(cpu_ms, 2),
        load_notes_ms=round(load_ms, 2),
        units=units,
        load_units_ms=round(min(_milliseconds(lambda: decode_index(data_of_units)) for _ in range(3)), 2),
    )


def _memory(folder: Path) -> SessionMemory:
    root = folder / "project"
    root.mkdir()
    home = Home.at(folder / "home")
    agent = Agent("claude-sonnet-4-5", provider=Scripted(), cwd=root, home=home)
    memory = session_memory(agent.session, root, home, MemoryConfig())
    if memory is None:
        raise BadInput("a home on disk has no memory", where=str(folder))
    return memory


async def _turn_start_times(memory: SessionMemory, prompts: Sequence[str]) -> tuple[list[float], float]:
    """Return the milliseconds of each prompt, and the processor time of one of all but the first."""
    recall = NoteRecall(memory)
    # A session loads its indexes while it is opened and the user types; `load_notes_ms` is what that takes.
    recall.prepare()
    recall.close()
    times: list[float] = []
    worked = 0.0
    for prompt in prompts:
        if len(times) == 1:
            worked = time.process_time()
        begun = time.perf_counter()
        await recall.recall((Text(prompt),))
        times.append((time.perf_counter() - begun) * 1000)
    return times, (time.process_time() - worked) * 1000 / max(1, len(prompts) - 1)


def _note(number: int, words: Sequence[str]) -> Note:
    text = " ".join(words).replace("\n", " ")
    return Note(
        name=f"project_measured_{number}",
        kind="project",
        about=text[:80],
        backstory="made for a measurement",
        when=_WHEN,
        evidence=(f"measured:{number}",),
        trust="stated",
        body=text,
    )


def _units(words: Sequence[str], count: int, chance: random.Random) -> RecallIndex:
    return RecallIndex(
        RecallUnit(
            f"s{number // 40}:{number % 40}",
            f"{' '.join(chance.choices(words, k=_WORDS_A_UNIT))} id{chance.randrange(20_000)}",
            role="user",
            session=f"s{number // 40}",
            date="2026-05-01",
        )
        for number in range(count)
    )


def _milliseconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000
