"""Removes the words of deleted units from the index file, so that no byte of them remains."""

import sqlite3

from palimpsest.core.errors import Locked
from palimpsest.stores.index.database import Database

# The documents of the full-text index whose unit was deleted.
_DEAD = "CREATE TEMP TABLE dead AS SELECT id FROM words_docsize WHERE id NOT IN (SELECT num FROM units)"
# FTS5 deletes a document only by its words; its text is not stored, but the index can list them.
_VOCABULARY = "CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab('main', 'words', 'instance')"
_DEAD_WORDS = (
    "CREATE TEMP TABLE gone AS SELECT doc, group_concat(term, ' ') AS text FROM vocabulary WHERE doc IN (SELECT id FROM dead) GROUP BY doc"
)
_DELETE = "INSERT INTO words(words, rowid, text) SELECT 'delete', id, coalesce(text, '') FROM dead LEFT JOIN gone ON doc = id"
# Words of more than 32 KiB are cut when they are indexed, perhaps within a character, and then cannot be deleted by name.
_REMAINING = "SELECT EXISTS(SELECT 1 FROM vocabulary WHERE doc IN (SELECT id FROM dead))"


def purge(database: Database) -> bool:
    """Delete the words of deleted units; return false if some remain, so that the index must be rebuilt.

    Raises `Locked` while another process reads the index.
    """
    connection = database.connection
    with database.writing():
        try:
            connection.execute(_DEAD)
            connection.execute(_VOCABULARY)
            connection.execute(_DEAD_WORDS)
            connection.execute(_DELETE)
            # A deleted word stays in the file until its segment is merged with the older ones.
            connection.execute("INSERT INTO words(words) VALUES ('optimize')")
            (remaining,) = connection.execute(_REMAINING).fetchone()
            if not remaining:
                connection.execute("UPDATE counts SET value = 0 WHERE name = 'dead'")
        finally:
            _drop(connection)
    if remaining:
        return False
    if not database.compact():
        message = "another process is reading the index; the deleted words leave its file when that one ends"
        raise Locked(message, where=str(database.path))
    return True


def _drop(connection: sqlite3.Connection) -> None:
    connection.execute("DROP TABLE IF EXISTS temp.vocabulary")
    connection.execute("DROP TABLE IF EXISTS temp.gone")
    connection.execute("DROP TABLE IF EXISTS temp.dead")
