"""How the terminal paints: width, colours and symbols, from the terminal itself and from the user's wishes."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct

Colours: TypeAlias = Literal["none", "standard", "256", "truecolor"]
Theme: TypeAlias = Literal["dark", "light"]

NARROWEST: Final = 20
# Text is not painted wider than this: long lines are hard to read.
WIDEST_TEXT: Final = 120

_DARK: Final = {
    "user": "bold cyan",
    "dim": "bright_black",
    "good": "green",
    "bad": "red",
    "warning": "yellow",
    "accent": "cyan",
    "added": "green",
    "removed": "red",
    "bar": "cyan",
}
_LIGHT: Final = {**_DARK, "user": "bold blue", "dim": "bright_black", "accent": "blue", "warning": "dark_orange3", "bar": "blue"}
STYLES: Final[Mapping[Theme, Mapping[str, str]]] = {"dark": _DARK, "light": _LIGHT}
CODE_THEMES: Final[Mapping[Theme, str]] = {"dark": "ansi_dark", "light": "ansi_light"}


class Symbols(Struct, frozen=True):
    """The signs in front of blocks."""

    user: str = "❯"
    tool: str = "●"
    writing: str = "◌"
    running: str = "◌"
    failed: str = "✗"
    fold: str = "▾"
    notice: str = "·"
    thinking: str = "∴"
    more: str = "…"
    full: str = "█"
    empty: str = "░"
    becomes: str = "→"


# Words and ASCII, which a screen reader can say and every font has.
SPOKEN: Final = Symbols("you:", "tool:", "call:", "running:", "failed:", "edit:", "note:", "thinking:", "...", "#", "-", "to")


class ScreenLook(Struct, frozen=True):
    """How to paint. `width` is in columns; `spoken` is for screen readers: no symbols, no columns, nothing that moves."""

    width: int = 80
    colours: Colours = "256"
    theme: Theme = "dark"
    spoken: bool = False

    @property
    def symbols(self) -> Symbols:
        """The signs in front of blocks."""
        return SPOKEN if self.spoken else Symbols()

    @property
    def text_width(self) -> int:
        """Columns of running text."""
        return max(NARROWEST, min(self.width, WIDEST_TEXT))

    def style(self, name: str) -> str:
        """The style of a role, as rich writes it."""
        return STYLES[self.theme][name]


def colours_of(environment: Mapping[str, str], *, is_terminal: bool) -> Colours:
    """Return what the terminal can show: none if the user set `NO_COLOR` or it is no terminal or a dumb one."""
    if environment.get("NO_COLOR") or not is_terminal or environment.get("TERM", "") in ("", "dumb"):
        return "none"
    if environment.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "truecolor"
    return "256" if "256" in environment["TERM"] else "standard"
