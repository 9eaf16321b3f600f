"""The floor of recall: the ranking of SQLite's full-text index with Porter stems, all words or without stop words."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Final

from palimpsest.lab.memory.conversations import AskedConversation
from palimpsest.memory.recall.terms import STOP_WORDS

_POSSESSIVE: Final = re.compile(r"'s\b")
_WORDS: Final = re.compile(r"[A-Za-z0-9]+")
_MOST: Final = 400


def floor_rankings(conversation: AskedConversation, *, stop_words: bool = False) -> Iterator[list[str]]:
    """Yield the ranking of each question of a conversation by FTS5: ids, best first, equal scores in the order of the units.

    `stop_words`: search for stop words too.
    """
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE VIRTUAL TABLE words USING fts5(text, tokenize='porter unicode61')")
        rows = ((number, f"{unit.who}: {unit.text}") for number, unit in enumerate(conversation.units))
        database.executemany("INSERT INTO words(rowid, text) VALUES (?, ?)", rows)
        for question in conversation.questions:
            found = database.execute(
                "SELECT rowid FROM words WHERE words MATCH ? ORDER BY bm25(words), rowid LIMIT ?",
                (_match(question.text, stop_words=stop_words), _MOST),
            )
            yield [conversation.units[number].id for (number,) in found]


def _match(text: str, *, stop_words: bool) -> str:
    words = [word.lower() for word in _WORDS.findall(_POSSESSIVE.sub("", text))]
    kept = words if stop_words else [word for word in words if word not in STOP_WORDS] or words
    return " OR ".join(f'"{word}"' for word in dict.fromkeys(kept)) or '""'
