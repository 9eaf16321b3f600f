"""The one tree of errors: what happened, where, and what to do."""


class PalimpsestError(Exception):
    """Root of every error this library raises on purpose; its text is one line for a person."""

    kind = "error"

    def __init__(self, message: str, *, where: str = "") -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.message = message
        self.where = where


class BadInput(PalimpsestError):
    """What the caller gave cannot be used: an unknown id, a wrong option, an unreadable path."""

    kind = "input"


class BadEdit(PalimpsestError):
    """An edit that does not fit the view it was proposed for."""

    kind = "edit"


class CallOpen(PalimpsestError):
    """An event that would enter the view while a turn call is under way; it can be appended once the call has its outcome."""

    kind = "call_open"


class BadLog(PalimpsestError):
    """A line of a log that cannot be read, or that contradicts the lines around it."""

    kind = "log"


class NewerFormat(BadLog):
    """A line written by a newer version than this one."""

    kind = "version"


class MissingBase(BadLog):
    """A fork whose base is not there, or is not the one it names."""

    kind = "base"


class MissingBlob(PalimpsestError):
    """A blob that an event names and no store holds."""

    kind = "blob"


class StoreError(PalimpsestError):
    """The disk, the folder or the database refused."""

    kind = "store"


class ReadOnly(StoreError):
    """A write to something that was opened for reading, or that became read-only after a failed sync."""

    kind = "readonly"


class Locked(StoreError):
    """Another writer holds this session."""

    kind = "locked"


class WireError(PalimpsestError):
    """A provider's answer that does not follow its own protocol."""

    kind = "wire"


class StreamCut(WireError):
    """A stream that ended before the reply was whole."""


class ProviderError(PalimpsestError):
    """A provider refused or failed; the HTTP `status` and how many seconds to wait are there when it said so."""

    kind = "provider"

    def __init__(self, message: str, *, where: str = "", status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message, where=where)
        self.status = status
        self.retry_after = retry_after


class ConnectionLost(ProviderError):
    """The provider could not be reached, or the connection to it broke."""


class PromptTooLong(ProviderError):
    """The request does not fit the model's window; `gap` is how many tokens too many, when the provider says so."""

    kind = "too_long"

    def __init__(self, message: str, *, where: str = "", gap: int | None = None, status: int | None = None) -> None:
        super().__init__(message, where=where, status=status)
        self.gap = gap


class NoModel(PalimpsestError):
    """A plan asked a model and there is none: no key, or work offline."""

    kind = "no_model"


class TooFull(PalimpsestError):
    """What cannot be left out does not fit the window; the message names each part with its tokens."""

    kind = "too_full"


class CannotFold(PalimpsestError):
    """A fold that was due or asked for could not be made; `kind` is the reason as the profile calls it."""

    kind = "fold"

    def __init__(self, message: str, *, kind: str = "fold", where: str = "") -> None:
        super().__init__(message, where=where)
        self.kind = kind
