"""Which visible results show which names, which of them are reads of which file, and which errors wait for a success."""

from collections.abc import Callable, Container, Iterable, Mapping

from palimpsest.audit.entities import names_of, names_used
from palimpsest.audit.tools.calls import Action, ToolClass, action_of, result_text
from palimpsest.audit.tools.file_access import FileAccess
from palimpsest.core.items import Content, Item, ToolCall, ToolResult
from palimpsest.core.pairs import answered_calls, pairs_of
from palimpsest.core.situation import Use
from palimpsest.core.view import is_readable


class ResultIndex:
    """What the results of a view show; it is worked out from the view, and goes on as results arrive."""

    def __init__(self) -> None:
        # Names in the order their results stand in the view, so that the first and the newest are the ends.
        self._names: dict[str, list[str]] = {}
        self._reads: dict[str, list[tuple[str, FileAccess]]] = {}
        self._errors: dict[str, list[str]] = {}
        # The calls that wait for their results, by id: only replies of 0.1.0 have several with one id.
        self.calls: dict[str, list[ToolCall]] = {}

    def add(self, item_id: str, use: Use, call: ToolCall | None, names: Iterable[str], action: Action | None) -> None:
        """One more result; acknowledgements show nothing that anybody would look for."""
        if use.kind != "acknowledgement":
            for name in names:
                self._names.setdefault(name, []).append(item_id)
        if action is None or call is None:
            return
        if use.kind == "read":
            for touched in action.paths:
                self._reads.setdefault(normalized_path(touched.path), []).append((item_id, touched))
        if use.failed:
            self._errors.setdefault(command_key(call, action), []).append(item_id)

    def take_call(self, call_id: str) -> ToolCall | None:
        """Take off and return the oldest call that waits for a result of this id; none if no call does."""
        calls = self.calls.pop(call_id, None)
        if not calls:
            return None
        if len(calls) > 1:
            self.calls[call_id] = calls[1:]
        return calls[0]

    def hide(self, item_id: str, names: Iterable[str]) -> None:
        """A result is covered: its names no longer show there, though it is still a read, or an error that waits."""
        for name in names:
            shown = self._names.get(name)
            if shown and item_id in shown:
                shown.remove(item_id)
                if not shown:
                    del self._names[name]

    def results_naming(self, names: Iterable[str]) -> set[str]:
        """The newest and the first result that showed each of some names."""
        found: set[str] = set()
        for name in names:
            shown = self._names.get(name)
            if shown:
                found.update((shown[0], shown[-1]))
        return found

    def superseded(self, action: Action) -> list[str]:
        """The reads that an action leaves behind: of a file that it changes, or of what it reads again."""
        found: list[str] = []
        for touched in action.paths:
            path = normalized_path(touched.path)
            if touched.changes or action.kind == "read":
                reads = self._reads.get(path, ())
                found += [name for name, earlier in reads if touched.changes or _rereads(touched, earlier)]
            if touched.how == "remove":
                # With a folder goes what is in it.
                below = f"{path.rstrip('/')}/"
                found += [name for read, reads in self._reads.items() if read.startswith(below) for name, _ in reads]
        return found

    def resolved_errors(self, call: ToolCall, action: Action) -> list[str]:
        """The errors that a success of the same command settles."""
        return self._errors.pop(command_key(call, action), [])


def _rereads(later: FileAccess, earlier: FileAccess) -> bool:
    return later.whole or (later.first, later.last) == (earlier.first, earlier.last)


def normalized_path(path: str) -> str:
    """A path as it is compared."""
    return path.removeprefix("./")


def command_key(call: ToolCall, action: Action) -> str:
    """What makes two calls the same command: the line, the file, or else all arguments."""
    about = action.command or (normalized_path(action.paths[0].path) if action.paths else call.args)
    return f"{call.tool} {about}"


def names_in_reply(parts: Iterable[Content], told: Callable[[Content], Iterable[str]] = names_used) -> dict[str, None]:
    """The names and paths that a reply uses, in its words and in its calls."""
    found: dict[str, None] = {}
    for part in parts:
        found.update(dict.fromkeys(told(part)))
        if isinstance(part, ToolCall):
            found.update((normalized_path(touched.path), None) for touched in action_of(part).paths)
    return found


def names_in_result(result: ToolResult, action: Action | None) -> tuple[str, ...]:
    """The names that a result shows; its own files are among them."""
    names = dict.fromkeys(names_of(result_text(result)))
    if action is not None:
        names.update((normalized_path(touched.path), None) for touched in action.paths)
    return tuple(names)


def results_in(items: Iterable[Item]) -> Iterable[tuple[Item, ToolResult, ToolCall | None]]:
    """Every result of a view with the call it answers."""
    items = tuple(items)
    calls = answered_calls(items)
    for item in items:
        if isinstance(item.content, ToolResult):
            yield item, item.content, calls.get(item.id)


def calls_by_id(contents: Iterable[Content]) -> dict[str, list[ToolCall]]:
    """The calls among some contents by their ids, in order."""
    calls: dict[str, list[ToolCall]] = {}
    for content in contents:
        if isinstance(content, ToolCall):
            calls.setdefault(content.call_id, []).append(content)
    return calls


def index_results(
    items: Iterable[Item],
    uses: Mapping[str, Use],
    known: dict[str, tuple[str, ...]],
    declared: Mapping[str, ToolClass] | None = None,
    names_of_result: Callable[[ToolResult, Action | None], tuple[str, ...]] = names_in_result,
) -> ResultIndex:
    """What the results of a view show; `known` remembers the names of each, so that no text is looked at twice."""
    items = tuple(items)
    index = ResultIndex()
    answered = {call.id for call, _ in pairs_of(items)}
    index.calls = calls_by_id(item.content for item in items if item.id not in answered)
    for item, result, call in results_in(items):
        use = uses.get(item.id)
        if use is None:
            continue
        action = action_of(call, declared) if call is not None else None
        names: tuple[str, ...] = ()
        if is_readable(item):
            if item.id not in known:
                known[item.id] = names_of_result(result, action)
            names = known[item.id]
        index.add(item.id, use, call, names, action)
    return index


def without_hidden(known: dict[str, tuple[str, ...]], shown: Container[str]) -> dict[str, tuple[str, ...]]:
    """What is remembered of results that are still in the view."""
    return {name: names for name, names in known.items() if name in shown}
