"""The source of long-term notes: what the engine gives of them at the start of an epoch, and what changed in them since."""

from collections.abc import Callable
from typing import Final

from palimpsest.core.items import Role
from palimpsest.sources.source import Fields, Place, Source, World

KEY: Final = "memory"
RULES: Final = "memory_rules"
"""Key of the text that says how to use notes which the model reads and writes itself."""
CHANGES: Final = "memory_changes"
"""Key of the text that says what differs from the statement of the notes that the view shows."""
_REMOVED: Final = "There are no notes of earlier sessions any more; do not use those that were listed before."


def notes(role: Role = "user", place: Place = "start", frame: Callable[[str], str] = str.strip, *, states_changes: bool = True) -> Source:
    """Return the source of the notes. A change within an epoch is stated by what differs, or not at all without `states_changes`.

    The text itself waits for the next epoch, so that the cached prefix of a request stays as it is.
    """

    def observed(world: World) -> Fields | None:
        text = world.state.texts.get(KEY, "")
        if not text.strip():
            return None
        return {"text": text, **({"changes": world.state.texts.get(CHANGES, "")} if states_changes else {})}

    def change(previous: Fields | None, fields: Fields) -> str:
        if not states_changes:
            # What stands in the head already is never stated a second time; a source that is not there yet is.
            return "" if previous is not None or place == "head" else frame(fields["text"])
        return frame(fields["changes"] if previous is not None and fields["changes"] else fields["text"])

    return Source(KEY, observed, lambda fields: frame(fields["text"]), change, role, place, frame(_REMOVED) if states_changes else "")
