"""What a session with sub-agents cost is the same number everywhere: in the list, in the tree, and in the status line of an agent."""

from pathlib import Path
from random import Random

import pytest

from pal.cli.sessions import row_as_opened, session_costs
from palimpsest.agent.limits import NOTHING, ChildAccounts, family_of, recorded_spending
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import CallStarted, ChildEnded, ChildOpened, EventRef, Failed, Interrupted, ModelReplied, SessionOpened, Usage
from palimpsest.core.items import Text
from palimpsest.core.log import Log
from palimpsest.stores.home import Home
from palimpsest.wire.models import PriceBook, total_usd

MODELS = ("claude-sonnet-4-5", "gpt-5.5", "a-model-without-a-price")
DAMAGE = {"deleted": 2, "of noise": 2, "empty": 1, "damaged within": 2, "whole": 13}


class Families:
    """Random trees of sessions in a home: calls of all outcomes, ends that are recorded or not, and children that went on after theirs."""

    def __init__(self, home: Home, random: Random) -> None:
        self.home = home
        self.random = random
        self.count = 0

    def call(self, log: Log) -> None:
        (model,) = self.random.choices(MODELS, (12, 6, 1))
        call, usage = log.append(CallStarted(model, "anthropic")).seq, Usage(self.random.randrange(1, 300_000), output=9)
        done = ModelReplied((Text("x"),), call=call, usage=usage, model=model)
        log.append(self.random.choice((done, done, done, Interrupted(call, usage=usage, model=model), Failed("call", "rate", call=call))))

    def grow(self, session: str, opener: EventRef | None = None, depth: int = 0) -> None:
        random, home = self.random, self.home
        with Log.create(home.store, SessionOpened(session, model=MODELS[0], opener=opener), home.clock) as log:
            for _ in range(random.randint(0, 3)):
                self.call(log)
            for _ in range(random.choice((0, 0, 1, 2)) if depth else 2 if depth < 3 else 0):
                self.count += 1
                child = f"{session}-{self.count}"
                # Imported sub-agents have no depth.
                opened = log.append(ChildOpened(child, depth=random.choice((depth + 1, 0))))
                self.grow(child, EventRef(session, opened.seq), depth + 1)
                if random.random() < 0.8:
                    spent = recorded_spending(home, child)
                    log.append(ChildEnded(child, "completed", "", spent.usage, spent.usd, spent.children_usd, spent.children_tokens))
                if random.random() < 0.2:
                    with Log.open(home.store, child, home.clock, write=True) as resumed:
                        self.call(resumed)

    def fork(self, session: str) -> None:
        with Log.open(self.home.store, session, self.home.clock, write=True) as log, self.home.fork(log) as fork:
            self.call(fork)

    def damage(self, path: Path) -> str:
        (kind,) = self.random.choices(tuple(DAMAGE), tuple(DAMAGE.values()))
        data = path.read_bytes()
        middle = len(data) // 2
        written = {"of noise": b"noise\n", "empty": b"", "damaged within": data[:middle] + b"\0XX" + data[middle + 3 :]}
        if kind == "deleted":
            path.unlink()
        elif kind in written:
            path.write_bytes(written[kind])
        return f"{path.stem} is {kind}"


def places(home: Home) -> dict[str, dict[str, float | None]]:
    """What each session cost, by the places that say it."""
    cards = home.cards()
    with home.index() as index:
        index.refresh()
        damaged, listed = {path for path, _ in index.faults()}, index.list()
    costs = session_costs([row_as_opened(home, row) if row.path in damaged else row for row in listed], cards)
    found: dict[str, dict[str, float | None]] = {}
    for row in listed:
        tree = status = None
        try:
            tree = total_usd(member.cost_usd for member in family_of(home, row.id))
            with Log.open(home.store, row.id, home.clock) as log:
                below = sum(ChildAccounts(home).spent(log).values(), NOTHING)
                status = total_usd((PriceBook(cards).ledger_usd(log.ledger), below.usd))
        except PalimpsestError:
            pass
        found[row.id] = {"list": costs[row.id].usd, "tree": tree, "status line": status}
    return found


def test_the_cost_of_a_family_is_one_number_also_where_files_of_sub_agents_are_gone_or_damaged(tmp_path: Path) -> None:
    wrong, known = [], 0
    for seed in range(25):
        home, random = Home.at(tmp_path / str(seed)), Random(seed)
        families = Families(home, random)
        families.grow("root")
        families.fork("root")
        damage = [families.damage(path) for path in sorted(Path(home.store.stat("root").name).parent.glob("root-*.jsonl"))]
        for session, said in places(home).items():
            first, *others = said.values()
            known += first is not None
            if any(other != (None if first is None else pytest.approx(first)) for other in others):
                wrong.append((seed, session, said, damage))
    assert wrong == []
    assert known > 50
