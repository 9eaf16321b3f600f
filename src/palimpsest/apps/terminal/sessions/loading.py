"""Loads modules outside of the event loop: the first prompt does not wait for them, and neither does a key in the first turn."""

from contextlib import suppress
from importlib import import_module
from typing import Final

from palimpsest.apps.terminal.screen.blocks import ReplyBlock
from palimpsest.apps.terminal.screen.look import ScreenLook
from palimpsest.apps.terminal.screen.painting import paint

# What painting a reply needs.
_REPLY: Final = ("palimpsest.apps.terminal.screen.markdown", "rich.syntax", "pygments.lexers", "pygments.lexers.python")
_SAMPLE: Final = "# a\n\n- `b`\n\n| c | d |\n|---|---|\n| 1 | 2 |\n\n```python\ne = 1\n```\n"
# What the first call of a model needs, also what httpx imports with its first request; other versions of it may name that differently.
_MESSAGE: Final = ("palimpsest.providers.keys", "httpx", "httpcore", "sniffio", "anyio._backends._asyncio", "anyio._core._synchronization")
_COMMANDS: Final = ("palimpsest.apps.terminal.commands.registry",)


def load_for_replies() -> None:
    """Load what painting a conversation needs. Takes 100 ms the first time; in a thread, keys are taken meanwhile."""
    _load(_REPLY)
    # The first code in colours takes 25 ms, because pygments then looks for languages and makes its styles: no key should wait for that.
    paint(ReplyBlock(_SAMPLE), ScreenLook())


def load_for_first_message() -> None:
    """Load what a first message needs until its reply is painted. Takes 300 ms the first time."""
    _load(_MESSAGE)
    load_for_replies()
    _load(_COMMANDS)


def _load(names: tuple[str, ...]) -> None:
    for name in names:
        # A module that is missing is reported where it is needed.
        with suppress(ImportError):
            import_module(name)
