"""What an edit hides, as it stands in its event."""

from palimpsest.core.items import Value


class Lost(Value, frozen=True, array_like=True):
    """Something that no longer shows, and the item in which it stood; written as a list of two."""

    text: str
    item: str


class Loss(Value, frozen=True):
    """What an edit hides, by kind of entity; `ids` are the items that showed before and do not any more.

    `path_items` and `command_items` say of each path and command in which item it stood. Of every kind only some are listed; `more` has
    how many others there are.
    """

    paths: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    numbers: int = 0
    user_messages: int = 0
    ids: tuple[str, ...] = ()
    path_items: tuple[str, ...] = ()
    command_items: tuple[str, ...] = ()
    symbols: tuple[Lost, ...] = ()
    errors: tuple[Lost, ...] = ()
    urls: tuple[Lost, ...] = ()
    identifiers: tuple[Lost, ...] = ()
    more: dict[str, int] = {}
