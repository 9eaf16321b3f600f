"""What was visible before an edit and is not after it."""

from palimpsest.core.events import Loss
from palimpsest.core.view import View


def loss_of(before: View, after: View) -> Loss:
    """What an edit hides, by kind of entity, and the items that no longer show."""
    shown = {item.id for item in after.items if item.mask is None}
    return Loss(ids=tuple(item.id for item in before.items if item.mask is None and item.id not in shown))
