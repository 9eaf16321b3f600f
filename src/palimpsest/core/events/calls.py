"""Bodies of the conversation: input, turns, model calls and their outcomes."""

from msgspec import Raw, field

from palimpsest.core.items import Content, Part, Value

NULL = Raw(b"null")
# The purpose of the calls that are the conversation itself.
TURN = "turn"


class EventRef(Value, frozen=True):
    """An event of some session; `link` is the hash chain up to and including it."""

    session: str
    seq: int
    link: str = ""


class Usage(Value, frozen=True):
    """Tokens of one call as the provider counted them; the three input parts never overlap."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_long: int = 0
    output: int = 0
    reasoning: int = 0

    @property
    def prompt(self) -> int:
        """Everything the model read."""
        return self.input + self.cache_read + self.cache_write + self.cache_write_long

    @property
    def total(self) -> int:
        """What the model read and wrote."""
        return self.prompt + self.output


class EventBody(Value, frozen=True, kw_only=True):
    """A body. `foreign` is what another program's file says beside it, as raw JSON: kept for the way back there, and not read here."""

    foreign: Raw = NULL


class SessionOpened(EventBody, frozen=True, tag="session_opened"):
    """The first line of a file. `base` makes it a fork that reads through another session; `opener` is the call that made a child."""

    session: str
    cwd: str = ""
    origin: str = "palimpsest"
    profile: str = ""
    model: str = ""
    base: EventRef | None = None
    opener: EventRef | None = None
    meta: dict[str, str] = {}


class UserTyped(EventBody, frozen=True, tag="user_typed"):
    """Input as it arrived, durable at once; it enters the view when `UserSaid` names it."""

    parts: tuple[Part, ...]


class UserSaid(EventBody, frozen=True, tag="user_said"):
    """Input takes its place in the conversation, at the start of a turn or as steering within one."""

    parts: tuple[Part, ...]
    typed: int | None = None
    steering: bool = False


class TurnStarted(EventBody, frozen=True, tag="turn_started"):
    """The agent begins to work on queued input; `typed` are the events of that input."""

    typed: tuple[int, ...] = ()


class TurnEnded(EventBody, frozen=True, tag="turn_ended"):
    """The agent hands back to the user."""

    stop: str = "done"


class CallStarted(EventBody, frozen=True, tag="call_started"):
    """A request leaves: what it was made of, and the digest of its exact bytes.

    Purpose `turn` is the conversation itself. A request for another purpose (summary, title, extraction) does not show the view;
    `request` is then the address of the blob that says which items it shows.
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


class ModelReplied(EventBody, frozen=True, tag="model_replied"):
    """The reply to a call, whole; `stop` is why it ended and `message` the provider's id of it.

    `purpose` is that of its call: only a reply of purpose `turn` enters the view. Replies of our own have a stop of `core.stops`, with
    the provider's word beside it where that differs; old and imported ones any word.
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


class Interrupted(EventBody, frozen=True, tag="interrupted"):
    """A call that ended before its reply was whole: the parts that had arrived, and why it ended.

    Of a call of purpose `turn` text and thinking enter the view; a tool call in `parts` was never run and stays out of it.
    """

    call: int | None
    parts: tuple[Content, ...] = ()
    why: str = ""
    usage: Usage = Usage()
    model: str = ""
    purpose: str = TURN


class Failed(EventBody, frozen=True, tag="failed"):
    """An attempt that did not work: `what` was tried, the `error` kind and a line about it.

    With `what` equal to `call` it is the outcome of the model call that `call` names, which had `purpose`.
    """

    what: str
    error: str
    message: str = ""
    by: str = ""
    call: int | None = None
    purpose: str = ""
