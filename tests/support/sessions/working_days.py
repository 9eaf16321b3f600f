"""Random but lawful working days: a list of small numbers is told as tool calls, replies, edits and side calls of a session."""

from collections.abc import Callable

from hypothesis import strategies as st
from side_calls import side_reply
from workplace import reply, say, use

from palimpsest.agent.session import Session
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import ContextStated, Statement, Usage, ViewEdited
from palimpsest.core.items import Fold, Insert, Keep, Mask, Put, Text, Unmask, safe_cuts
from palimpsest.core.undo import rewind
from palimpsest.policies.budgets import palimpsest_budget
from palimpsest.policies.profile import Profile

Step = tuple[int, int, int]
PROSE = "words that say nothing much about anything in particular\n" * 10
TOOLS = ("Read", "Edit", "Bash", "Grep", "Task", "recall")
MODEL = "claude-sonnet-4-5"
# Sizes that no reported usage changes, so that whoever looks later sees the same.
PROFILE = Profile("test", (), lambda each: palimpsest_budget(each.window, each.reply), size_rule="claude-code")


def _use(session: Session, a: int, b: int) -> None:
    tool = TOOLS[a % len(TOOLS)]
    args = f'{{"command":"make t{b % 3}"}}' if tool == "Bash" else f'{{"file_path":"src/f{b % 4}.py"}}'
    text = PROSE + f"name_{b % 5} and other_name_{a % 5}" if a % 9 else "short"
    use(session, f"c{session.log.tip}", tool, args, text, exit_code=b % 2 if tool == "Bash" else None)


def _reply(session: Session, a: int, b: int) -> None:
    size = 3_000 + session.log.tip * 100
    reads = (Usage(), Usage(10, size, 200, 0, 50), Usage(10, 0, size, 0, 50), Usage(5, size // 2, 0, size // 2, 9))
    reply(session, Text(f"name_{a % 5}", "assistant"), usage=reads[b % 4])


def _say(session: Session, a: int, b: int) -> None:
    say(session, f"please do {a} and {b}")


def _mask(session: Session, a: int, b: int) -> None:
    results = [item.id for item in session.log.view.items if item.kind == "result"]
    if results:
        session.log.append(ViewEdited((Mask((results[a % len(results)],), f"[gone {b}]", "cached" if b % 4 == 0 else "shown"),), by="test"))


def _unmask(session: Session, a: int, b: int) -> None:
    masked = [item.id for item in session.log.view.items if item.mask is not None]
    if masked:
        session.log.append(ViewEdited((Unmask((masked[(a + b) % len(masked)],)),), by="test"))


def _fold(session: Session, a: int, b: int) -> None:
    items = session.log.view.items
    cuts = safe_cuts(items)
    if len(cuts) > 2:
        first, last = sorted((cuts[a % len(cuts)], cuts[b % len(cuts)]))
        if first < last:
            kept = tuple(Keep(item.id) for item in items[first:last]) if a % 3 == 0 else ()
            session.log.append(ViewEdited((Fold(items[first].id, items[last - 1].id, (*kept, Put("summary", Text("so far")))),), by="test"))


def _insert(session: Session, a: int, b: int) -> None:
    session.log.append(ViewEdited((Insert((Put("reminder", Text(f"note {a} {b}")),)),), by="test"))


def _head(session: Session, a: int, b: int) -> None:
    session.log.append(ContextStated(head=(Statement("base", f"head {a % 2}", "system"), Statement("more", f"more {b % 2}", "system"))))


def _aside(session: Session, a: int, b: int) -> None:
    session.log.append(side_reply("title", MODEL, Usage(10, 1_000 * (a + b), 0, 0, 5)))


def take_back(session: Session, a: int, b: int) -> None:
    edits = [event.seq for event in session.log.events() if isinstance(event.body, ViewEdited)]
    if edits:
        session.undo(edits[(a + b) % len(edits)])


def go_back(session: Session, a: int, b: int) -> None:
    rewind(session.log, max(0, session.log.tip - a % 9 - b % 5))


DOING: tuple[Callable[[Session, int, int], None], ...] = (
    _use,
    _use,
    _use,
    _reply,
    _reply,
    _say,
    _mask,
    _unmask,
    _fold,
    _insert,
    _head,
    _aside,
)
steps: st.SearchStrategy[list[Step]] = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40)), max_size=30)


def tell(session: Session, told: list[Step], *also: Callable[[Session, int, int], None]) -> None:
    doing = (*DOING, *also)
    for kind, a, b in told:
        try:
            doing[kind % len(doing)](session, a, b)
        except PalimpsestError:
            continue
