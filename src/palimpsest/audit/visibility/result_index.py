"""Index of the visible results: the names they show, the files they read, and the errors that a success would resolve."""

from collections.abc import Callable, Iterable, Mapping

from palimpsest.audit.entities import names_of, names_used
from palimpsest.audit.tools.calls import Action, action_of, result_text
from palimpsest.audit.tools.file_commands import FileAccess
from palimpsest.core.items import Content, Item, ToolCall, ToolResult
from palimpsest.core.pairs import answered_calls, pairs_of
from palimpsest.core.situation import Use
from palimpsest.core.view import is_readable


class ResultIndex:
    """Index of the results of a view; built once and then extended as results arrive."""

    def __init__(self) -> None:
        # By name the ids of results in view order, so that first and newest are the ends.
        self._names: dict[str, list[str]] = {}
        self._reads: dict[str, list[tuple[str, FileAccess]]] = {}
        self._errors: dict[str, list[str]] = {}
        # By id; only replies of 0.1.0 have several calls with one id.
        self.pending_calls: dict[str, list[ToolCall]] = {}

    def add(self, item_id: str, use: Use, call: ToolCall | None, names: Iterable[str], action: Action | None) -> None:
        """Add a result; names in acknowledgements are not indexed."""
        if use.kind != "acknowledgement":
            for name in names:
                self._names.setdefault(name, []).append(item_id)
        if action is None or call is None:
            return
        if use.kind == "read":
            for access in action.paths:
                self._reads.setdefault(normalized_path(access.path), []).append((item_id, access))
        if use.failed:
            self._errors.setdefault(command_key(call, action), []).append(item_id)

    def take_call(self, call_id: str) -> ToolCall | None:
        """Remove and return the oldest pending call with this id; `None` if there is none."""
        calls = self.pending_calls.pop(call_id, None)
        if not calls:
            return None
        if len(calls) > 1:
            self.pending_calls[call_id] = calls[1:]
        return calls[0]

    def hide(self, item_id: str, names: Iterable[str]) -> None:
        """Remove the names of a masked result; it still counts as a read or as an open error."""
        for name in names:
            ids = self._names.get(name)
            if ids and item_id in ids:
                ids.remove(item_id)
                if not ids:
                    del self._names[name]

    def results_naming(self, names: Iterable[str]) -> set[str]:
        """The ids of the first and newest result that show each of the names."""
        found: set[str] = set()
        for name in names:
            ids = self._names.get(name)
            if ids:
                found.update((ids[0], ids[-1]))
        return found

    def superseded(self, action: Action) -> list[str]:
        """The ids of reads that an action makes out of date: of files that it changes, or reads again."""
        found: list[str] = []
        for access in action.paths:
            path = normalized_path(access.path)
            if access.changes or action.kind == "read":
                reads = self._reads.get(path, ())
                found += [name for name, earlier in reads if access.changes or _rereads(access, earlier)]
            if access.how == "remove":
                # Removing a folder removes the files in it.
                below = f"{path.rstrip('/')}/"
                found += [name for read, reads in self._reads.items() if read.startswith(below) for name, _ in reads]
        return found

    def resolved_errors(self, call: ToolCall, action: Action) -> list[str]:
        """Remove and return the ids of errors that a success of the same command resolves."""
        return self._errors.pop(command_key(call, action), [])


def _rereads(later: FileAccess, earlier: FileAccess) -> bool:
    return later.whole or (later.first, later.last) == (earlier.first, earlier.last)


def normalized_path(path: str) -> str:
    """The path as it is compared, without a leading `./`."""
    return path.removeprefix("./")


def command_key(call: ToolCall, action: Action) -> str:
    """The key by which calls are the same command: the command line, the path, or else all arguments."""
    about = action.command or (normalized_path(action.paths[0].path) if action.paths else call.args)
    return f"{call.tool} {about}"


def names_in_reply(parts: Iterable[Content], names_of_part: Callable[[Content], Iterable[str]] = names_used) -> dict[str, None]:
    """The names and paths in the texts and calls of a reply."""
    found: dict[str, None] = {}
    for part in parts:
        found.update(dict.fromkeys(names_of_part(part)))
        if isinstance(part, ToolCall):
            found.update((normalized_path(access.path), None) for access in action_of(part).paths)
    return found


def names_in_result(result: ToolResult, action: Action | None) -> tuple[str, ...]:
    """The names and paths in a result, and the paths of its call."""
    names = dict.fromkeys(names_of(result_text(result)))
    if action is not None:
        names.update((normalized_path(access.path), None) for access in action.paths)
    return tuple(names)


def results_in(items: Iterable[Item]) -> Iterable[tuple[Item, ToolResult, ToolCall | None]]:
    """The results of a view with their calls."""
    items = tuple(items)
    calls = answered_calls(items)
    for item in items:
        if isinstance(item.content, ToolResult):
            yield item, item.content, calls.get(item.id)


def calls_by_id(contents: Iterable[Content]) -> dict[str, list[ToolCall]]:
    """Calls by id, in order."""
    calls: dict[str, list[ToolCall]] = {}
    for content in contents:
        if isinstance(content, ToolCall):
            calls.setdefault(content.call_id, []).append(content)
    return calls


def index_results(
    items: Iterable[Item],
    uses: Mapping[str, Use],
    cached_names: dict[str, tuple[str, ...]],
    names_of_result: Callable[[ToolResult, Action | None], tuple[str, ...]] = names_in_result,
) -> ResultIndex:
    """Index the results of a view; `cached_names` caches the names of each result by item id."""
    items = tuple(items)
    index = ResultIndex()
    answered = {call.id for call, _ in pairs_of(items)}
    index.pending_calls = calls_by_id(item.content for item in items if item.id not in answered)
    for item, result, call in results_in(items):
        use = uses.get(item.id)
        if use is None:
            continue
        action = action_of(call) if call is not None else None
        names: tuple[str, ...] = ()
        if is_readable(item):
            if item.id not in cached_names:
                cached_names[item.id] = names_of_result(result, action)
            names = cached_names[item.id]
        index.add(item.id, use, call, names, action)
    return index
