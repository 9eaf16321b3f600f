"""A read-only dictionary for the fields of frozen values."""

from collections.abc import Mapping
from typing import Any, Final, NoReturn, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class FrozenDict(dict[K, V]):
    """A dictionary whose content is fixed when it is made: every method that would change it raises `TypeError`.

    It equals a `dict` with the same content and is written as the same JSON; `copy()` and `|` give a plain `dict`. Make one with
    `frozen`, and annotate a field that holds one as `Mapping`: `msgspec` then decodes a plain `dict`, which `__post_init__` replaces:

        class Health(Value, frozen=True):
            failures: Mapping[str, int] = EMPTY

            def __post_init__(self) -> None:
                force_setattr(self, "failures", frozen(self.failures))
    """

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("this dictionary is part of a frozen value and cannot be changed; make a new one with dict(...)")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # a plain dictionary has none, because it can change
        return hash(frozenset(self.items()))

    def __copy__(self) -> "FrozenDict[K, V]":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # The default protocol fills an empty dictionary item by item, which is refused.
        return FrozenDict, (dict(self),)


# One object, because `omit_defaults` leaves a field out of the JSON when it holds the very object that is its default.
EMPTY: Final[FrozenDict[Any, Any]] = FrozenDict()


def frozen(mapping: Mapping[K, V]) -> FrozenDict[K, V]:
    """The mapping as a read-only dictionary: itself if it is one, `EMPTY` if it has no entries, else a copy."""
    if type(mapping) is FrozenDict:
        return mapping
    return FrozenDict(mapping) if mapping else EMPTY
