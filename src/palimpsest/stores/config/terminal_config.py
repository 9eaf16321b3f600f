"""Schema of the configuration of the terminal: colours, notifications, and the programs of the user that it runs."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

ThemeName: TypeAlias = Literal["dark", "light"]
NotifyWay: TypeAlias = Literal["off", "bell", "terminal", "desktop"]
_Wait: TypeAlias = Annotated[float, Meta(gt=0, le=31_536_000)]


class TerminalConfig(Struct, frozen=True, kw_only=True):
    """How the terminal looks and what it runs. A project file may set none of it: commands run with the authority of the user."""

    theme: Annotated[ThemeName, Meta(description="Colours for a dark or a light terminal; `/theme` changes it.")] = "dark"
    notify: Annotated[
        NotifyWay,
        Meta(
            description="When a turn ends or asks: off, bell, terminal (OSC 9, also over ssh) or desktop (notify-send, osascript, "
            "else as terminal)."
        ),
    ] = "bell"
    notify_command: Annotated[
        str,
        Meta(
            description="Command that runs as well when a turn ends or asks, with JSON on standard input.",
            extra={"example": '"paplay done.ogg"'},
        ),
    ] = ""
    notify_seconds: Annotated[_Wait, Meta(description="Seconds since you last sent something, from which you are notified.")] = 10.0
    status_command: Annotated[
        str,
        Meta(
            description="Command whose first line replaces the status line, with JSON on standard input; it runs after turns.",
            extra={"example": '"~/.config/status.sh"'},
        ),
    ] = ""
    status_seconds: Annotated[_Wait, Meta(description="Seconds that the command of the status line has.")] = 2.0
