"""A list on the terminal below the command line: typing filters it, Enter takes a row, Esc takes none."""

import asyncio
import sys
from collections.abc import Sequence

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import Dimension, HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.output import create_output

from pal.terminal.choosing import Chooser, Row
from pal.text import plain, unfiltered


def pick(title: str, rows: Sequence[tuple[str, str]]) -> str | None:
    """Let the user choose one of the rows, each a value and its line; return the value, or `None` if none was chosen."""
    return asyncio.run(_pick(title, [Row(value, plain(line)) for value, line in rows]))


async def _pick(title: str, rows: Sequence[Row]) -> str | None:
    chooser = Chooser(title, rows)
    typed = Buffer(on_text_changed=lambda buffer: chooser.filter(buffer.text))
    output = create_output(unfiltered(sys.stdout))
    application: Application[None] = Application(_layout(chooser, typed), key_bindings=_keys(chooser), erase_when_done=True, output=output)
    running = asyncio.create_task(application.run_async())
    chosen = asyncio.create_task(chooser.chosen())
    # The application also ends by itself, when the terminal closes.
    await asyncio.wait((running, chosen), return_when=asyncio.FIRST_COMPLETED)
    chooser.leave()
    choice = await chosen
    if not running.done():
        application.exit()
    await running
    return None if choice is None else choice.row.value


def _layout(chooser: Chooser, typed: Buffer) -> Layout:
    line = Window(BufferControl(typed), height=1)
    head = Window(FormattedTextControl(f"{chooser.title}  type to filter, Enter goes on with it, Esc leaves the list"), height=1)
    return Layout(HSplit([head, line, Window(FormattedTextControl(lambda: _fragments(chooser)), height=Dimension(max=11))]), line)


def _fragments(chooser: Chooser) -> StyleAndTextTuples:
    shown: StyleAndTextTuples = [
        ("reverse" if is_here else "", f"{'>' if is_here else ' '} {row.text}\n") for is_here, row in chooser.rows()
    ]
    return [*shown, ("", f"  … and {chooser.left_out:,} more\n")] if chooser.left_out else shown


def _keys(chooser: Chooser) -> KeyBindings:
    keys = KeyBindings()
    steps = {"up": -1, "down": 1, "c-p": -1, "c-n": 1, "pageup": -10, "pagedown": 10}

    def bind(key: str, by: int) -> None:
        @keys.add(key)
        def _(event: KeyPressEvent) -> None:
            chooser.step(by)

    for key, by in steps.items():
        bind(key, by)

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        chooser.take()

    for key in ("escape", "c-c", "c-d"):
        keys.add(key, eager=True)(lambda _: chooser.leave())
    return keys
