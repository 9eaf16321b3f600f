"""Users who correct themselves: what a later session is told of it begins with what was said last."""

import random
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace
from recalling_desk import NOON

from pal.plugin.evidence import notes_at_start, notes_for_prompt
from palimpsest.core.events import Event, UserSaid
from palimpsest.core.items import Text
from palimpsest.memory.changes import AcceptedChange, Memory, judge_change
from palimpsest.memory.evidence import statements
from palimpsest.memory.note import Note, encode_note
from palimpsest.memory.notebook import Memories, Notebook
from palimpsest.memory.query import MemorySearch
from palimpsest.memory.session_memory import ProjectMemory
from palimpsest.memory.store import NoteFolder
from palimpsest.stores.files import FileDocument
from palimpsest.stores.home import FolderHome
from palimpsest.stores.in_memory import FixedClock
from palimpsest.stores.memory_config import MemoryConfig

# Of every run of the tests, and of `pytest -m long`.
HISTORIES, MORE_HISTORIES = 250, 1_000
NAMES = ("orion", "vega", "lyra", "draco", "cygnus", "hydra", "corvus", "pavo")
CHINESE_NAMES = ("猎户座", "织女星", "天琴座", "天鹅座", "长蛇座", "乌鸦座")
TOOLS = ("uv", "poetry", "pdm", "conda", "pipenv", "hatch", "rye")
# What is said first, how it is changed, and what a later session is asked.
CHANGES = (
    (
        "the staging database is called {0}",
        ("the staging database is called {1} now, not {0}", "staging database: {1}"),
        "which staging database do we use",
    ),
    (
        "we deploy the billing service to {0}",
        ("the billing service is deployed to {1} from now on", "billing goes to {1}"),
        "deploy the billing service",
    ),
    (
        "the release branch is {0}",
        ("the release branch is {1} since today", "use {1} as the release branch"),
        "merge this into the release branch",
    ),
    ("my reviewer is {0}", ("my reviewer is {1} now", "{1} is my reviewer, {0} left"), "who is my reviewer"),
    ("logs are kept on host {0}", ("logs moved to host {1}", "the host of the logs is {1}"), "where are the logs kept"),
)
CHINESE_CHANGES = (
    ("测试数据库叫{0}", ("测试数据库现在叫{1}，不是{0}", "测试数据库改名叫{1}了"), "测试数据库叫什么"),
    ("发布分支是{0}", ("发布分支从今天起是{1}", "发布分支改成{1}"), "合并到发布分支"),
)
DENIALS = (
    (
        "we install packages with {0}",
        ("{0} is gone", "we dropped {0} last week", "nobody uses {0} any more"),
        "how do I install the packages",
    ),
    ("run the linter through {0}", ("{0} was removed from this machine", "{0} does not work here"), "run the linter"),
    ("我们用 {0} 安装依赖", ("{0} 不用了", "已经删掉 {0}"), "怎么安装依赖"),
)
FILLERS = (
    *(
        "the office is closed on fridays",
        "write dates in ISO form",
        "the logo is blue",
        "tests take ten minutes",
        "回答要简短",
        "never push to main",
    ),
    *("I prefer tabs", "the customer is Acme", "the API key rotates monthly", "周五不发布", "use small commits", "the wiki is out of date"),
)

# Statements of one pattern about several things, and the question for one.
SERVICES = ("billing", "search", "login", "mail", "report", "chat", "media", "audit", "export", "import", "proxy", "queue")
PATTERNS = (
    ("the port of the {0} service is {1}", "which port has the {0} service"),
    ("{0} service: owner of the repository is person{1}", "who is the owner of the {0} service repository"),
    ("{0} 服务的端口是 {1}", "{0} 服务的端口是多少"),
)


class History(NamedTuple):
    """What the user asked to remember, oldest first with its time; which of it is about one thing; and a later prompt."""

    said: tuple[tuple[datetime, str], ...]
    about: tuple[int, ...]
    prompt: str


def history(seed: int) -> History:
    """A history in which the user says something and then changes or denies it, between other things."""
    rng = random.Random(seed)
    kind = rng.choice(("change", "change", "chain", "chinese", "denial"))
    first, later, prompt = rng.choice({"chinese": CHINESE_CHANGES, "denial": DENIALS}.get(kind, CHANGES))
    values = rng.sample(CHINESE_NAMES if kind == "chinese" else TOOLS if kind == "denial" else NAMES, 4)
    chain = [first.format(values[0])]
    steps = range(rng.choice((2, 3)) if kind == "chain" else 1)
    chain += [rng.choice(later).format(values[step], values[step + 1]) for step in steps]
    texts = [(text, True) for text in chain]
    for filler in rng.sample(FILLERS, rng.randrange(8)):
        texts.insert(rng.randrange(len(texts) + 1), (filler, False))
    gap = rng.choice((timedelta(seconds=1), timedelta(minutes=3), timedelta(hours=2), timedelta(days=5)))
    start = datetime.fromtimestamp(NOON / 1000, UTC) - timedelta(days=90)
    said = tuple((start + place * gap, text) for place, (text, _) in enumerate(texts))
    return History(said, tuple(place for place, (_, is_about) in enumerate(texts) if is_about), prompt)


def noted(given: History) -> list[Note]:
    """The notes that the messages of a history become."""
    return [replace(note_of(text), when=f"{at:%Y-%m-%dT%H:%M:%SZ}") for at, text in given.said]


@cache
def note_of(text: str) -> Note:
    """The note that a message becomes which asks to remember a text."""
    event = Event(1, 0, NOON, "", UserSaid((Text(("remember: " if text.isascii() else "记住：") + text),)))
    (statement,) = statements("s", (event,))
    outcome = judge_change(statement.change(), (statement.source,), Memory({}, by="remember"))
    assert isinstance(outcome, AcceptedChange), (text, outcome)
    return outcome.saved[0]


def told(folder: Path, notes: list[Note], prompt: str) -> tuple[ProjectMemory, str, str]:
    """The memory of these notes, and what a session is told of them at its start and at a prompt."""
    clock = FixedClock(NOON)
    books = [Notebook(NoteFolder(folder / scope, scope, clock), clock) for scope in ("user", "project-a")]
    (folder / "project-a" / "notes").mkdir(parents=True)
    for each in notes:
        (folder / "project-a" / "notes" / f"{each.name}.md").write_text(encode_note(each))
    (folder / "memory").mkdir()
    memory = ProjectMemory(home=FolderHome(folder, clock), root=folder, given=Memories(*books), config=MemoryConfig())
    return memory, notes_at_start(memory, 100_000), notes_for_prompt(memory, prompt, FileDocument(folder / "shown"), 100_000)


def recalled(memory: ProjectMemory, prompt: str) -> str:
    """What the tool recall answers."""
    with closing(MemorySearch(memory)) as search:
        return search.query(prompt, history=False, all_projects=False)


def order(text: str, names: list[str]) -> list[str]:
    """The notes of these names that a text tells, in its order."""
    places = {name: min((at for at in (text.find(f"\n[{name}] "), text.find(f"- [{name}](")) if at >= 0), default=-1) for name in names}
    return sorted((name for name in names if places[name] >= 0), key=places.__getitem__)


def _head(text: str, name: str) -> str:
    return text.partition(f"[{name}] · ")[2].partition("\n")[0]


@pytest.mark.parametrize("histories", [HISTORIES, pytest.param(MORE_HISTORIES, marks=pytest.mark.long)])
def test_what_was_said_last_stands_first_in_histories_of_corrections(tmp_path: Path, histories: int) -> None:
    wrong: list[tuple[int, str, list[str]]] = []
    silent = 0
    unmarked: list[tuple[int, str]] = []
    for seed in range(histories):
        given = history(seed)
        notes = noted(given)
        about = [notes[place].name for place in given.about]
        memory, at_start, at_prompt = told(tmp_path / str(seed), notes, given.prompt)
        silent += not order(at_prompt, about)
        # The tool opens a database, which takes longer than all else.
        asked = recalled(memory, given.prompt) if seed % 20 == 0 else ""
        for where, text in (("start", at_start), ("prompt", at_prompt), ("recall", asked)):
            found = order(text, about)
            if found[:1] != about[-1:] and (found or where == "start"):
                wrong.append((seed, where, found))
        older = [name for name in order(at_prompt, about) if name != about[-1]]
        unmarked += [(seed, name) for name in older if f"[{name}] · " in at_prompt and ", which holds where" not in _head(at_prompt, name)]
    assert wrong == []
    assert unmarked == []
    assert silent < histories / 20


@pytest.mark.parametrize(("said", "asked"), PATTERNS)
def test_the_first_of_many_statements_of_one_pattern_is_found_by_its_name(tmp_path: Path, said: str, asked: str) -> None:
    notes = [replace(note_of(said.format(name, 8000 + place)), when=f"2026-05-01T10:00:{place:02}Z") for place, name in enumerate(SERVICES)]
    for place, name in enumerate(SERVICES):
        memory, at_start, at_prompt = told(tmp_path / name, notes, asked.format(name))
        own = notes[place].name
        names = [each.name for each in notes]
        assert own in order(at_prompt, names), (name, order(at_prompt, names))
        assert own in order(recalled(memory, asked.format(name)), names)
        assert len(order(at_start, names)) == len(names)
