"""Statistics of sessions, to compare synthetic with recorded ones: sizes, tools, gaps, failures, re-reads and references."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from palimpsest.audit.entities import argument_texts, names_of
from palimpsest.audit.tools.calls import Action, ToolClass, action_of, action_with, exit_of
from palimpsest.audit.visibility.result_index import names_in_reply, names_in_result, normalized_path
from palimpsest.audit.visibility.visible import readable_text
from palimpsest.core.events import ContextStated, Event, ModelReplied, ToolReturned, UserSaid
from palimpsest.core.items import Content, Text, ToolCall, Value
from palimpsest.core.tokens.sizes import palimpsest_size
from palimpsest.lab.rereads.definitions import plain_name

CLASSES: Final[tuple[ToolClass, ...]] = ("read", "command", "search", "edit", "write", "agent", "plan", "other")
_LARGE_TOKENS: Final = 100
_MOST_NAMES: Final = 400
_DISTANCES: Final = (10, 40, 100)
_MINUTE_MS: Final = 60_000
_LONG_GAP_MS: Final = 5 * _MINUTE_MS


class SessionStatistics(Value, frozen=True):
    """Figures by name, in display order; each is a count or a percentage."""

    sessions: int
    figures: dict[str, float]


@dataclass(slots=True)
class _LargeResult:
    """A large result: its tokens, the number of the reply before it, and of the last reply that used a name from it."""

    tokens: int
    arrived: int
    named: int = -1


@dataclass
class StatisticsCollector:
    """Accumulates statistics over any number of sessions."""

    sessions: int = 0
    tokens: dict[str, int] = field(default_factory=dict)
    sizes: dict[ToolClass, list[int]] = field(default_factory=dict)
    user_tokens: list[int] = field(default_factory=list)
    chinese: int = 0
    replies: list[int] = field(default_factory=list)
    parallel_replies: int = 0
    user_gaps_ms: list[int] = field(default_factory=list)
    call_gaps_ms: list[int] = field(default_factory=list)
    failures: dict[ToolClass, int] = field(default_factory=dict)
    reads: int = 0
    repeated_reads: int = 0
    edits: int = 0
    edits_of_known: int = 0
    results: list[_LargeResult] = field(default_factory=list)
    name_distances: list[int] = field(default_factory=list)

    def take(self, events: Iterable[Event]) -> None:
        """Add one session."""
        self.sessions += 1
        session = _SessionCollector(self)
        for event in events:
            session.take(event)
        session.end()

    def statistics(self) -> SessionStatistics:
        """Return the statistics of all sessions together, rounded to three significant digits."""
        total = sum(self.tokens.values()) or 1
        calls = sum(map(len, self.sizes.values())) or 1
        found: dict[str, float] = {
            **{f"tokens, {kind} %": 100 * self.tokens.get(kind, 0) / total for kind in ("results", "calls", "replies", "user", "context")},
            **_distribution("replies a turn", self.replies),
            "replies with several calls %": _percent(self.parallel_replies, sum(self.replies)),
            **_distribution("user message, tokens", self.user_tokens),
            "user messages in Chinese %": _percent(self.chinese, len(self.user_tokens)),
            **_distribution("user away, minutes", [gap / _MINUTE_MS for gap in self.user_gaps_ms]),
            "user away over 5 minutes %": _percent(sum(gap > _LONG_GAP_MS for gap in self.user_gaps_ms), len(self.user_gaps_ms)),
            **_distribution("between calls, seconds", [gap / 1_000 for gap in self.call_gaps_ms]),
        }
        for kind in CLASSES:
            sizes = self.sizes.get(kind, [])
            found[f"{kind}, of all calls %"] = _percent(len(sizes), calls)
            found |= _distribution(f"{kind}, tokens", sizes)
        found |= {
            "commands that fail %": _percent(self.failures.get("command", 0), len(self.sizes.get("command", ()))),
            "edits that fail %": _percent(self.failures.get("edit", 0), len(self.sizes.get("edit", ()))),
            "reads of a file read before %": _percent(self.repeated_reads, self.reads),
            "edits of a file read or edited before %": _percent(self.edits_of_known, self.edits),
            "results named later %": _percent(sum(each.named >= 0 for each in self.results), len(self.results)),
            "their tokens %": _percent(
                sum(each.tokens for each in self.results if each.named >= 0), sum(each.tokens for each in self.results)
            ),
            **_distribution("last named after, calls", [each.named - each.arrived for each in self.results if each.named >= 0]),
            **{
                f"replies whose calls name what last stood {distance} calls back %": _percent(
                    sum(name_distance > distance for name_distance in self.name_distances), sum(self.replies)
                )
                for distance in _DISTANCES
            },
        }
        return SessionStatistics(self.sessions, {name: float(f"{value:.3g}") for name, value in found.items()})


class _SessionCollector:
    """Adds the events of one session to the totals."""

    def __init__(self, totals: StatisticsCollector) -> None:
        self._totals = totals
        self._calls: dict[str, ToolCall] = {}
        self._touched_paths: set[str] = set()
        self._read_paths: set[str] = set()
        self._results_by_name: dict[str, list[_LargeResult]] = {}
        # The number of the reply at which each name last occurred.
        self._last_mentioned: dict[str, int] = {}
        self._replies = self._turn = 0
        self._last_at: int | None = None

    def take(self, event: Event) -> None:
        match event.body:
            case UserSaid() as body:
                self._user(event.at, body)
            case ModelReplied() as body:
                self._reply(event.at, body)
            case ToolReturned() as body:
                self._result(event.at, body)
            case ContextStated() as body:
                self._count("context", [Text(each.text) for each in (*(body.head or ()), *body.items)])
            case _:
                pass

    def end(self) -> None:
        if self._turn:
            self._totals.replies.append(self._turn)

    def _count(self, kind: str, contents: Iterable[Content]) -> int:
        tokens = sum(map(palimpsest_size, contents))
        self._totals.tokens[kind] = self._totals.tokens.get(kind, 0) + tokens
        return tokens

    def _user(self, at: int, body: UserSaid) -> None:
        totals = self._totals
        totals.user_tokens.append(self._count("user", body.parts))
        self._mention(body.parts)
        texts = "".join(part.text for part in body.parts if isinstance(part, Text))
        totals.chinese += any("\u4e00" <= sign <= "\u9fff" for sign in texts[:2_000])
        if body.steering:
            return
        if self._turn:
            totals.replies.append(self._turn)
            if self._last_at is not None and at >= self._last_at:
                totals.user_gaps_ms.append(at - self._last_at)
        self._turn = 0
        self._last_at = at

    def _reply(self, at: int, body: ModelReplied) -> None:
        calls = [part for part in body.parts if isinstance(part, ToolCall)]
        self._count("calls", calls)
        self._count("replies", [part for part in body.parts if not isinstance(part, ToolCall)])
        self._calls |= {call.call_id: call for call in calls}
        self._replies += 1
        self._turn += 1
        self._totals.parallel_replies += len(calls) > 1
        if self._last_at is not None and self._turn > 1 and at >= self._last_at:
            self._totals.call_gaps_ms.append(at - self._last_at)
        self._last_at = at
        used = {plain_name(name) for call in calls for name in names_of("\n".join(argument_texts(call)))}
        self._totals.name_distances += [
            max((self._replies - self._last_mentioned[name] for name in used if name in self._last_mentioned), default=0)
        ]
        self._mention(body.parts)
        for name in names_in_reply(body.parts):
            for result in self._results_by_name.get(name, ())[-1:]:
                result.named = self._replies

    def _result(self, at: int, body: ToolReturned) -> None:
        totals = self._totals
        call = self._calls.pop(body.result.call_id, None)
        action = action_with(call, body) if call is not None else Action("other")
        tokens = self._count("results", (body.result,))
        self._mention((body.result,))
        totals.sizes.setdefault(action.kind, []).append(tokens)
        failed = body.result.error or (action.kind == "command" and exit_of(body) not in (None, 0))
        totals.failures[action.kind] = totals.failures.get(action.kind, 0) + failed
        if call is not None and not failed:
            self._record_paths(action)
        if tokens > _LARGE_TOKENS and action.kind not in ("edit", "write"):
            result = _LargeResult(tokens, self._replies)
            totals.results.append(result)
            for name in names_in_result(body.result, action_of(call) if call is not None else None)[:_MOST_NAMES]:
                self._results_by_name.setdefault(name, []).append(result)
        self._last_at = at

    def _mention(self, contents: Iterable[Content]) -> None:
        self._last_mentioned.update((plain_name(name), self._replies) for content in contents for name in names_of(readable_text(content)))

    def _record_paths(self, action: Action) -> None:
        totals = self._totals
        for touched in action.paths:
            path = normalized_path(touched.path)
            if touched.how == "read":
                totals.reads += 1
                totals.repeated_reads += path in self._read_paths
                self._read_paths.add(path)
            elif touched.how in ("edit", "write"):
                totals.edits += 1
                totals.edits_of_known += path in self._touched_paths
            self._touched_paths.add(path)


def _percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0


def _distribution(name: str, values: list[int] | list[float]) -> dict[str, float]:
    """Return median, 90th percentile and mean, each under its label; empty without values."""
    ordered = sorted(values)
    if not ordered:
        return {}
    at = {"median": 0.5, "p90": 0.9}
    places = {f"{name}, {label}": float(ordered[min(len(ordered) - 1, int(share * len(ordered)))]) for label, share in at.items()}
    return {**places, f"{name}, mean": sum(ordered) / len(ordered)}
