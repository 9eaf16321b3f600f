"""The conversations of one client: a client may have several lists, such as those of its sub-agents, and each has a log of its own."""

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, Final, TypedDict, Unpack

from palimpsest.core.errors import BadInput, PalimpsestError
from palimpsest.engine.conversation.conversation import Conversation
from palimpsest.engine.conversation.following import leading_system_messages
from palimpsest.engine.named_profiles import profile as named_profile
from palimpsest.mirror.plain import digest_of_message, plain_value
from palimpsest.profiles.named import DEFAULT
from palimpsest.stores.home import AnyHome
from palimpsest.wire.models.cards import WireName

MOST_OPEN: Final = 64
"""The conversations of a client that are open at once; the one that was used longest ago is closed for another."""
_ODD: Final = "odd"


class ConversationOptions(TypedDict, total=False):
    """How conversations are opened: as in `Conversation.open`."""

    home: AnyHome | str | os.PathLike[str] | None
    profile: str
    settings: Mapping[str, str] | None


class Conversations:
    """Finds the conversation of a request: told apart by model, system prompt and first message, which a list keeps while it grows.

    `name` is the beginning of the ids of their sessions, so that another process with the same name and home goes on with them. `reason`
    says why the last one that was opened is kept in memory although there is a home. Raises `BadInput` for an unknown profile.
    """

    def __init__(self, name: str = "", **options: Unpack[ConversationOptions]) -> None:
        named_profile(options.get("profile", DEFAULT), options.get("settings"))
        self.reason = ""
        self._name = name
        self._options = options
        self._open: OrderedDict[str, Conversation] = OrderedDict()
        self._lock = Lock()

    def of(self, messages: Sequence[Any], *, model: str, system: object, shape: WireName) -> Conversation:
        """Return the conversation of a list, which is opened with its first request."""
        key = _key(messages, model, system)
        with self._lock:
            found = self._open.pop(key, None)
            if found is None:
                found = self._opened(f"{self._name}-{key}" if self._name else None, model, shape)
                if len(self._open) >= MOST_OPEN:
                    self._open.popitem(last=False)[1].close()
            self._open[key] = found
            return found

    def _opened(self, name: str | None, model: str, shape: WireName) -> Conversation:
        try:
            return Conversation.open(name, model=model, shape=shape, **self._options)
        except (PalimpsestError, OSError) as error:
            # Such as a session that another process has open, or a full disk: neither may stop the loop of another program.
            self.reason = str(error)
            return Conversation.open(model=model, shape=shape, **self._options | {"home": None})

    def all(self) -> tuple[Conversation, ...]:
        """Return the open conversations; the one that was used last is the last."""
        with self._lock:
            return tuple(self._open.values())

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            while self._open:
                self._open.popitem()[1].close()


def _key(messages: Sequence[Any], model: str, system: object) -> str:
    """A digest of what a list begins with; a list that cannot be read shares one conversation with all such lists."""
    first = leading_system_messages(messages, "chat")
    try:
        return digest_of_message({"model": model, "content": plain_value(system), "first": plain_value(list(messages[: first + 1]))})[:16]
    except BadInput:
        return _ODD
