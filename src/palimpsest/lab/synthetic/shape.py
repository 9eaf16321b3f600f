"""The shape of sessions in numbers: sizes, tools, gaps, failures, re-reads and references, by which made-up ones are held to real ones."""

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
from palimpsest.lab.simulation.rereads import plain_name

CLASSES: Final[tuple[ToolClass, ...]] = ("read", "command", "search", "edit", "write", "agent", "plan", "other")
_LARGE: Final = 100
_SHOWN_NAMES: Final = 400
_FAR: Final = (10, 40, 100)
_MINUTE: Final = 60_000
_LONG_GAP: Final = 5 * _MINUTE


class Shape(Value, frozen=True):
    """Figures by name, in the order they are shown; each is a number of something or a share in percent."""

    sessions: int
    figures: dict[str, float]


@dataclass(slots=True)
class _Result:
    """A large result: its tokens, the call after which it came, and the last call that named something from it."""

    tokens: int
    arrived: int
    named: int = -1


@dataclass
class Tally:
    """Figures in the making, over any number of sessions."""

    sessions: int = 0
    tokens: dict[str, int] = field(default_factory=dict)
    sizes: dict[ToolClass, list[int]] = field(default_factory=dict)
    said: list[int] = field(default_factory=list)
    chinese: int = 0
    replies: list[int] = field(default_factory=list)
    side_by_side: int = 0
    away: list[int] = field(default_factory=list)
    between: list[int] = field(default_factory=list)
    failures: dict[ToolClass, int] = field(default_factory=dict)
    reads: int = 0
    reads_again: int = 0
    edits: int = 0
    edits_of_read: int = 0
    results: list[_Result] = field(default_factory=list)
    reaches: list[int] = field(default_factory=list)

    def take(self, events: Iterable[Event]) -> None:
        """One more session."""
        self.sessions += 1
        session = _Session(self)
        for event in events:
            session.take(event)
        session.end()

    def shape(self) -> Shape:
        """The figures of all sessions together."""
        total = sum(self.tokens.values()) or 1
        calls = sum(map(len, self.sizes.values())) or 1
        found: dict[str, float] = {
            **{f"tokens, {kind} %": 100 * self.tokens.get(kind, 0) / total for kind in ("results", "calls", "replies", "user", "context")},
            **_spread("replies a turn", self.replies),
            "replies with several calls %": _share(self.side_by_side, sum(self.replies)),
            **_spread("user message, tokens", self.said),
            "user messages in Chinese %": _share(self.chinese, len(self.said)),
            **_spread("user away, minutes", [gap / _MINUTE for gap in self.away]),
            "user away over 5 minutes %": _share(sum(gap > _LONG_GAP for gap in self.away), len(self.away)),
            **_spread("between calls, seconds", [gap / 1_000 for gap in self.between]),
        }
        for kind in CLASSES:
            sizes = self.sizes.get(kind, [])
            found[f"{kind}, of all calls %"] = _share(len(sizes), calls)
            found |= _spread(f"{kind}, tokens", sizes)
        found |= {
            "commands that fail %": _share(self.failures.get("command", 0), len(self.sizes.get("command", ()))),
            "edits that fail %": _share(self.failures.get("edit", 0), len(self.sizes.get("edit", ()))),
            "reads of a file read before %": _share(self.reads_again, self.reads),
            "edits of a file read or edited before %": _share(self.edits_of_read, self.edits),
            "results named later %": _share(sum(each.named >= 0 for each in self.results), len(self.results)),
            "their tokens %": _share(
                sum(each.tokens for each in self.results if each.named >= 0), sum(each.tokens for each in self.results)
            ),
            **_spread("last named after, calls", [each.named - each.arrived for each in self.results if each.named >= 0]),
            **{
                f"replies whose calls name what last stood {far} calls back %": _share(
                    sum(reach > far for reach in self.reaches), sum(self.replies)
                )
                for far in _FAR
            },
        }
        return Shape(self.sessions, {name: float(f"{value:.3g}") for name, value in found.items()})


class _Session:
    """One session as it goes by."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._calls: dict[str, ToolCall] = {}
        self._touched: set[str] = set()
        self._read: set[str] = set()
        self._showing: dict[str, list[_Result]] = {}
        # When each name last stood anywhere, counted in replies.
        self._stood: dict[str, int] = {}
        self._replies = self._turn = 0
        self._last: int | None = None

    def take(self, event: Event) -> None:
        match event.body:
            case UserSaid() as body:
                self._user(event.at, body)
            case ModelReplied() as body:
                self._reply(event.at, body)
            case ToolReturned() as body:
                self._result(event.at, body)
            case ContextStated() as body:
                self._weigh("context", [Text(each.text) for each in (*(body.head or ()), *body.items)])
            case _:
                pass

    def end(self) -> None:
        if self._turn:
            self._tally.replies.append(self._turn)

    def _weigh(self, kind: str, contents: Iterable[Content]) -> int:
        tokens = sum(map(palimpsest_size, contents))
        self._tally.tokens[kind] = self._tally.tokens.get(kind, 0) + tokens
        return tokens

    def _user(self, at: int, body: UserSaid) -> None:
        tally = self._tally
        tally.said.append(self._weigh("user", body.parts))
        self._stand(body.parts)
        texts = "".join(part.text for part in body.parts if isinstance(part, Text))
        tally.chinese += any("\u4e00" <= sign <= "\u9fff" for sign in texts[:2_000])
        if body.steering:
            return
        if self._turn:
            tally.replies.append(self._turn)
            if self._last is not None and at >= self._last:
                tally.away.append(at - self._last)
        self._turn = 0
        self._last = at

    def _reply(self, at: int, body: ModelReplied) -> None:
        calls = [part for part in body.parts if isinstance(part, ToolCall)]
        self._weigh("calls", calls)
        self._weigh("replies", [part for part in body.parts if not isinstance(part, ToolCall)])
        self._calls |= {call.call_id: call for call in calls}
        self._replies += 1
        self._turn += 1
        self._tally.side_by_side += len(calls) > 1
        if self._last is not None and self._turn > 1 and at >= self._last:
            self._tally.between.append(at - self._last)
        self._last = at
        used = {plain_name(name) for call in calls for name in names_of("\n".join(argument_texts(call)))}
        self._tally.reaches += [max((self._replies - self._stood[name] for name in used if name in self._stood), default=0)]
        self._stand(body.parts)
        for name in names_in_reply(body.parts):
            for result in self._showing.get(name, ())[-1:]:
                result.named = self._replies

    def _result(self, at: int, body: ToolReturned) -> None:
        tally = self._tally
        call = self._calls.pop(body.result.call_id, None)
        action = action_with(call, body) if call is not None else Action("other")
        tokens = self._weigh("results", (body.result,))
        self._stand((body.result,))
        tally.sizes.setdefault(action.kind, []).append(tokens)
        failed = body.result.error or (action.kind == "command" and exit_of(body) not in (None, 0))
        tally.failures[action.kind] = tally.failures.get(action.kind, 0) + failed
        if call is not None and not failed:
            self._touch(action)
        if tokens > _LARGE and action.kind not in ("edit", "write"):
            result = _Result(tokens, self._replies)
            tally.results.append(result)
            for name in names_in_result(body.result, action_of(call) if call is not None else None)[:_SHOWN_NAMES]:
                self._showing.setdefault(name, []).append(result)
        self._last = at

    def _stand(self, contents: Iterable[Content]) -> None:
        self._stood.update((plain_name(name), self._replies) for content in contents for name in names_of(readable_text(content)))

    def _touch(self, action: Action) -> None:
        tally = self._tally
        for touched in action.paths:
            path = normalized_path(touched.path)
            if touched.how == "read":
                tally.reads += 1
                tally.reads_again += path in self._read
                self._read.add(path)
            elif touched.how in ("edit", "write"):
                tally.edits += 1
                tally.edits_of_read += path in self._touched
            self._touched.add(path)


def _share(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0


def _spread(name: str, values: list[int] | list[float]) -> dict[str, float]:
    """Median, nine tenths, and mean."""
    ordered = sorted(values)
    if not ordered:
        return {}
    at = {"median": 0.5, "p90": 0.9}
    places = {f"{name}, {label}": float(ordered[min(len(ordered) - 1, int(share * len(ordered)))]) for label, share in at.items()}
    return {**places, f"{name}, mean": sum(ordered) / len(ordered)}
