"""What the newest part of the log says about the work: files touched last, the plan, skills, agents and tools that were found."""

from collections.abc import Generator

from palimpsest.audit.tools import action_of, args_of, result_text
from palimpsest.core.events import ChildEnded, ChildOpened, Event, ModelReplied, ToolReturned, ViewEdited
from palimpsest.core.items import ToolCall, ToolResult, Value
from palimpsest.core.policy import Answer, Span, Want, span
from palimpsest.policies.fold import rung
from palimpsest.policies.read_state import KNOWING

_PLANS = frozenset({"ExitPlanMode", "exit_plan_mode"})
_SKILLS = frozenset({"Skill", "skill"})
_SEARCHES = frozenset({"ToolSearch", "tool_search"})
_OPENING = 200
AGENTS = 10
_RUNG = rung().name
# So many events are looked at in one go, and at most so many times: what is older is not recent.
RUN = 250
RUNS = 8


class Past(Value, frozen=True):
    """Newest first: paths, the plan that was agreed on, skills with their texts, agents by session, and tools that were found.

    `freed` is how many tokens a fold without a model took away, if that is what happened last.
    """

    paths: tuple[str, ...] = ()
    plan: str = ""
    skills: tuple[tuple[str, str], ...] = ()
    agents: tuple[str, ...] = ()
    tools: str = ""
    freed: int | None = None


def look_back(tip: int) -> Generator[Want, Answer, Past]:
    """What happened along the way that leads to the tip, as far back as is looked at."""
    tally = _Tally(tip)
    last = tip
    for _ in range(RUNS):
        events = yield from span(Span(max(0, last - RUN + 1), last))
        for event in reversed(events):
            tally.take(event)
        last -= RUN
        if last < 0:
            break
    agents = tuple(tally.agents.values())[:AGENTS]
    return Past(tuple(tally.paths), tally.plan, tuple(tally.skills.items()), agents, tally.tools, tally.freed)


class _Tally:
    """What is being gathered, from the newest event backwards; a call that failed did nothing."""

    def __init__(self, tip: int) -> None:
        self.paths: dict[str, None] = {}
        self.skills: dict[str, str] = {}
        self.agents: dict[str, str] = {}
        self.plan = ""
        self.tools = ""
        self.freed: int | None = None
        self._tip = self._next = tip
        self._results: dict[str, list[ToolResult]] = {}
        self._ended: dict[str, ChildEnded] = {}

    def take(self, event: Event) -> None:
        # What lies on a branch that was left is passed over: each event names the one before it.
        if event.seq != self._next:
            return
        self._next = event.parent
        match event.body:
            case ToolReturned(result=result):
                self._results.setdefault(result.call_id, []).append(result)
            case ModelReplied(parts=parts):
                for part in reversed(parts):
                    # Logs of 0.1.0 may have several calls with one id: the newest of them has the newest result.
                    if isinstance(part, ToolCall) and (results := self._results.get(part.call_id)) and not (result := results.pop(0)).error:
                        self._take_call(part, result)
            case ViewEdited(by=by) as edit if by == _RUNG and event.seq == self._tip:
                self.freed = max(0, edit.tokens_before - edit.tokens_after)
            case ChildEnded(session=session) as ended:
                self._ended.setdefault(session, ended)
            case ChildOpened(session=session, role=role):
                self.agents.setdefault(session, self._state(session, role))
            case _:
                pass

    def _take_call(self, call: ToolCall, result: ToolResult) -> None:
        if call.tool in _PLANS:
            self.plan = self.plan or str(args_of(call).get("plan") or "")
        elif call.tool in _SKILLS:
            args = args_of(call)
            name = str(args.get("skill") or args.get("name") or args.get("command") or "")
            self.skills.setdefault(name, result_text(result))
        elif call.tool in _SEARCHES:
            self.tools = self.tools or result_text(result)
        else:
            action = action_of(call)
            for touched in action.paths if action.kind in KNOWING else ():
                self.paths.setdefault(touched.path)

    def _state(self, session: str, role: str) -> str:
        ended = self._ended.get(session)
        who = f"{session} ({role})" if role else session
        if ended is None:
            return f"{who}: running"
        said = " ".join(ended.text[:_OPENING].split())
        return f"{who}: {ended.status}; the result is in its own session" + (f": {said}" if said else "")
