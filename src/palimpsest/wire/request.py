"""Inputs and result of encoding: tools, parameters, repairs and the request itself."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Raw, field, json
from msgspec.structs import replace

from palimpsest.core.items import Form, Value
from palimpsest.wire.models import ModelCard, WireName

NULL = Raw(b"null")
LONGEST_NAME: Mapping[WireName, int] = {"anthropic": 128, "responses": 64, "chat": 64}
"""Longest tool name by wire, in characters."""
MAX_BREAKPOINTS = 4
"""Most cache breakpoints in a request to Anthropic."""

BreakpointRule: TypeAlias = Literal["none", "palimpsest", "claude-code", "claude-code-2.1.325", "claude-code-2.1.325-fold", "opencode"]
Dialect: TypeAlias = Literal["codex", "codex-0.166", "openai"]
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
    "no_prefill",
    "demanded_tool",
]


ToolKind: TypeAlias = Literal["reads", "edits", "runs", "reports", "remembers"]
"""What a tool does to the world: `reports` changes nothing outside the session, `remembers` nothing but the notes of the user."""


class Tool(Value, frozen=True):
    """A tool on offer; `format` is the grammar of a free-form tool, `native` a declaration by the provider that is sent verbatim.

    `native_wire` is the only wire that knows the native declaration; on others the tool is an ordinary function. Empty: all know it.
    A `deferred` tool joined after the first request: where the model takes changes of tools inside the conversation, an item of the view
    adds it there, and everything before it stays as it was.
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
    deferred: bool = False

    def is_native(self, wire: WireName) -> bool:
        """Whether the native declaration is sent on a wire."""
        return is_given(self.native) and self.native_wire in ("", wire)


class Params(Value, frozen=True):
    """Parameters of a request: with view, card and tools they determine its bytes.

    `tool_choice` is auto, none, required or the name of a tool. `echo` sends thinking without a signature back on Chat Completions.
    `model` and `reasoning` override the card: the model name that is sent, and whether Responses is asked to reason. `frontier` and `entry`
    are ids of items that get a cache breakpoint under the `palimpsest` rule: the last one before an edit, and the end of the cached prefix.
    `states_limit` is false for programs that let OpenAI's wires reply at any length. `metadata` is sent as `client_metadata` on
    Responses, and `service_tier` under its name. `endpoint` selects a dedicated endpoint, such as `compact` of Responses, which takes
    fewer fields; on Anthropic Messages `compact` asks for a compaction block, written by `instructions` if there are any. From
    `compact_at` input tokens on the provider compacts by itself. `demanded_tool` is a tool, or `required` for any, that the last
    message asks for in words, because the model refuses to be forced; `fitted` says that the parameters are those that the card of the
    model accepts. `compared_reply` asks the provider to say why its cache missed what the request of that reply wrote: the provider's
    id of the reply, empty for the first request, and `None` not to ask. `api_version` is the version of Anthropic's API for which the
    request is written; empty for the usual one.
    `CallStarted.params` records the result of `resolved_params`, so that the request can be rebuilt after its card has changed.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    effort: str = ""
    summary: str = ""
    verbosity: str = ""
    thinking: Literal["", "adaptive", "disabled", "between_tools"] = ""
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
    service_tier: str = ""
    instructions: str = ""
    compact_at: int | None = None
    demanded_tool: str = ""
    fitted: bool = False
    compared_reply: str | None = None
    api_version: str = ""

    @property
    def is_stricter(self) -> bool:
        """Whether the version refuses sampling by any model, and citations in messages of the user."""
        return self.api_version >= STRICTER_VERSION


STRICTER_VERSION: Final = "2026-10-21"
"""The first version of Anthropic's API that refuses sampling and citations of the user; versions are days."""
_SAMPLING: Final = frozenset({"temperature", "top_p", "top_k"})
DEFAULTS = Params()
# From the lowest.
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def resolved_params(params: Params, card: ModelCard) -> Params:
    """The parameters with every default of the card written out; they encode to the same bytes."""
    params = fitted_params(params, card)
    wants_limit = card.wire == "anthropic" and params.max_tokens is None
    return replace(
        params,
        max_tokens=card.reply if wants_limit else params.max_tokens,
        model=params.model or card.api_name or card.name,
        reasoning=card.thinks if params.reasoning is None and card.wire == "responses" else params.reasoning,
    )


def fitted_params(params: Params, card: ModelCard) -> Params:
    """The parameters without what the model would refuse; those that were fitted once stay as they are, so that a log can be rebuilt."""
    if params.fitted:
        return params
    if card.wire == "anthropic" and params.is_stricter:
        params = _without_sampling(params)
    temperature = params.temperature if card.sampling else None
    params = replace(params, temperature=temperature, effort=accepted_effort(params.effort, card), fitted=True)
    if not card.forced_tools and params.tool_choice not in ("auto", "none"):
        params = replace(params, tool_choice="auto", demanded_tool=params.tool_choice)
    return _with_accepted_thinking(params, card) if card.wire == "anthropic" else params


def _without_sampling(params: Params) -> Params:
    extra = params.extra
    if is_given(extra):
        fields = json.decode(extra, type=dict[str, Raw])
        extra = Raw(json.encode({name: value for name, value in fields.items() if name not in _SAMPLING}))
    return replace(params, temperature=None, extra=extra)


def accepted_effort(effort: str, card: ModelCard) -> str:
    """The effort, or the lowest that the model accepts if that is higher."""
    least = card.least_effort
    return least if effort in _EFFORTS and least in _EFFORTS and _EFFORTS.index(effort) < _EFFORTS.index(least) else effort


def _with_accepted_thinking(params: Params, card: ModelCard) -> Params:
    if card.thinking not in ("adaptive", "always"):
        return params
    if params.thinking_budget is not None:
        return replace(params, thinking="adaptive", thinking_budget=None)
    if params.thinking not in ("disabled", "between_tools"):
        return params
    if card.thinking == "always":
        return replace(params, thinking="", effort=params.effort or "low")
    effort = "high" if params.effort in ("xhigh", "max") and card.thinks_unasked else params.effort
    return replace(params, thinking=card.thinking_off, effort=effort)


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
    """Parameters of a call to one model, adapted to another: the reply limit is capped, and what the first card decided is reset."""
    limit = None if params.max_tokens is None else min(params.max_tokens, card.reply)
    choice = params.demanded_tool or params.tool_choice
    return replace(
        params,
        max_tokens=limit,
        model="",
        reasoning=None,
        tool_choice=choice,
        demanded_tool="",
        fitted=False,
        # Another model has another cache, and may not know the field.
        compared_reply=None,
        api_version="",
    )


class RequestRepair(Value, frozen=True):
    """A change that made a view acceptable to the provider; `bug` marks a case that our own log should never lead to."""

    case: RepairCase
    item: str
    call_id: str = ""
    bug: bool = False


class Request(Value, frozen=True):
    """An encoded request; `breakpoints` are the item ids, or `head:n`, of blocks with a cache breakpoint.

    `tool_names` pairs the name of a tool on the wire with the name it was offered under, where they differ. `betas` are the values of the
    header `anthropic-beta` without which the body would be refused.
    """

    wire: WireName
    model: str
    body: bytes
    digest: str
    breakpoints: tuple[str, ...] = ()
    repairs: tuple[RequestRepair, ...] = ()
    endpoint: str = ""
    tool_names: tuple[tuple[str, str], ...] = ()
    betas: tuple[str, ...] = ()


def is_deferred(tool: Tool, wire: WireName) -> bool:
    """Whether a tool is declared as one that joins later; a declaration by the provider is sent verbatim."""
    return tool.deferred and not tool.is_native(wire)


def is_given(raw: Raw) -> bool:
    """Whether an optional piece of JSON is set, that is not `null`."""
    return bytes(raw) != b"null"
