"""How contracts state their laws: a law is a method whose name begins with `test_`, and a broken one raises `ContractBroken`."""

from collections.abc import Callable

from palimpsest.core.errors import PalimpsestError


class ContractBroken(AssertionError):
    """A law does not hold; the message says what was found."""


def require(holds: object, found: str) -> None:
    """Raise `ContractBroken` with what was found unless `holds` is true. Unlike `assert`, it is not removed by `python -O`."""
    if not holds:
        raise ContractBroken(found)


def require_equal(found: object, expected: object, what: str) -> None:
    """Raise `ContractBroken` unless both are equal."""
    require(found == expected, f"{what}: found {found!r}, expected {expected!r}")


def require_error(kind: type[PalimpsestError], ask: Callable[[], object], what: str) -> None:
    """Raise `ContractBroken` unless the call raises an error of that type."""
    try:
        found = ask()
    except kind:
        return
    except PalimpsestError as error:
        raise ContractBroken(f"{what}: raised {type(error).__name__}, expected {kind.__name__}") from error
    raise ContractBroken(f"{what}: returned {found!r}, expected {kind.__name__}")


def check(contract: object) -> tuple[str, ...]:
    """Run all laws of a contract without pytest and return their names. Raises `ContractBroken` for the first that does not hold."""
    names = tuple(name for name in dir(contract) if name.startswith("test_"))
    for name in names:
        getattr(contract, name)()
    return names
