"""All errors of the library; each message says what happened, where, and what to do."""


class PalimpsestError(Exception):
    """Parent of all errors that this library raises on purpose; the message is one line."""

    kind = "error"

    def __init__(self, message: str, *, where: str = "") -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.message = message
        self.where = where


class BadInput(PalimpsestError):
    """An argument of the caller is invalid: an unknown id, a wrong option, an unreadable path."""

    kind = "input"


class BadEdit(PalimpsestError):
    """An edit does not fit the view for which it was proposed."""

    kind = "edit"


class CallOpen(PalimpsestError):
    """An event would change the view during a turn call; it can be appended after the outcome of the call."""

    kind = "call_open"


class BadLog(PalimpsestError):
    """A line of a log cannot be read, or contradicts other lines."""

    kind = "log"


class NewerFormat(BadLog):
    """A line was written by a newer version of this library."""

    kind = "version"


class MissingBase(BadLog):
    """The base session of a fork is missing, or differs from the one that the fork names."""

    kind = "base"


class MissingBlob(PalimpsestError):
    """A blob that an event refers to is missing from the store."""

    kind = "blob"


class DamagedBlob(MissingBlob):
    """The bytes of a blob do not match its address."""

    kind = "damaged_blob"


class StoreError(PalimpsestError):
    """A file, directory or database operation failed."""

    kind = "store"


class GitStopped(StoreError):
    """Git was ended before it had answered, so that nothing is known; it may answer when it is asked again."""


class ReadOnly(StoreError):
    """A write to a log that was opened for reading, or that became read-only after a failed sync."""

    kind = "readonly"


class Locked(StoreError):
    """Another process holds the write lock."""

    kind = "locked"


class WireError(PalimpsestError):
    """A response of a provider violates the provider's protocol."""

    kind = "wire"


class StreamCut(WireError):
    """A stream ended before the reply was complete."""


class ProviderError(PalimpsestError):
    """A provider rejected a request or failed. `status` is the HTTP status and `retry_after` is in seconds; `None` means unknown."""

    kind = "provider"

    def __init__(self, message: str, *, where: str = "", status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message, where=where)
        self.status = status
        self.retry_after = retry_after

    @property
    def is_refusal(self) -> bool:
        """Whether the provider refused the request as it stands, so that no model has read it and nothing is billed."""
        return self.status is not None and 400 <= self.status < 500

    @property
    def refuses_form(self) -> bool:
        """Whether the provider refused the fields of the request, as it does with a schema that it does not know."""
        return self.status in (400, 422)


class ConnectionLost(ProviderError):
    """The provider is unreachable, or the connection broke."""


class TimedOut(ProviderError):
    """The provider was silent for too long."""


class ReplyTooLong(ProviderError):
    """A reply did not end within the limits of bytes, events or seconds; it is not asked for again."""

    kind = "reply_too_long"


class PromptTooLong(ProviderError):
    """The request exceeds the context window. `gap` is the number of tokens above the limit, if known."""

    kind = "too_long"

    def __init__(self, message: str, *, where: str = "", gap: int | None = None, status: int | None = None) -> None:
        super().__init__(message, where=where, status=status)
        self.gap = gap

    @property
    def refuses_form(self) -> bool:
        """A prompt that is too long is too long in any form."""
        return False


class ThinkingRefused(ProviderError):
    """The provider refused thinking in the request: it is bound to another list, or its signature is damaged. The rest may be accepted.

    `path` is the place of the first such block in the list that was sent, and `cause` a word of the provider for what differs; empty if
    the provider does not say.
    """

    kind = "thinking_refused"

    def __init__(self, message: str, *, where: str = "", path: str = "", cause: str = "", status: int | None = 400) -> None:
        super().__init__(message, where=where, status=status)
        self.path = path
        self.cause = cause

    @property
    def refuses_form(self) -> bool:
        """The thinking is refused in any form of the request."""
        return False


class NoModel(PalimpsestError):
    """A plan needs a model and none is available: no API key, or offline."""

    kind = "no_model"


class OverBudget(PalimpsestError):
    """No further model call may be made: the limit of a turn, the budget of a job, or the calls of one run are used up."""

    kind = "budget"


class BudgetSpent(OverBudget):
    """A budget over time is spent; what waits goes on with the next one, and the session says so."""


class TooFull(PalimpsestError):
    """The parts that no edit can remove exceed the context window; the message lists each part with its tokens."""

    kind = "too_full"


class CannotFold(PalimpsestError):
    """A fold that was due or requested failed; `kind` is the reason in the words of the profile."""

    kind = "fold"

    def __init__(self, message: str, *, kind: str = "fold", where: str = "") -> None:
        super().__init__(message, where=where)
        self.kind = kind


def raised_text(error: BaseException) -> str:
    """The type and the text of an error that code of another author raised."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - the text of such an error is code of another author, too
        return f"{type(error).__name__}: its text cannot be read"


class ForeignFailure(PalimpsestError):
    """Code of another author, such as a policy or a source, raised an error that is none of ours."""

    kind = "foreign"
