"""Tokens that background work of memory has used on each day, in one database for all processes of a home."""

from pathlib import Path

from palimpsest.core.items import Value
from palimpsest.stores.notes.jobs_database import JobsDatabase


class Tokens(Value, frozen=True):
    """Tokens of requests and of replies."""

    read: int = 0
    written: int = 0


class DaySpending:
    """What was used on a day (`YYYY-MM-DD`, UTC). Adding takes place at once, so that parallel workers see each other's use.

    Every method raises `StoreError` if the database cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self._database = JobsDatabase(folder)

    def used(self, day: str) -> Tokens:
        """Return what was used on a day."""
        if not self._database.exists:
            return Tokens()
        with self._database.transaction() as database:
            row = database.execute("SELECT read, written FROM spending WHERE day = ?", (day,)).fetchone()
        return Tokens() if row is None else Tokens(*row)

    def add(self, day: str, tokens: Tokens) -> None:
        """Count further tokens of a day; negative ones correct a reservation."""
        with self._database.transaction() as database:
            database.execute(
                "INSERT INTO spending VALUES (?1, max(0, ?2), max(0, ?3))"
                " ON CONFLICT (day) DO UPDATE SET read = max(0, read + ?2), written = max(0, written + ?3)",
                (day, tokens.read, tokens.written),
            )

    def reserve(self, day: str, tokens: Tokens, most: Tokens) -> bool:
        """Count tokens that a call may use, unless the day would then exceed `most`. Returns whether they were counted.

        The caller corrects the count with `add` when it knows the use; after a crash the reservation counts as used.
        """
        with self._database.transaction() as database:
            database.execute("INSERT INTO spending VALUES (?, 0, 0) ON CONFLICT (day) DO NOTHING", (day,))
            changed = database.execute(
                "UPDATE spending SET read = read + ?2, written = written + ?3 WHERE day = ?1 AND read + ?2 <= ?4 AND written + ?3 <= ?5",
                (day, tokens.read, tokens.written, most.read, most.written),
            )
            return changed.rowcount == 1
