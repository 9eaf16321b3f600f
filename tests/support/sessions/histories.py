"""Random but lawful sessions: a list of small numbers is told as a history of a log."""

from collections.abc import Sequence

from hypothesis import strategies as st

from palimpsest.core.errors import BadEdit, BadInput
from palimpsest.core.events import (
    CallStarted,
    ContextStated,
    Failed,
    Interrupted,
    ModelReplied,
    NotesTaken,
    Pinned,
    ProfileChanged,
    Recalled,
    SessionOpened,
    Statement,
    ToolReturned,
    Usage,
    UserSaid,
    UserTyped,
    ViewEdited,
)
from palimpsest.core.items import (
    Content,
    Edit,
    Fold,
    Insert,
    Into,
    Item,
    Keep,
    Mask,
    Put,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unmask,
    pending_calls,
    safe_cuts,
)
from palimpsest.core.log import Log
from palimpsest.core.ports import SessionStore
from palimpsest.core.undo import restore, rewind, undo
from palimpsest.stores.in_memory import FixedClock, MemorySessions

Step = tuple[int, int, int]

steps: st.SearchStrategy[list[Step]] = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 50), st.integers(0, 50)), max_size=25)


def new_log(store: SessionStore | None = None, session: str = "s") -> Log:
    return Log.create(MemorySessions() if store is None else store, SessionOpened(session, cwd="/repo", model="m"), FixedClock(1_000, 10))


def tell(log: Log, told: list[Step]) -> Log:
    """Append what each step stands for; a step that does not fit the log as it is now says nothing."""
    for kind, a, b in told:
        try:
            _TELLERS[kind % len(_TELLERS)](log, a, b)
        except (BadEdit, BadInput):
            continue
    return log


def _say(log: Log, a: int, b: int) -> None:
    log.append(UserSaid((Text(f"request {a}"), Text("请继续"))[: 1 + b % 2], steering=a % 5 == 0))


def _reply(log: Log, a: int, b: int) -> None:
    calls: tuple[Content, ...] = tuple(ToolCall(f"c{log.tip}.{n}", "read", f'{{"path":"/f{a}"}}') for n in range(b % 3))
    thought: tuple[Content, ...] = (Thinking(f"thought {a}"),) if a % 4 == 0 else ()
    log.append(CallStarted("m", "anthropic", estimate=1_000 + a))
    log.append(ModelReplied((*thought, Text(f"answer {a}", "assistant"), *calls), usage=Usage(input=a, output=b)))


def _return(log: Log, a: int, b: int) -> None:
    for item in pending_calls(log.view.items)[: 1 + b % 2]:
        if isinstance(item.content, ToolCall):
            log.append(ToolReturned(ToolResult(item.content.call_id, (Text(f"line {a}\n" * (1 + b)),), error=a % 7 == 0)))


def _state(log: Log, a: int, b: int) -> None:
    statement = Statement(f"source{a % 3}", f"fact {a}", value=str(a))
    head = (Statement("base", f"head {b}", "system"),) if b % 3 == 0 else None
    log.append(ContextStated((statement,), head))


def _edit(log: Log, edit: Edit) -> None:
    log.append(ViewEdited((edit,), by="test", why="a step", tokens_after=len(log.view.items) % 3))


def _mask(log: Log, a: int, b: int) -> None:
    ids = log.view.ids
    if ids:
        _edit(log, Mask((ids[a % len(ids)],), "" if b % 4 == 0 else f"[hidden {b}]", "cached" if b % 5 == 0 else "shown"))


def _unmask(log: Log, a: int, b: int) -> None:
    masked = tuple(item.id for item in log.view.items if item.mask is not None)
    if masked:
        _edit(log, Unmask(masked[a % len(masked) :][: 1 + b % 3]))


def widen(items: Sequence[Item], first: int, last: int) -> tuple[int, int]:
    """The smallest range around `first` to `last`, both included, that separates no call from its result."""
    cuts = safe_cuts(items)
    start = max(cut for cut in cuts if cut <= first)
    stop = min(cut for cut in cuts if cut > last)
    return start, stop - 1


def _fold(log: Log, a: int, b: int) -> None:
    items = log.view.items
    if not items:
        return
    first = a % len(items)
    first, last = widen(items, first, min(len(items) - 1, first + b % 12))
    kept = tuple(Keep(item.id) for item in items[first : last + 1] if item.kind == "user" and (a + b) % 2)
    into: Into = (Put("summary", Text(f"summary {a}")), *kept) if b % 6 else kept
    _edit(log, Fold(items[first].id, items[last].id, into))


def _insert(log: Log, a: int, b: int) -> None:
    ids = log.view.ids
    before = ids[a % len(ids)] if ids and b % 2 else ""
    _edit(log, Insert((Put("reminder", Text(f"reminder {b}")),), before))


def _undo(log: Log, a: int, b: int) -> None:
    edits = [event.seq for event in log.events() if isinstance(event.body, ViewEdited)]
    if edits:
        undo(log, edits[a % len(edits)])


def _restore(log: Log, a: int, b: int) -> None:
    restore(log, f"{a % (log.tip + 1)}.{b % 2}")


def _rewind(log: Log, a: int, b: int) -> None:
    rewind(log, a % (log.tip + 1))


def _pin(log: Log, a: int, b: int) -> None:
    ids = log.view.ids
    if ids:
        log.append(Pinned((ids[a % len(ids)],), on=b % 3 > 0))


def _note(log: Log, a: int, b: int) -> None:
    log.append(NotesTaken(f"notes {a}", log.tip) if b % 2 else Recalled(f"query {a}", ("n",), parts=(Text(f"note {b}"),)))


def _interrupt(log: Log, a: int, b: int) -> None:
    started = log.append(CallStarted("m", "anthropic", estimate=1_000))
    arrived: tuple[Content, ...] = (Thinking(f"thought {a}"), Text(f"half of {b}", "assistant"), ToolCall("cut", "read", '{"pa'))
    log.append(Interrupted(started.seq, arrived[: a % 4], "cancelled", Usage(input=b), "m"))


def _fail(log: Log, a: int, b: int) -> None:
    purpose = "turn" if b % 2 else "title"
    started = log.append(CallStarted("m", "anthropic", purpose=purpose))
    log.append(Failed("call", "too_long" if a % 2 else "provider", call=started.seq, purpose=purpose))


def _ask_aside(log: Log, a: int, b: int) -> None:
    started = log.append(CallStarted("n", "anthropic", purpose="title"))
    reply = (Text(f"title {a}", "assistant"), ToolCall(f"c{b}.0", "read", "{}"))
    log.append(ModelReplied(reply, started.seq, Usage(input=a), model="n", purpose="title"))


def _type(log: Log, a: int, b: int) -> None:
    typed = log.append(UserTyped((Text(f"typed {a}"),)))
    if b % 2:
        log.append(UserSaid((Text(f"typed {a}"),), typed=typed.seq, steering=b % 3 == 0))


def _change_profile(log: Log, a: int, b: int) -> None:
    log.append(ProfileChanged(f"profile {a % 3}", log.view.profile))


_TELLERS = (
    *(_say, _reply, _reply, _return, _return, _state, _mask, _unmask, _fold, _fold, _insert, _undo, _restore, _rewind, _pin, _note),
    *(_interrupt, _fail, _ask_aside, _type, _change_profile),
)
