"""Cards: notes in their simplest form, each a fact with how it was learned, whom it is about and since when, within a budget of tokens."""

from collections.abc import Iterable, Sequence
from typing import Final

from palimpsest.core.items import Value
from palimpsest.core.tokens.estimate import estimate
from palimpsest.memory.note import ORIGINS, Note
from palimpsest.memory.recall.selection import one_line
from palimpsest.memory.showing.newer import NewerNotes, older_mark, shown_time
from palimpsest.memory.showing.note_block import without_tags

CARD_TOKENS: Final = 3_000


class CardsShown(Value, frozen=True):
    """The text of cards, the names of those in it, and how many did not fit."""

    text: str = ""
    names: tuple[str, ...] = ()
    left_out: int = 0


def show_cards(notes: Iterable[Note], count: int, newer: NewerNotes, *, tokens: int = CARD_TOKENS) -> CardsShown:
    """Return the cards of notes, which come newest first, as far as they fit a budget of tokens; there are `count` in all.

    What does not fit is counted in the last line, with the tool that finds it.
    """
    room = tokens - estimate(_more(99_999))
    cards: list[str] = []
    names: list[str] = []
    for note in notes:
        card = card_text(note, newer.of(note.name))
        size = estimate(f"{card}\n")
        if size > room:
            break
        room -= size
        cards.append(card)
        names.append(note.name)
    left_out = count - len(names)
    return CardsShown("\n".join((*cards, *((_more(left_out),) if left_out else ()))), tuple(names), left_out)


def card_text(note: Note, newer: Sequence[str] = ()) -> str:
    """Return the card of a note. What the engine keeps beside the fact, such as who wrote it or how often it was used, is not shown."""
    whom = f"person: {one_line(note.person)} · relationship: {one_line(note.relationship)} · date: {shown_time(note.when, is_finer=True)}"
    marks = filter(None, (ORIGINS[note.trust], older_mark(newer, note.trust)))
    lines = (
        f"[{note.name}] {one_line(note.body)}",
        *(f"  {mark}" for mark in marks),
        f"  {whom}",
        f"  backstory: {one_line(note.backstory)}",
    )
    return without_tags("\n".join(lines))


def _more(count: int) -> str:
    return f"+{count} more cards; find them with the tool recall"
