import json
import random
from pathlib import Path

import pytest
from corpus import golden
from readings import Home, faults, sources

from palimpsest.exchange.formats import format_named

FILES = [
    *(("swe-agent", path) for path in (*golden("mini/*.json"), *golden("swe/*.traj"))),
    *(("pi", path) for path in golden("pi/*.jsonl")),
    *(("gemini", path) for path in (*golden("gemini/**/session-*"), *golden("gemini/**/checkpoint-*"))),
    *(("openhands", path) for path in golden("openhands/*.json")),
    *(("managed-agents", path) for path in golden("managed-agents/*.jsonl")),
]
OTHERS: tuple[object, ...] = (None, 0, -1.5, True, "", "x", [], [None], {}, {"a": 1}, [1, "x", {}], 10**30, "2026-01-01T00:00:00Z")


def damaged(value: object, chance: random.Random, rate: float) -> object:
    """A value in which some parts are of another kind, missing, or too many."""
    if chance.random() < rate:
        return chance.choice(OTHERS)
    if isinstance(value, dict):
        return {name: damaged(each, chance, rate) for name, each in value.items() if chance.random() > rate / 3}
    if isinstance(value, list):
        return [damaged(each, chance, rate) for each in value] + [chance.choice(OTHERS)] * (chance.random() < rate)
    return value


def rewritten(path: Path, chance: random.Random) -> str:
    rate = chance.choice((0.01, 0.05, 0.2))
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        first, *rest = text.splitlines()
        return "".join(f"{line}\n" for line in (first, *(json.dumps(damaged(json.loads(line), chance, rate)) for line in rest)))
    document = json.loads(text)
    if isinstance(document, list):
        return json.dumps(document[:8] + [damaged(each, chance, rate) for each in document[8:]])
    return json.dumps({name: damaged(value, chance, rate) for name, value in document.items()})


@pytest.mark.parametrize(("name", "path"), FILES, ids=lambda value: value.name[:30] if isinstance(value, Path) else value)
def test_whatever_a_file_holds_its_session_is_read_the_same_twice_and_encodes(name: str, path: Path, tmp_path: Path) -> None:
    form = format_named(name)
    target = tmp_path / path.name
    for seed in range(12):
        target.write_text(rewritten(path, random.Random(seed)), encoding="utf-8")
        home = Home()
        if not sources(form, target):
            continue
        done = home.take(form, target)
        assert not any("reading stopped" in line.why for each in done for line in each.problems), f"seed {seed}"
        logs = home.logs()
        home.take(form, target)
        home.done.clear()
        home.take(form, target)
        assert home.logs() == logs, f"seed {seed}"
        assert [fault for session in home.store.sessions() for fault in faults(home, session, 9)] == [], f"seed {seed}"
