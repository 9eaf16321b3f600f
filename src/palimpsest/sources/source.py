"""Context sources: what they observe, how they state it, and the port through which they observe the world."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.format.tags import within, without_own_voice
from palimpsest.core.items import EMPTY_MAPPING, Role
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
    config: folder of the user's own instructions and skills; empty is the default folder of the profile.
    folders: folders beside the project that the user granted.
    window: context window in tokens, 0 if unknown.
    tools, deferred: the tools that are loaded, and those that are listed by name and loaded on demand.
    agents: descriptions of the agent types that can be started, by name; `subagents` are the running ones with their nicknames.
    tasks: one line for each ready or running task.
    todos: the lines of the todo list, if the view was folded since and shows it nowhere else. `folded`: whether the view was folded.
    business: name and meaning of the business state.
    mcp: instructions of each MCP server, by its name. `references`: path and description of reference folders, by name.
    texts: texts that the engine or the user gives for a source, by its key, such as `session_start`, `memory` or `developer`.
    """

    cwd: str
    home: str = ""
    config: str = ""
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
    loaded_skills: tuple[str, ...] = ()
    tokens_left: int | None = None
    mcp: Fields = EMPTY_MAPPING
    references: Mapping[str, tuple[str, str]] = EMPTY_MAPPING
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
