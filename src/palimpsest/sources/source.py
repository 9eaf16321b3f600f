"""Context sources, the port through which they observe the world, and the statements that make a view current again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import ContextStated, Statement
from palimpsest.core.items import EMPTY_MAPPING, Role, Text, seq_of
from palimpsest.core.text import within, without_own_voice
from palimpsest.core.view import CHANGED, Fact, View
from palimpsest.wire.request import Tool

Place: TypeAlias = Literal["head", "start", "end"]
"""Where a source stands at the start of an epoch: in the head, before the first prompt, or after all others directly before a prompt."""

Fields: TypeAlias = Mapping[str, str]
"""An observed value: named texts, in the order in which they are stated."""

LONGEST_RECORDED: Final = 120
"""Characters above which a field is recorded as its digest; the statement itself holds the text."""

_fields = msgspec.json.Decoder(dict[str, str])


class FolderEntry(NamedTuple):
    """An entry of a folder."""

    name: str
    is_folder: bool


class GitFacts(Struct, frozen=True):
    """State of the git repository at one time. `status` and `commits` are lines, already bounded."""

    branch: str
    main_branch: str = ""
    status: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()


class NetworkPolicy(Struct, frozen=True):
    """Whether commands may use the network, and the domains that are allowed or denied."""

    enabled: bool = True
    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()


class SessionState(Struct, frozen=True, kw_only=True):
    """What the engine knows without reading a file.

    cwd, home: absolute paths with forward slashes.
    folders: folders beside the project that the user granted.
    window: context window in tokens, 0 if unknown.
    tools, deferred: the tools that are loaded, and those that are listed by name and loaded on demand.
    agents: descriptions of the agent types that can be started, by name; `subagents` are the running ones with their nicknames.
    tasks: one line for each ready or running task.
    todos: the lines of the todo list, if the view was folded since and shows it nowhere else. `folded`: whether the view was folded.
    business: name and meaning of the business state.
    mcp: instructions of each MCP server, by its name.
    texts: texts that the engine or the user gives for a source, by its key, such as `session_start`, `memory` or `developer`.
    """

    cwd: str
    home: str = ""
    folders: tuple[str, ...] = ()
    platform: str = ""
    os_version: str = ""
    shell_name: str = ""
    timezone: str = ""
    model: str = ""
    window: int = 0
    mode: str = ""
    personality: str = ""
    sandbox: str = ""
    approval: str = ""
    writable: tuple[str, ...] = ()
    network: NetworkPolicy | None = None
    tools: tuple[Tool, ...] = ()
    deferred: tuple[Tool, ...] = ()
    agents: Fields = EMPTY_MAPPING
    subagents: Fields = EMPTY_MAPPING
    tasks: tuple[str, ...] = ()
    todos: tuple[str, ...] = ()
    folded: bool = False
    business: tuple[str, str] | None = None
    mcp: Fields = EMPTY_MAPPING
    texts: Fields = EMPTY_MAPPING


class World(Protocol):
    """Reads the world for sources. Every answer is bounded in size and time; what cannot be read does not exist."""

    @property
    def state(self) -> SessionState:
        """What is known without reading a file."""
        ...

    def read(self, path: str, limit: int) -> bytes | None:
        """Return at most the first `limit` bytes of a regular file; `None` if there is none that can be read."""
        ...

    def entries(self, folder: str) -> tuple[FolderEntry, ...]:
        """Return the entries of a folder, sorted by name; empty if there is no such folder. Links to folders are no folders."""
        ...

    def real_path(self, path: str) -> str | None:
        """Return the absolute path with links followed; `None` if nothing is there."""
        ...

    def glob(self, folder: str, pattern: str) -> tuple[str, ...]:
        """Return the absolute paths of the files below a folder whose relative path matches a pattern, sorted."""
        ...

    def fetch(self, url: str, limit: int) -> str | None:
        """Return at most the first `limit` bytes of a page as text; `None` if it fails, is private, or takes more than 5 seconds."""
        ...

    @property
    def unfetched(self) -> Mapping[str, str]:
        """The addresses that `fetch` was asked for and could not fetch, each with the reason."""
        ...

    def git(self) -> GitFacts | None:
        """Return the state of the git repository of the working directory; `None` if it is in none."""
        ...

    def today(self) -> str:
        """Return the local date as `YYYY-MM-DD`."""
        ...


@dataclass(frozen=True, slots=True)
class Source:
    """A source of context.

    key: its name in the log, unique in a source set.
    observe: returns the current value, `None` if there is nothing to state.
    baseline: returns the full statement of a value.
    change: returns the statement of a changed value, given the value of the baseline that is still visible, or `None` if the change must
        be stated in full. An empty text states nothing. Without it a change is stated like a baseline.
    removal: the statement that the value no longer exists; an empty text states nothing.
    is_required: observed before a session starts, which a `BadInput` of it then does not.
    covered_by: key of an earlier source; nothing is stated while the value of that one contains all fields of this one.
    """

    key: str
    observe: Callable[[World], Fields | None]
    baseline: Callable[[Fields], str]
    change: Callable[[Fields | None, Fields], str] | None = None
    role: Role = "user"
    place: Place = "start"
    removal: str = ""
    covered_by: str = ""
    is_required: bool = False

    def observed(self, world: World) -> Fields | None:
        """Return what is observed, if anything is; whatever the world holds, it does not speak as the program does."""
        found = self.observe(world) or {}
        return {without_own_voice(name): without_own_voice(text) for name, text in found.items()} or None

    def update(self, previous: Fields | None, fields: Fields) -> str:
        """Return the statement of a change since the baseline with the value `previous`; empty if none is needed."""
        return self.baseline(fields) if self.change is None else self.change(previous, fields)


@dataclass(frozen=True, slots=True)
class SourceSet:
    """The sources of a profile, in the order of their statements.

    after_fold: keys in the order in which they are stated after a fold; sources that are not named follow in their usual order.
    renews_head: whether a fold starts a new epoch if the head is no longer current. Otherwise changes of the head stay at the end.
    """

    sources: tuple[Source, ...] = ()
    after_fold: tuple[str, ...] = ()
    renews_head: bool = True
    _rank: dict[str, int] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._rank.update({key: rank for rank, key in enumerate(self.after_fold)})

    def ordered(self, *, folded: bool) -> tuple[Source, ...]:
        """Return the sources in the order of their statements: head, start, end; in `after_fold` order if a fold just happened."""
        places = ("head", "start", "end")
        last = len(self._rank)
        return tuple(
            sorted(self.sources, key=lambda source: (places.index(source.place), self._rank.get(source.key, last) if folded else 0))
        )


def observe(sources: SourceSet, world: World, failed: Callable[[str, BaseException], None] = lambda *_: None) -> dict[str, Fields | None]:
    """Return the value of each source; sources that fail are left out, so that nothing is concluded about them.

    `failed` gets the key of a source and what it raised, unless it is an error of ours, such as a file that cannot be read now.
    """
    values: dict[str, Fields | None] = {}
    for source in sources.sources:
        try:
            values[source.key] = source.observed(world)
        except PalimpsestError:
            continue
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a source of another author may raise anything
            failed(source.key, error)
    return values


def recorded(fields: Fields) -> str:
    """Return a value as it is recorded with its statement: JSON of all fields, long ones by their digest."""
    return msgspec.json.encode({name: _short(text) for name, text in fields.items()}).decode()


def recorded_fields(value: str) -> dict[str, str] | None:
    """Return the fields of a recorded value; `None` if it was not recorded by this version."""
    try:
        return _fields.decode(value)
    except (msgspec.DecodeError, UnicodeError):
        return None


def differing(previous: Fields, fields: Fields) -> frozenset[str]:
    """Return the names of the fields that were added, removed or changed; both may be observed or recorded."""
    one = {(name, _short(text)) for name, text in previous.items()}
    other = {(name, _short(text)) for name, text in fields.items()}
    return frozenset(name for name, _ in one ^ other)


def covers(outer: Fields, inner: Fields) -> bool:
    """Return whether a value contains all fields of another one."""
    return all(name in outer and _short(outer[name]) == _short(text) for name, text in inner.items())


def _short(text: str) -> str:
    if len(text) <= LONGEST_RECORDED:
        return text
    return f"sha256:{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def reminder(text: str) -> str:
    """Return a text in the tag of a system reminder, for statements in the role of the user; the text cannot close the tag."""
    return within("system-reminder", text)


def given(key: str, role: Role = "user", place: Place = "start", frame: Callable[[str], str] = str.strip, removal: str = "") -> Source:
    """Return a source that states the text which the engine or the user gives under its key, within a frame."""

    def observed(world: World) -> Fields | None:
        text = world.state.texts.get(key, "")
        return {"text": text} if text.strip() else None

    return Source(key, observed, lambda fields: frame(fields["text"]), role=role, place=place, removal=removal)


GONE: Final = "{}"
"""Recorded value of the statement that a source no longer has a value; no observed value is empty."""

_REPLIES: Final = frozenset({"assistant", "thinking", "call"})


def reconcile(view: View, sources: SourceSet, observations: Mapping[str, Fields | None], *, renew: bool = False) -> ContextStated | None:
    """Return the statements that make the view current, or `None` if it already is.

    Without a head of these sources, a head is stated, which starts an epoch. In an epoch the head stays as it is: a changed value is stated
    at the end. A value whose statement is no longer visible, because it was folded or masked, is stated in full again. Directly after
    a fold, a head that is no longer current is replaced, if the source set renews it. Sources without an observation are left as they are.
    With `renew` a head that is no longer current is replaced in any case, because it shows what must not be shown again.
    """
    folded = is_just_folded(view)
    order = [source for source in sources.ordered(folded=folded) if source.key in observations]
    renews = renew or (folded and sources.renews_head)
    head = _new_head(view, sources, order, observations, renews=renews)
    stated = {statement.source: statement for statement in head or ()}
    valid: dict[str, Fields] = {}
    items: list[Statement] = []
    for source in order:
        fields = observations[source.key]
        if head is not None and source.place == "head":
            valid[source.key] = fields if source.key in stated and fields is not None else {}
            continue
        known = _known(view, source.key)
        if source.covered_by and fields is not None and covers(valid.get(source.covered_by, {}), fields):
            continue
        statement = _statement(source, known, fields)
        if statement is not None:
            items.append(statement)
            valid[source.key] = fields or {}
        else:
            valid[source.key] = known.fields or {}
    return ContextStated(tuple(items), head) if items or head is not None else None


def folded_at(view: View) -> int:
    """Return the event of the newest fold that left a summary in the view, -1 if there is none."""
    return max((seq_of(item.id) for item in view.items if item.kind == "summary" and item.id.count(".") == 2), default=-1)


def is_just_folded(view: View) -> bool:
    """Return whether the view was folded after its head was stated and no model has replied since, so that no cached prefix is lost."""
    newest = folded_at(view)
    if newest < 0 or (view.head and seq_of(view.head[0].id) > newest):
        return False
    return not any(item.kind in _REPLIES and seq_of(item.id) > newest for item in view.items)


def outdated_by_fold(view: View, observations: Mapping[str, Fields | None]) -> tuple[str, ...]:
    """Return the ids of statements that the newest fold kept and that differ from what is observed now.

    After a fold the present state is stated in full; an older statement of it beside that would contradict it.
    """
    fold = folded_at(view)
    found: list[str] = []
    for key, fields in observations.items():
        facts = [fact for fact in (view.facts.get(key), view.facts.get(key + CHANGED)) if fact is not None]
        newest = max(facts, key=lambda fact: seq_of(fact.id), default=None)
        if newest is None or seq_of(newest.id) > fold or newest.value == (GONE if fields is None else recorded(fields)):
            continue
        found += [fact.id for fact in facts]
    return tuple(found)


def stated_value(view: View, key: str) -> Fields | None:
    """Return the newest visible value of a source, long fields by their digest; `None` if none is visible or it is gone."""
    return _known(view, key).fields or None


class _Known(NamedTuple):
    """What the view states of a source: the baseline, and the newest statement, which is the baseline or a change of it."""

    base: Fact | None
    newest: Fact | None

    @property
    def fields(self) -> Fields | None:
        return None if self.newest is None else recorded_fields(self.newest.value)


def _known(view: View, key: str) -> _Known:
    base, change = view.facts.get(key), view.facts.get(key + CHANGED)
    if base is None:
        # A change without its baseline is incomplete.
        return _Known(None, None)
    return _Known(base, change if change is not None and seq_of(change.id) > seq_of(base.id) else base)


def _statement(source: Source, known: _Known, fields: Fields | None) -> Statement | None:
    base, newest = known
    if base is None or newest is None:
        if fields is None:
            return None
        text = source.update(None, fields) if source.place == "head" else source.baseline(fields)
        return Statement(source.key, text, source.role, recorded(fields)) if text else None
    value = GONE if fields is None else recorded(fields)
    if newest.value == value:
        return None
    # Back at the value of the baseline there is no difference left to state.
    previous = None if value == base.value else recorded_fields(base.value)
    text = source.removal if fields is None else source.update(previous, fields)
    return Statement(source.key + CHANGED, text, source.role, value) if text else None


def _new_head(
    view: View, sources: SourceSet, order: list[Source], observations: Mapping[str, Fields | None], *, renews: bool
) -> tuple[Statement, ...] | None:
    """Return the statements of a new head, or `None` if the head stays."""
    keys = {source.key for source in sources.sources if source.place == "head"}
    missing = not any(item.source in keys for item in view.head)
    if not missing and not (renews and keys <= observations.keys()):
        return None
    head = tuple(
        Statement(source.key, text, source.role, recorded(fields))
        for source in order
        if source.place == "head" and (fields := observations[source.key]) is not None and (text := source.baseline(fields))
    )
    if missing:
        return head or None
    current = [(item.source, item.content) for item in view.head]
    return None if [(each.source, Text(each.text, each.role, ref=each.ref)) for each in head] == current else head
