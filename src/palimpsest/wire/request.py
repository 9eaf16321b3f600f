"""Inputs and result of encoding: tools, parameters, repairs and the request itself."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Raw, field, json
from msgspec.structs import replace

from palimpsest.core.items import Form, Value
from palimpsest.wire.models.cards import ModelCard, WireName

NULL = Raw(b"null")
LONGEST_NAME: Mapping[WireName, int] = {"anthropic": 128, "responses": 64, "chat": 64}
"""Longest tool name by wire, in characters."""
MAX_BREAKPOINTS = 4
"""Most cache breakpoints in a request to Anthropic."""

BreakpointRule: TypeAlias = Literal["none", "palimpsest", "claude-code", "claude-code-2.1.325", "claude-code-2.1.325-fold", "opencode"]
Dialect: TypeAlias = Literal["codex", "codex-0.166"]
RepairCase: TypeAlias = Literal[
    "open_call",
    "open_free_call",
    "open_shell_call",
    "open_search_call",
    "orphan_result",
    "orphan_free_result",
    "orphan_search_result",
    "duplicate_result",
    "renamed_call",
    "no_first_user",
    "thinking_off",
]


ToolKind: TypeAlias = Literal["reads", "edits", "runs", "reports", "remembers"]
"""What a tool does to the world: `reports` changes nothing outside the session, `remembers` nothing but the notes of the user."""


class Tool(Value, frozen=True):
    """A tool on offer; `format` is the grammar of a free-form tool, `native` a declaration by the provider that is sent verbatim.

    `native_wire` is the only wire that knows the native declaration; on others the tool is an ordinary function. Empty: all know it.
    `kind` is what the tool does to the world, which is not sent: permissions, pins, folds and stubs go by it. `runs` promises nothing.
    """

    name: str
    description: str = ""
    schema: Raw = Raw(b'{"type":"object","properties":{}}')
    form: Form = "json"
    format: Raw = NULL
    native: Raw = NULL
    native_wire: str = ""
    kind: ToolKind = "runs"

    def is_native(self, wire: WireName) -> bool:
        """Whether the native declaration is sent on a wire."""
        return is_given(self.native) and self.native_wire in ("", wire)


class Params(Value, frozen=True):
    """Parameters of a request: with view, card and tools they determine its bytes.

    `tool_choice` is auto, none, required or the name of a tool. `echo` sends thinking without a signature back on Chat Completions.
    `model` and `reasoning` override the card: the model name that is sent, and whether Responses is asked to reason. `frontier` and `entry`
    are ids of items that get a cache breakpoint under the `palimpsest` rule: the last one before an edit, and the end of the cached prefix.
    `states_limit` is false for programs that let OpenAI's wires reply at any length. `metadata` is sent as `client_metadata` on
    Responses. `endpoint` selects a dedicated endpoint, such as `compact` of Responses, which takes fewer fields.
    `CallStarted.params` records the result of `resolved_params`, so that the request can be rebuilt after its card has changed.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    effort: str = ""
    summary: str = ""
    verbosity: str = ""
    thinking: Literal["", "adaptive", "disabled"] = ""
    thinking_budget: int | None = None
    echo: bool = False
    stream: bool = True
    cache_key: str = ""
    ttl: Literal["5m", "1h"] = "5m"
    breakpoint_rule: BreakpointRule = field(name="mark_rule", default="palimpsest")
    frontier: str = ""
    entry: str = ""
    sort_tools: bool = False
    interrupted: str = "aborted"
    dialect: Dialect = "codex"
    tool_choice: str = "auto"
    parallel: bool = True
    schema: Raw = NULL
    extra: Raw = NULL
    model: str = ""
    reasoning: bool | None = None
    endpoint: str = ""
    metadata: Raw = NULL
    states_limit: bool = True


DEFAULTS = Params()


def resolved_params(params: Params, card: ModelCard) -> Params:
    """The parameters with every default of the card written out; they encode to the same bytes."""
    wants_limit = card.wire == "anthropic" and params.max_tokens is None
    return replace(
        params,
        max_tokens=card.reply if wants_limit else params.max_tokens,
        model=params.model or card.api_name or card.name,
        reasoning=card.thinking if params.reasoning is None and card.wire == "responses" else params.reasoning,
    )


def with_client_metadata(params: Params, session: str, *, root: str, turn: int | None, epoch: int, kind: str) -> Params:
    """The parameters with the ids that requests of Codex 0.166 name: of session, thread, turn and window, and the kind of the request.

    `root` is the session that started this one, or itself. There is no id of an installation: nothing here identifies a user.
    """
    ids = {"session_id": root, "thread_id": session}
    if turn is not None:
        ids |= {"turn_id": f"{session}:{turn}", "root_turn_id": f"{session}:{turn}"}
    window = {"x-codex-window-id": f"{session}:{epoch}"}
    turn_metadata = json.encode({"request_kind": kind, **ids, "window_id": f"{session}:{epoch}"}).decode()
    return replace(params, metadata=Raw(json.encode({**ids, **window, "x-codex-turn-metadata": turn_metadata})))


def adapted_params(params: Params, card: ModelCard) -> Params:
    """Parameters of a call to one model, adapted to another: the reply limit is capped, model name and reasoning are reset."""
    limit = None if params.max_tokens is None else min(params.max_tokens, card.reply)
    return replace(params, max_tokens=limit, model="", reasoning=None)


class RequestRepair(Value, frozen=True):
    """A change that made a view acceptable to the provider; `bug` marks a case that our own log should never lead to."""

    case: RepairCase
    item: str
    call_id: str = ""
    bug: bool = False


class Request(Value, frozen=True):
    """An encoded request; `breakpoints` are the item ids, or `head:n`, of blocks with a cache breakpoint.

    `tool_names` pairs the name of a tool on the wire with the name it was offered under, where they differ.
    """

    wire: WireName
    model: str
    body: bytes
    digest: str
    breakpoints: tuple[str, ...] = ()
    repairs: tuple[RequestRepair, ...] = ()
    endpoint: str = ""
    tool_names: tuple[tuple[str, str], ...] = ()


def is_given(raw: Raw) -> bool:
    """Whether an optional piece of JSON is set, that is not `null`."""
    return bytes(raw) != b"null"
