"""Schema of the configuration, also of terminal and hooks, and the commented text of a new configuration file."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Meta, Struct, structs

from palimpsest.core.events import HookMoment
from palimpsest.core.redaction import Credential
from palimpsest.stores.memory_config import Budget, MemoryConfig, Number, Span
from palimpsest.wire.models import DEFAULT_MODEL

HOOK_SECONDS: Final = 60.0
MOST_HOOKS: Final = 100
_NAME_CHARS: Final = 40


class HookConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table `[[hooks]]`: a command that runs at a moment of a session.

    tool: pattern for the name of the tool, only for `before_tool` and `after_tool`.
    seconds: the time limit.
    """

    moment: HookMoment
    command: Annotated[str, Meta(min_length=1, max_length=10_000)]
    tool: Annotated[str, Meta(min_length=1, max_length=200)] = "*"
    seconds: Annotated[float, Meta(gt=0, le=3_600)] = HOOK_SECONDS
    name: Annotated[str, Meta(max_length=80)] = ""

    @property
    def called(self) -> str:
        """Its name, else that of its program."""
        return self.name or command_name(self.command)


def command_name(command: str) -> str:
    """The file name of the program that a shell line begins with, on one line of at most 40 characters."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    name = " ".join(PurePath(words[0]).name.split()) if words else ""
    return "".join(letter for letter in name if letter.isprintable())[:_NAME_CHARS] or "command"


ThemeName: TypeAlias = Literal["dark", "light"]
NotifyWay: TypeAlias = Literal["off", "bell", "terminal", "desktop"]
_Wait: TypeAlias = Annotated[float, Meta(gt=0, le=31_536_000)]


class TerminalConfig(Struct, frozen=True, kw_only=True):
    """How the terminal looks and what it runs. A project file may set none of it: commands run with the authority of the user."""

    theme: Annotated[ThemeName, Meta(description="Colours for a dark or a light terminal; `/theme` changes it.")] = "dark"
    notify: Annotated[
        NotifyWay,
        Meta(
            description="When a turn ends or asks: off, bell, terminal (OSC 9, also over ssh) or desktop (notify-send, osascript, "
            "else as terminal)."
        ),
    ] = "bell"
    notify_command: Annotated[
        str,
        Meta(
            description="Command that runs as well when a turn ends or asks, with JSON on standard input.",
            extra={"example": '"paplay done.ogg"'},
        ),
    ] = ""
    notify_seconds: Annotated[_Wait, Meta(description="Seconds since you last sent something, from which you are notified.")] = 10.0
    status_command: Annotated[
        str,
        Meta(
            description="Command whose first line replaces the status line, with JSON on standard input; it runs after turns.",
            extra={"example": '"~/.config/status.sh"'},
        ),
    ] = ""
    status_seconds: Annotated[_Wait, Meta(description="Seconds that the command of the status line has.")] = 2.0


DEFAULT_TIMEOUT_S: Final = 600.0
DEFAULT_LARGEST_MB: Final = 10

_Count: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000)]
_TurnTokens: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000_000_000)]
_Level: TypeAlias = Annotated[int, Meta(ge=1, le=64)]
_Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=31_536_000)]
_Dollars: TypeAlias = Annotated[float, Meta(gt=0, le=1_000_000)]
_Tokens: TypeAlias = Annotated[int, Meta(ge=0, le=99_999_999_999)]
_Share: TypeAlias = Annotated[str, Meta(pattern=r"^(?:(?:[1-9][0-9]?|100)%|[1-9][0-9_]{0,11})$")]
_Texts: TypeAlias = tuple[str, ...]
_Line: TypeAlias = Annotated[str, Meta(pattern=r"^[^\r\n]*\Z", max_length=300)]

# Keys that a project file may set: they choose a way of working or forbid something, and cannot grant anything.
_PROJECT: Final = {"project": True}


def _example(text: str) -> dict[str, object]:
    """Return the metadata of a key without a default value that TOML can express: the value that a new file shows."""
    return {"example": text}


class ContextConfig(Struct, frozen=True, kw_only=True):
    """Settings of the profiles; `None` leaves a number to the profile."""

    compact_at: Annotated[
        Annotated[int, Meta(ge=1)] | _Share | None,
        Meta(description="Where a fold is due at the latest: tokens, or a share of the window.", extra=_example('"60%"')),
    ] = None
    auto_compact: Annotated[bool, Meta(description="Fold when it is due; false: only when asked, or when a request was too long.")] = True
    thrift: Annotated[
        Literal["careful", "balanced", "thrifty"],
        Meta(description="careful keeps more, thrifty costs less and reads things again more often."),
    ] = "balanced"
    compaction: Annotated[
        Literal["ours", "provider", "auto"],
        Meta(description="Who folds: ours (from the log), provider (its compaction), or auto: by price and loss."),
    ] = "ours"
    narrative: Annotated[
        Literal["off", "asked", "auto"], Meta(description="Whether a model adds an account to a fold: off, asked or auto.")
    ] = "off"
    tail: Annotated[
        _Tokens | None, Meta(description="Tokens of the newest items that a fold keeps; unset: by thrift.", extra=_example("5000"))
    ] = None
    messages: Annotated[
        _Tokens | None, Meta(description="Tokens of user messages that a fold keeps; unset: 20000.", extra=_example("20000"))
    ] = None
    results: Annotated[
        _Tokens | None,
        Meta(description="Tokens of files in work and results in use that a fold keeps; unset: by thrift.", extra=_example("10000")),
    ] = None
    names: Annotated[
        _Tokens | None, Meta(description="Tokens of names that the model used and a fold lists; unset: none.", extra=_example("2400"))
    ] = None
    without: Annotated[
        str,
        Meta(
            description="Parts that a fold leaves out, to measure their worth: dialogue, evidence, work, calls, with + between.",
            extra=_example('"evidence+calls"'),
        ),
    ] = ""
    preview_above: Annotated[
        _Tokens | None, Meta(description="Tokens above which a result arrives as a preview; unset: 25000.", extra=_example("25000"))
    ] = None
    thinking_rethought: Annotated[
        Annotated[int, Meta(ge=0, le=100)] | None,
        Meta(description="Percent of the reasoning an edit costs that its price takes to be thought again.", extra=_example("50")),
    ] = None
    cache_ttl: Annotated[
        Literal["auto", "5m", "1h"],
        Meta(description="How long the provider's prompt cache lives: 5m, 1h, or auto: chosen by your pauses."),
    ] = "auto"
    instructions: Annotated[
        str, Meta(description="Further instruction files, patterns and URLs, with commas between.", extra=_example('"docs/*.md"'))
    ] = ""
    language: Annotated[str, Meta(description="Language of the answers; profiles of Claude Code only.", extra=_example('"Deutsch"'))] = ""
    output_style: Annotated[
        str,
        Meta(
            description="explanatory, learning, or a file of ~/.claude/output-styles by its name; profiles of Claude Code only.",
            extra=_example('"explanatory"'),
        ),
    ] = ""
    scratchpad: Annotated[
        bool, Meta(description="Give each session a folder for temporary files beside the project; profiles of Claude Code only.")
    ] = False
    evidence: Annotated[bool, Meta(description="Add what the log proves to the summaries of profiles that imitate other agents.")] = False


class ProviderConfig(Struct, frozen=True, kw_only=True):
    """How one provider is reached."""

    base_url: Annotated[
        str, Meta(description="Address of the server; unset: that of the provider.", extra=_example('"http://127.0.0.1:8080/v1"'))
    ] = ""
    api_key_env: Annotated[
        str, Meta(description="Environment variable that holds the key; better than api_key.", extra=_example('"MY_API_KEY"'))
    ] = ""
    api_key: Annotated[
        Credential | None, Meta(description="The key itself. Only for a file that others cannot read.", extra=_example('""'))
    ] = None
    headers: Annotated[
        Mapping[str, Credential], Meta(description="Further headers of each request.", extra=_example('{ "X-Team" = "a" }'))
    ] = {}


class PermissionConfig(Struct, frozen=True, kw_only=True):
    """Permission rules as texts; the permissions parse them."""

    allow: Annotated[_Texts, Meta(description="Calls that run without a question, such as bash(pytest).")] = ()
    ask: Annotated[_Texts, Meta(description="Calls that are always asked about.")] = ()
    deny: Annotated[_Texts, Meta(description="Calls that never run. The rules of all files hold together.", extra=_PROJECT)] = ()


class ToolConfig(Struct, frozen=True, kw_only=True):
    """Which tools are offered."""

    disabled: Annotated[_Texts, Meta(description="Tools that are not offered to the model, by name.")] = ()


class AgentConfig(Struct, frozen=True, kw_only=True):
    """Limits of sub-agents; `None` leaves a number to the profile."""

    max_depth: Annotated[
        _Level | None, Meta(description="How deep sub-agents may start others; unset: by profile.", extra=_example("3"))
    ] = None
    max_threads: Annotated[_Level | None, Meta(description="Most sub-agents open at once; unset: by profile.", extra=_example("8"))] = None
    max_turns: Annotated[_Count | None, Meta(description="Most model calls of one task of a sub-agent.", extra=_example("50"))] = None
    max_seconds: Annotated[_Seconds | None, Meta(description="Most seconds of one task of a sub-agent.", extra=_example("1800"))] = None
    max_usd: Annotated[_Dollars | None, Meta(description="Most US dollars of one task of a sub-agent.", extra=_example("1"))] = None
    max_tokens: Annotated[_TurnTokens | None, Meta(description="Most tokens of one task of a sub-agent.", extra=_example("2_000_000"))] = (
        None
    )


class FilesConfig(Struct, frozen=True, kw_only=True):
    """What is kept about the project's files: snapshots, with which a rewind takes back what turns changed."""

    snapshots: Annotated[bool, Meta(description="Keep the state of the project's files around each turn that may change them.")] = True
    largest_mb: Annotated[
        Annotated[int, Meta(ge=1, le=1_000)], Meta(description="Megabytes of the largest file that a snapshot takes.")
    ] = DEFAULT_LARGEST_MB


class McpConfig(Struct, frozen=True, kw_only=True):
    """How MCP servers are used, which are named in files of the usual shape, and what our own allows."""

    files: Annotated[
        _Texts,
        Meta(description="Files of other clients that name MCP servers, such as ~/.claude.json, ~/.cursor/mcp.json, ~/.codex/config.toml."),
    ] = ()
    start_seconds: Annotated[_Seconds, Meta(description="Seconds that the first turn waits for MCP servers.")] = 5.0
    call_seconds: Annotated[_Seconds, Meta(description="Seconds of one call of an MCP server that has no limit of its own.")] = 120.0
    read_only: Annotated[_Texts, Meta(description="MCP servers that are believed if they say that a tool only reads, by name.")] = ()
    disabled: Annotated[_Texts, Meta(description="MCP servers that are not started, by name.")] = ()
    write_notes: Annotated[
        bool, Meta(description="Let other agents change notes over `pal mcp`: it offers `remember` and `forget`, as with --write.")
    ] = False


class JobsConfig(Struct, frozen=True, kw_only=True):
    """Background jobs beside turns."""

    titles: Annotated[Literal["auto", "off"], Meta(description="Whether new sessions get a title: auto or off.")] = "auto"
    model: Annotated[
        str,
        Meta(
            description="Small model that writes titles; unset: a title is the first sentence of the first message.",
            extra=_example('"claude-haiku-4-5"'),
        ),
    ] = ""
    index: Annotated[
        Literal["auto", "off"],
        Meta(description="Whether the search index is updated after turns of a session that stays open: auto or off."),
    ] = "auto"
    keep_alive: Annotated[
        bool, Meta(description="Keep the provider's prompt cache warm while you are away, by small requests that cost money.")
    ] = False
    keep_alive_most: Annotated[_Count, Meta(description="Most requests of keep_alive in a row.")] = 11
    max_usd: Annotated[
        _Dollars | None,
        Meta(
            description="Most US dollars of one job in a session; unset: titles 0.05, keep_alive by what it saves.", extra=_example("0.1")
        ),
    ] = None
    exit_seconds: Annotated[
        Annotated[float, Meta(ge=0, le=3600)], Meta(description="Seconds that jobs get when a session ends, before they are cancelled.")
    ] = 2.0


class CodexConfig(Struct, frozen=True, kw_only=True):
    """What the profiles `codex` and `codex-0.166` state and ask for, under Codex's own names; no other profile reads it."""

    personality: Annotated[
        Literal["none", "friendly", "pragmatic"], Meta(description="Style of the replies: none, friendly, pragmatic.")
    ] = "none"
    collaboration_mode: Annotated[
        Literal["default", "execute", "pair_programming"],
        Meta(description="Way of working together in new sessions: default, execute, pair_programming; /mode selects another."),
    ] = "default"
    commit_attribution: Annotated[
        _Line,
        Meta(description="Co-author that commit messages name; unset: none.", extra={"example": '"Codex <noreply@openai.com>"'}),
    ] = ""
    realtime: Annotated[
        str,
        Meta(
            description="How you talk to the agent by voice; unset: you type.", extra={"example": '"Dictated, so names may be misheard."'}
        ),
    ] = ""
    apps: Annotated[
        str,
        Meta(description="Statement about apps (connectors) for the agent.", extra={"example": '"The connector `calendar` is signed in."'}),
    ] = ""
    plugins: Annotated[
        str, Meta(description="Statement about plugins for the agent.", extra={"example": '"The plugin `figma` has the skill `tokens`."'})
    ] = ""
    service_tier: Annotated[
        Literal["standard", "fast", "flex"],
        Meta(
            description="Tier of OpenAI's service: fast costs more, flex less; neither price is known here: both show as unknown, "
            "and a limit in dollars is refused."
        ),
    ] = "standard"


class StatesConfig(Struct, frozen=True, kw_only=True):
    """The business states of a task, which the profiles `palimpsest` and `classroom` state to the model."""

    names: Annotated[
        Mapping[Annotated[str, Meta(min_length=1, max_length=60)], Annotated[str, Meta(max_length=300)]],
        Meta(
            max_length=50,
            description="States that a task can be in, each with a line for the model about what it means there.",
            extra=_example('{ clarify = "Ask until the wish is clear; change nothing.", build = "The change is being made." }'),
        ),
    ] = {}
    start: Annotated[str, Meta(description="State of a new session; unset: the first of states.names.", extra=_example('"clarify"'))] = ""
    moves: Annotated[
        Mapping[str, tuple[str, ...]],
        Meta(
            max_length=50,
            description="States that can follow a state; unset: each can follow every other.",
            extra=_example('{ clarify = ["build"], build = ["clarify"] }'),
        ),
    ] = {}
    by_model: Annotated[
        bool, Meta(description="Offer the tool `set_state`, by which the model moves the task; else only `--state` and hooks do.")
    ] = False


class Config(Struct, frozen=True, kw_only=True):
    """The configuration with all its values."""

    model: Annotated[str, Meta(description="Model of new sessions; `pal cards` lists them.", extra=_PROJECT)] = DEFAULT_MODEL
    profile: Annotated[str, Meta(description="Profile of new sessions.", extra=_PROJECT)] = "palimpsest"
    mode: Annotated[
        Literal["ask", "edits", "plan", "auto"],
        Meta(description="ask: changes are asked about; edits: file edits run; plan: only reads run; auto: also sandboxed commands run."),
    ] = "ask"
    sandbox: Annotated[Literal["auto", "off"], Meta(description="auto confines commands where the system allows it; off never does.")] = (
        "auto"
    )
    network: Annotated[bool, Meta(description="Whether confined commands may use the network.")] = False
    sandbox_shows: Annotated[
        tuple[str, ...],
        Meta(description="Files and folders that confined commands may read beside the project.", extra=_example('["~/datasets"]')),
    ] = ()
    sandbox_variables: Annotated[
        tuple[str, ...],
        Meta(description="Variables that commands get although they look like secrets.", extra=_example('["NPM_TOKEN"]')),
    ] = ()
    max_turns: Annotated[_Count | None, Meta(description="Most model calls of one prompt.", extra=_PROJECT | _example("50"))] = None
    max_tools: Annotated[_Count | None, Meta(description="Most tool calls of one prompt.", extra=_PROJECT | _example("200"))] = None
    max_seconds: Annotated[_Seconds | None, Meta(description="Most seconds of one prompt.", extra=_PROJECT | _example("3600"))] = None
    max_usd: Annotated[
        _Dollars | None,
        Meta(description="Most US dollars of one prompt; refused where no price is known.", extra=_PROJECT | _example("2.5")),
    ] = None
    max_tokens: Annotated[
        _TurnTokens | None, Meta(description="Most tokens of one prompt, read and written.", extra=_PROJECT | _example("5_000_000"))
    ] = None
    retries: Annotated[
        Annotated[int, Meta(ge=0, le=100)] | None,
        Meta(description="Retries of a failed request; unset: 8 while an agent works, 3 in other commands.", extra=_example("3")),
    ] = None
    timeout_seconds: Annotated[_Seconds, Meta(description="Seconds of silence after which a request fails.")] = DEFAULT_TIMEOUT_S
    reply_seconds: Annotated[_Seconds, Meta(description="Most seconds of one reply, also of one that never falls silent.")] = 3_600.0
    reply_megabytes: Annotated[Annotated[int, Meta(ge=1, le=60)], Meta(description="Most megabytes of one reply.")] = 48
    reply_events: Annotated[_Count, Meta(description="Most events in the stream of one reply.")] = 1_000_000
    hooks: Annotated[
        tuple[HookConfig, ...],
        Meta(
            max_length=MOST_HOOKS,
            description="Commands that run at moments of a session, as tables [[hooks]]. Those of a project run if you trust them.",
            extra=_example('[{ moment = "after_tool", tool = "edit", command = "make lint" }]'),
        ),
    ] = ()
    context: ContextConfig = ContextConfig()
    permissions: PermissionConfig = PermissionConfig()
    tools: ToolConfig = ToolConfig()
    agents: AgentConfig = AgentConfig()
    files: FilesConfig = FilesConfig()
    mcp: McpConfig = McpConfig()
    jobs: JobsConfig = JobsConfig()
    memory: MemoryConfig = MemoryConfig()
    codex: CodexConfig = CodexConfig()
    states: StatesConfig = StatesConfig()
    terminal: TerminalConfig = TerminalConfig()
    providers: Mapping[str, ProviderConfig] = {}


_WANTED: Final = {
    "context.compact_at": "a number of tokens, or a share of the window such as 60%",
    "hooks": "a list of tables with moment and command, and perhaps tool, seconds and name",
    "providers.*.headers": "a table of texts",
    "files.largest_mb": "a whole number from 1 to 1000",
    "retries": "a whole number from 0 to 100",
    "jobs.keep_alive_most": "a whole number from 1 to 1000000",
    "jobs.exit_seconds": "a number of seconds from 0 to 3600",
    "states.names": "a table of at most 50 texts, each a line of at most 300 characters",
    "states.moves": "a table of lists of states",
    "memory.parallel": "a whole number from 1 to 64",
}
_WANTED_KINDS: Final[Mapping[object, str]] = {
    bool: "true or false",
    _Count | None: "a whole number from 1 to 1000000",
    _Level | None: "a whole number from 1 to 64",
    _Tokens | None: "a whole number of tokens from 0",
    _Dollars | None: "a number above 0 and up to 1000000",
    _Seconds | None: "a number of seconds above 0 and up to a year",
    float: "a number of seconds above 0 and up to a year",
    _Texts: "a list of texts",
    Number: "a whole number from 0",
    Span: "a number from 0",
    Budget: "a number from 0 to 1000000",
}


# The one job that a profile knows of, too: what it risks for the cache depends on it.
KEEP_ALIVE_KEY: Final = "jobs.keep_alive"


class Key(Struct, frozen=True):
    """One key. In `name`, `*` stands for the name of a provider. `variable` is empty if no environment variable sets the key.

    `example` is a TOML value for keys whose default TOML cannot express. A project file may set the key if `project` is true.
    """

    name: str
    type: Any
    default: object
    description: str
    variable: str
    project: bool
    example: str

    @property
    def wanted(self) -> str:
        """What a value must be, for error messages."""
        if self.name in _WANTED:
            return _WANTED[self.name]
        return f"one of {', '.join(self.choices)}" if self.choices else _WANTED_KINDS.get(get_args(self.type)[0], "a text")

    @property
    def choices(self) -> tuple[str, ...]:
        """The texts that a value can be, if the key allows only some."""
        kind = get_args(self.type)[0]
        return get_args(kind) if get_origin(kind) is Literal else ()

    @property
    def is_secret(self) -> bool:
        """Whether its value is shown only as set or not set."""
        return "Credential" in str(self.type)


def _keys(table: type[Struct], prefix: str = "") -> Iterator[Key]:
    hints = get_type_hints(table, include_extras=True)
    for field in structs.fields(table):
        hint = hints[field.name]
        if isinstance(hint, type) and issubclass(hint, Struct):
            yield from _keys(hint, f"{prefix}{field.name}.")
        elif get_origin(hint) is not Annotated:
            yield from _keys(get_args(hint)[1], f"{prefix}{field.name}.*.")
        else:
            yield _config_key(f"{prefix}{field.name}", hint, field.default if field.default is not NODEFAULT else {})


def _config_key(name: str, hint: Any, default: object) -> Key:
    meta: Meta = hint.__metadata__[-1]
    extra = meta.extra or {}
    from_environment = name == KEEP_ALIVE_KEY or not name.startswith(
        (
            *("permissions.", "tools.", "agents.", "files.", "mcp.", "jobs.", "memory.", "codex.", "states.", "terminal.", "providers."),
            "hooks",
        )
    )
    variable = f"PAL_{name.rpartition('.')[2].upper()}" if from_environment else ""
    return Key(name, hint, default, meta.description or "", variable, bool(extra.get("project")), str(extra.get("example", "")))


# Keys of earlier versions that nothing reads any more; a file that has one is as good as before.
RETIRED_KEYS: Final = frozenset({("files", "git_notes")})
KEYS: Final[Mapping[str, Key]] = {key.name: key for key in _keys(Config)}
"""All keys by dotted name, in the order of a file."""


def key_of(path: tuple[str, ...]) -> Key | None:
    """Return the key at a path in a file; the second part of a path below `providers` may be any name. `None` if there is none."""
    if len(path) == 3 and path[0] == "providers":
        path = (path[0], "*", path[2])
    return KEYS.get(".".join(path))


# The provider whose table a new file shows.
_SHOWN_PROVIDER: Final = "anthropic"
_USER_HEAD: Final = """\
# Configuration of pal. Remove the `#` before a key to set it; `pal config` shows every value and where it comes from.
# Later ones win: this file, the file of a project, environment variables (named beside each key), options.
"""
_PROJECT_HEAD: Final = """\
# Configuration of pal for this project. It may be shared, so it can only choose and restrict:
# {keys}.
# Limits here can lower those of a user's own file, and rules that deny are added to it. Tables [[hooks]] declare commands that run only
# for a user who trusts them with `pal trust`. All other keys are ignored here.
"""
_PROVIDER_NOTE: Final = """\
# One table for each provider, by the name that its model card has: anthropic, openai, openai-compatible, local, or your own.
# A key is looked for in the environment, then here, then in the keyring of the system (service palimpsest, user: the provider).
"""


def user_template() -> str:
    """Return a file with all keys."""
    return _USER_HEAD + "".join(_sections(KEYS.values()))


def project_template() -> str:
    """Return a file with the keys that a project may set."""
    return _PROJECT_HEAD.format(keys=", ".join(project_keys())) + "".join(_sections(KEYS[name] for name in project_keys()))


def project_keys() -> tuple[str, ...]:
    """Return the names of the keys that a project file may set."""
    return tuple(key.name for key in KEYS.values() if key.project)


def _sections(keys: Iterable[Key]) -> Iterator[str]:
    section = ""
    for key in keys:
        table, _, name = key.name.rpartition(".")
        if table != section:
            section = table
            yield f"\n{_PROVIDER_NOTE if '*' in table else ''}# [{table.replace('*', _SHOWN_PROVIDER)}]\n"
        variable = f" ({key.variable})" if key.variable else ""
        unset = " Not set by default." if key.example and "unset" not in key.description else ""
        yield f"\n# {key.description}{unset}{variable}\n# {name} = {key.example or _toml(key.default)}\n"


def _toml(value: object) -> str:
    """Return a default as TOML; the values that defaults have are written alike in TOML and JSON."""
    return msgspec.json.encode(value).decode()
