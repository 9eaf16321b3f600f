"""Taking the words of what is gone out of the index file, so that no byte of them is left."""

import sqlite3

from palimpsest.core.errors import Locked
from palimpsest.stores.index.database import Database

# Every number the index knows words of, and which of them no unit has any more.
_DEAD = "CREATE TEMP TABLE dead AS SELECT id FROM words_docsize WHERE id NOT IN (SELECT num FROM units)"
# FTS5 deletes only what it is told word by word; the text is gone, but the index can list its own words.
_VOCABULARY = "CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab('main', 'words', 'instance')"
_WORDS = (
    "CREATE TEMP TABLE gone AS SELECT doc, group_concat(term, ' ') AS text FROM vocabulary WHERE doc IN (SELECT id FROM dead) GROUP BY doc"
)
_DELETE = "INSERT INTO words(words, rowid, text) SELECT 'delete', id, coalesce(text, '') FROM dead LEFT JOIN gone ON doc = id"
# A word of more than 32 KiB is cut when it is indexed, perhaps within a letter, and is not recognised when it comes back.
_LEFT = "SELECT EXISTS(SELECT 1 FROM vocabulary WHERE doc IN (SELECT id FROM dead))"


def purge(database: Database) -> bool:
    """Delete the words of units that are gone; false when some could not be deleted and the index must be made anew."""
    connection = database.connection
    with database.writing():
        try:
            connection.execute(_DEAD)
            connection.execute(_VOCABULARY)
            connection.execute(_WORDS)
            connection.execute(_DELETE)
            # A deleted word stays in the file under a mark until its segment is merged with the older ones.
            connection.execute("INSERT INTO words(words) VALUES ('optimize')")
            (left,) = connection.execute(_LEFT).fetchone()
            if not left:
                connection.execute("UPDATE counts SET value = 0 WHERE name = 'dead'")
        finally:
            _drop(connection)
    if left:
        return False
    if not database.compact():
        message = "another process is reading the index; the deleted words leave its file when that one ends"
        raise Locked(message, where=str(database.path))
    return True


def _drop(connection: sqlite3.Connection) -> None:
    connection.execute("DROP TABLE IF EXISTS temp.vocabulary")
    connection.execute("DROP TABLE IF EXISTS temp.gone")
    connection.execute("DROP TABLE IF EXISTS temp.dead")
