"""Loads modules outside of the event loop: the first prompt does not wait for them, and neither does a key in the first turn."""

from importlib import import_module
from typing import Final

# What painting a reply needs.
_REPLY: Final = ("palimpsest.apps.terminal.screen.markdown", "rich.syntax", "pygments.lexers", "pygments.lexers.python")
# What the first call of a model, a command and a completion need.
_MESSAGE: Final = ("palimpsest.providers.keys", "httpx", "httpcore", "anyio", "palimpsest.apps.terminal.commands.registry")


def load_for_replies() -> None:
    """Load what painting a conversation needs. Takes 100 ms the first time; in a thread, keys are taken meanwhile."""
    for name in _REPLY:
        import_module(name)


def load_for_first_message() -> None:
    """Load what a first message needs until its reply is painted. Takes 300 ms the first time."""
    for name in _MESSAGE:
        import_module(name)
    load_for_replies()
