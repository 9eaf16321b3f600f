"""The keys of the terminal while the user types, the agent works or a question is open."""

from collections.abc import Callable
from typing import Final

from prompt_toolkit.filters import Condition, Filter, completion_is_selected, has_completions, is_done, is_searching, vi_insert_mode
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from pal.terminal.painting import AUDIT_KEY
from pal.terminal.terminal import Terminal
from pal.terminal.transcript import AnswerKey

# Letters that lists may use: undo or unpin, pin, forget, restore, stop.
_LIST_LETTERS: Final = "upfrs"
KEYS: Final = (
    ("Enter", "send; while the agent works, it steers at the next safe point"),
    ("Alt-Enter, Ctrl-J", "a new line; `\\` at the end of a line does it too"),
    ("Esc", "interrupt the agent; clear a completion"),
    ("Esc Esc", "go back to an earlier message"),
    ("Ctrl-C", "interrupt, or clear the input; twice: leave"),
    ("Ctrl-D", "leave, if the input is empty"),
    ("Up, Down", "earlier messages, also of other sessions; take a queued message back"),
    ("Ctrl-R", "search in earlier messages"),
    ("Tab", "complete a command, a file after @, a skill after $"),
    ("Shift-Tab", "the next mode: ask, edits, plan, auto"),
    ("Ctrl-O", "show the newest tool output or thinking in full, or the call that a question is about"),
    (AUDIT_KEY, "the newest edit of the context: what it hid and cost, and `u` to undo it"),
    ("Ctrl-G", "write the message in your editor"),
    ("Ctrl-V", "paste an image of the clipboard"),
    ("Ctrl-Z", "stop and go back to the shell; `fg` goes on"),
    ("y, a, n", "answer a question: once, always, no"),
    ("text, Enter", "while a question is open: no, and the model gets the text as the reason"),
)
"""Keys and what they do, for `/help` and the documentation."""


def key_bindings(terminal: Terminal) -> KeyBindings:
    """Return the bindings. Keys of editing that are not named here are those of prompt_toolkit for emacs or vi."""
    keys = KeyBindings()
    asking, choosing = Condition(lambda: terminal.is_asking), Condition(lambda: terminal.is_choosing)
    _add_editing(keys, terminal, ~choosing)
    _add_list(keys, terminal, choosing)
    _add_control(keys, terminal)
    for key in ("y", "a", "n"):
        _add_answer(keys, terminal, key, Condition(lambda: terminal.is_answering))

    @keys.add("tab", filter=asking, eager=True)
    def _(event: KeyPressEvent) -> None:
        terminal.line.set_aside()

    return keys


def _add_editing(keys: KeyBindings, terminal: Terminal, typing: Filter) -> None:
    writing = typing & ~is_searching

    @keys.add("enter", filter=writing & ~completion_is_selected)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.current_line_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            terminal.submit()

    @keys.add("enter", filter=writing & completion_is_selected)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.complete_state = None

    @keys.add("escape", "enter", filter=writing)
    @keys.add("c-j", filter=writing)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("up", filter=writing & ~has_completions)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.text or not terminal.take_back():
            buffer.auto_up(count=event.arg)

    @keys.add(Keys.BracketedPaste, filter=typing)
    def _(event: KeyPressEvent) -> None:
        terminal.line.paste(event.data)

    @keys.add("c-v", filter=typing & ~vi_insert_mode)
    def _(event: KeyPressEvent) -> None:
        terminal.command("/image")

    @keys.add("c-g", filter=writing)
    def _(event: KeyPressEvent) -> None:
        terminal.edit()


def _add_list(keys: KeyBindings, terminal: Terminal, choosing: Filter) -> None:
    @keys.add("up", filter=choosing, eager=True)
    def _(event: KeyPressEvent) -> None:
        terminal.lists.step(-1)

    @keys.add("down", filter=choosing, eager=True)
    def _(event: KeyPressEvent) -> None:
        terminal.lists.step(1)

    @keys.add("enter", filter=choosing, eager=True)
    def _(event: KeyPressEvent) -> None:
        terminal.lists.take()

    for letter in _LIST_LETTERS:
        _add_letter(keys, terminal, letter, choosing)


def _add_letter(keys: KeyBindings, terminal: Terminal, letter: str, choosing: Filter) -> None:
    @keys.add(letter, filter=choosing & Condition(lambda: terminal.lists.offers(letter)), eager=True)
    def _(event: KeyPressEvent) -> None:
        terminal.lists.take(letter)


def _add_control(keys: KeyBindings, terminal: Terminal) -> None:
    simple: dict[str, Callable[[], None]] = {
        "c-c": terminal.stop,
        "c-o": terminal.open_block,
        "c-t": terminal.audit,
        "s-tab": lambda: terminal.command("/mode next"),
        "c-z": terminal.suspend,
    }
    for key, action in simple.items():
        _add_simple(keys, key, action)

    @keys.add("escape", filter=~is_searching & ~is_done & ~vi_insert_mode)
    def _(event: KeyPressEvent) -> None:
        if event.current_buffer.complete_state is not None:
            event.current_buffer.complete_state = None
        else:
            terminal.escape()

    @keys.add("c-d")
    def _(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.delete(1)
        else:
            terminal.leave()


def _add_simple(keys: KeyBindings, key: str, action: Callable[[], None]) -> None:
    @keys.add(key, eager=True)
    def _(event: KeyPressEvent) -> None:
        action()


def _add_answer(keys: KeyBindings, terminal: Terminal, key: AnswerKey, asking: Filter) -> None:
    @keys.add(key, filter=asking, eager=True)
    def _(event: KeyPressEvent) -> None:
        terminal.answer(key)
