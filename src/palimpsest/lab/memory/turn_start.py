"""Measures what recall adds to the start of a turn with 1,000 notes on disk, and how long indexes take to load in a fresh process."""

import asyncio
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from palimpsest.core.errors import BadInput
from palimpsest.core.items import Text, Value
from palimpsest.engine.agent import Agent
from palimpsest.engine.memory.recall.notes.index import NoteIndex
from palimpsest.engine.memory.recalling import NoteRecall
from palimpsest.engine.memory.session_memory import SessionMemory, session_memory
from palimpsest.lab.memory.conversations import read_conversations
from palimpsest.memory.changes import AcceptedChange
from palimpsest.memory.note import Note
from palimpsest.memory.recall.index import RecallIndex
from palimpsest.memory.recall.stored.snapshot import decode_index, encode_index
from palimpsest.memory.recall.units import RecallUnit
from palimpsest.providers.scripted import Scripted
from palimpsest.stores.config.memory_config import MemoryConfig
from palimpsest.stores.home import Home

NOTES: Final = 1_000
PROMPTS: Final = 100
UNITS: Final = 50_000
TURN_LIMIT_MS: Final = 15.0
_SEED: Final = 14
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
    path: Path, *, notes: int = NOTES, prompts: int = PROMPTS, units: int = UNITS, announce: Callable[[str], None] = lambda _: None
) -> TurnStart:
    """Measure prompts of a file in the format of LoCoMo over notes that are made of its turns. Raises `BadInput` if it cannot be read."""
    data = read_conversations(path)
    chance = random.Random(_SEED)  # noqa: S311 - the same notes in every run
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
        times, cpu_ms = asyncio.run(_times(memory, [chance.choice(questions) for _ in range(prompts + 1)]))
        memory.agent.close()
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
    home = Home(folder / "home")
    agent = Agent("claude-sonnet-4-5", provider=Scripted(), cwd=root, home=home)
    memory = session_memory(agent, home, MemoryConfig())
    if memory is None:
        raise BadInput("a home on disk has no memory", where=str(folder))
    return memory


async def _times(memory: SessionMemory, prompts: Sequence[str]) -> tuple[list[float], float]:
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
