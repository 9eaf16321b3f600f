"""What a view shows already of the state that a fold would bring back, and which copies of it are out of date."""

from collections.abc import Iterable
from dataclasses import dataclass

from palimpsest.audit.tools import args_of
from palimpsest.core.edits import Mask, Put
from palimpsest.core.items import Item, Text, ToolCall, text_of
from palimpsest.core.masking import shown
from palimpsest.core.view import View

# The source of each thing that comes back: this and its name.
RESTORED = "restored "


@dataclass(frozen=True, slots=True)
class Restored:
    """The texts that show, and the copies that earlier folds brought back, by their source."""

    texts: tuple[str, ...]
    copies: dict[str, tuple[Item, ...]]

    def shows(self, text: str) -> bool:
        """Whether some item shows a text whole."""
        return bool(text.strip()) and any(text in each for each in self.texts)

    def newest(self, puts: Iterable[Put]) -> tuple[Item, ...]:
        """The copy that says the same as some pieces of one source; empty when there is none."""
        wanted = tuple(puts)
        copy = self.copies.get(wanted[0].source, ())[-len(wanted) :] if wanted else ()
        same = len(copy) == len(wanted) and all(item.content == put.content for item, put in zip(copy, wanted, strict=True))
        return copy if same else ()

    def outdated(self, puts: Iterable[Put]) -> tuple[str, ...]:
        """The items of a source that other pieces take the place of, or that stand there once more."""
        wanted = tuple(puts)
        stays = {item.id for item in self.newest(wanted)}
        return tuple(item.id for item in self.copies.get(wanted[0].source, ()) if item.id not in stays) if wanted else ()


def restored_in(view: View) -> Restored:
    """What the items of a view show."""
    texts: list[str] = []
    copies: dict[str, list[Item]] = {}
    for item in view.items:
        content = shown(item)
        if isinstance(content, ToolCall):
            texts += [value for value in args_of(content).values() if isinstance(value, str)]
        elif content is not None:
            texts.append(text_of(content))
        if item.kind == "reminder" and item.source.startswith(RESTORED) and item.mask is None:
            copies.setdefault(item.source, []).append(item)
    return Restored(tuple(texts), {source: tuple(items) for source, items in copies.items()})


def reminder(text: str, name: str) -> Put:
    """A text that comes back, in its frame and under its name."""
    return Put("reminder", Text(f"<system-reminder>\n{text}\n</system-reminder>"), f"{RESTORED}{name}")


def without(ids: Iterable[str]) -> tuple[Mask, ...]:
    """Hides copies that are out of date."""
    gone = tuple(ids)
    return (Mask(gone),) if gone else ()
