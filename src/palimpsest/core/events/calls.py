"""Event bodies of the conversation: user input, turns, model calls and their outcomes."""

from typing import Literal

from msgspec import Raw, field

from palimpsest.core.items import Content, Part, Value

NULL = Raw(b"null")
# The purpose of the calls whose replies enter the view.
TURN = "turn"
# The error of a call whose reply never became known, so that its cost is unknown too.
UNOBSERVED = "unobserved"


class EventRef(Value, frozen=True):
    """Reference to an event of a session; `link` is the hash chain up to and including the event."""

    session: str
    seq: int
    link: str = ""


class Usage(Value, frozen=True):
    """Token usage of one call as reported by the provider; the four input fields never overlap, and `output` includes `reasoning`."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_long: int = 0
    output: int = 0
    reasoning: int = 0

    @property
    def prompt(self) -> int:
        """All input tokens."""
        return self.input + self.cache_read + self.cache_write + self.cache_write_long

    @property
    def total(self) -> int:
        """All input and output tokens."""
        return self.prompt + self.output


class UsageBeside(Value, frozen=True):
    """Usage that one reply was billed for beside its last message: a compaction, an advisor, or an earlier step of the server.

    `model` is the model that worked, empty if it is the one that replied.
    """

    usage: Usage
    model: str = ""


class EventBody(Value, frozen=True, kw_only=True):
    """Parent of all event bodies. `foreign` is raw JSON of the program that the event was imported from; it is used only for export."""

    foreign: Raw = NULL


class SessionOpened(EventBody, frozen=True, tag="session_opened"):
    """The first event of a log. `base` is set in a fork, which continues from that event; `opener` is the call that started a sub-agent."""

    session: str
    cwd: str = ""
    origin: str = "palimpsest"
    profile: str = ""
    model: str = ""
    base: EventRef | None = None
    opener: EventRef | None = None
    meta: dict[str, str] = {}


class UserTyped(EventBody, frozen=True, tag="user_typed"):
    """The user typed input. It is queued, and enters the view with the `UserSaid` that refers to it."""

    parts: tuple[Part, ...]


class UserSaid(EventBody, frozen=True, tag="user_said"):
    """User input enters the view, at the start of a turn or as steering during one; `typed` is the event that queued it."""

    parts: tuple[Part, ...]
    typed: int | None = None
    steering: bool = False


class InputWithdrawn(EventBody, frozen=True, tag="input_withdrawn"):
    """Queued input will not enter the view: the event that queued it, who took it back, and why."""

    typed: int
    by: str
    why: str = ""


class TurnStarted(EventBody, frozen=True, tag="turn_started"):
    """A turn starts; `typed` are the events of the queued input that it works on."""

    typed: tuple[int, ...] = ()


class TurnEnded(EventBody, frozen=True, tag="turn_ended"):
    """A turn ends; `stop` is the reason."""

    stop: str = "done"


class CallStarted(EventBody, frozen=True, tag="call_started"):
    """A request is sent: its model, parameters and tools, and the digest of its exact bytes. `size` is in bytes.

    `estimate` are the tokens of its view and `tools_estimate` those of its tool declarations, both before calibration. `cached` are the
    tokens of its prompt that the provider is believed to hold in its cache.
    Calls of purpose `turn` show the view. Other calls (summary, title, extraction) do not; `request` is then the address of the blob
    that lists the items which the request shows.
    `prefix` is the digest of the list that was sent, `*` if the model binds its thinking to none, and `after` the key of the last thinking
    in it (`wire.binding`): the thinking of the reply is bound to both. They are a cache: where they are empty, the request is rebuilt.
    `withheld` are the ids of thinking items of the view that were not sent, because they no longer fit or the provider refused them.
    """

    model: str
    wire: str
    params: Raw = Raw(b"{}")
    tools: str = ""
    digest: str = ""
    size: int = 0
    estimate: int = 0
    breakpoints: tuple[str, ...] = field(name="marks", default=())
    purpose: str = TURN
    request: str = ""
    tools_estimate: int = 0
    cached: int = 0
    prefix: str = ""
    after: str = ""
    withheld: tuple[str, ...] = ()


class RateLimit(Value, frozen=True, omit_defaults=False):
    """A limit of the provider on use over time, as a reply reported it: how much is used, in percent, and when it is reset (Unix time)."""

    name: str
    used_percent: float
    resets_at: int | None = None
    window_minutes: int | None = None


class AppliedEdit(Value, frozen=True):
    """An edit that the provider made to the list before the model read it, as the reply reports it; `None` is not reported.

    `type` is the provider's name of the edit. `tool_uses` and `thinking_turns` are how many were cleared.
    """

    type: str
    input_tokens: int | None = None
    tool_uses: int | None = None
    thinking_turns: int | None = None


class InputTransformation(Value, frozen=True):
    """What the provider did with a block of the request before the model read it: `type`, such as `thinking_dropped`, `path` and `reason`.

    `path` names the place in the list that was sent. The words are the provider's; unknown ones are kept.
    """

    type: str
    path: str = ""
    reason: str = ""


class CacheDiagnosis(Value, frozen=True):
    """What the provider says of its cache, by comparing a request with the one that it was asked to compare it with.

    `found` is `same` if it names no difference, also where it was not asked to compare; `changed` if it names one; `unknown` if it cannot
    say. `reason` is the provider's word, and `missed` the input tokens that it says were not read because of the change.
    """

    found: Literal["same", "changed", "unknown"]
    reason: str = ""
    missed: int | None = None


class ModelReplied(EventBody, frozen=True, tag="model_replied"):
    """The complete reply to a call; `stop` is the reason for its end and `message` the provider's id of it.

    `purpose` is that of its call: only replies of purpose `turn` enter the view. Replies that this library received have a `stop` of
    `core.events.stops`, and the provider's own word in `provider_stop` if it differs; old and imported replies may have any word.
    `applied_edits` are those that the provider made to the list before the model read it.
    `stop_details` is what the provider adds to that word. `usage` is that of the message; `beside` is billed too, but never was in the
    window. `diagnosis` is `None` if the provider did not say anything of its cache. `tier` is the tier, speed or place that it says the
    reply had, if that has another price than the listed one.
    """

    parts: tuple[Content, ...]
    call: int | None = None
    usage: Usage = Usage()
    stop: str = ""
    model: str = ""
    message: str = ""
    error: str = ""
    purpose: str = TURN
    provider_stop: str = ""
    limits: tuple[RateLimit, ...] = ()
    beside: tuple[UsageBeside, ...] = ()
    stop_details: Raw = NULL
    transformations: tuple[InputTransformation, ...] = ()
    applied_edits: tuple[AppliedEdit, ...] = ()
    diagnosis: CacheDiagnosis | None = None
    tier: str = ""


class Interrupted(EventBody, frozen=True, tag="interrupted"):
    """A call ended before its reply was complete: the parts that had arrived, and the reason.

    If the purpose is `turn`, text and thinking enter the view. Tool calls in `parts` were never run and do not enter it.
    """

    call: int | None
    parts: tuple[Content, ...] = ()
    why: str = ""
    usage: Usage = Usage()
    model: str = ""
    purpose: str = TURN


class Failed(EventBody, frozen=True, tag="failed"):
    """An operation failed: `what` was attempted; `error` is the kind of the error.

    If `what` is `call`, this is the outcome of the model call that event `call` started for `purpose`. Where the provider refused thinking,
    `path` is the place of the first such block in the request and `cause` the provider's word for what differs, as far as it says so.
    """

    what: str
    error: str
    message: str = ""
    by: str = ""
    call: int | None = None
    purpose: str = ""
    path: str = ""
    cause: str = ""
