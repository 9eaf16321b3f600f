"""Gives a test every case of a table in one run, which fails with all the cases that failed."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def every_case(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As `pytest.mark.parametrize`, but one test. What it gets of fixtures is the same for all cases, so they must not change it."""
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = [case if isinstance(names, tuple) or len(keys) > 1 else (case,) for case in cases]

    def looped(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            assert table, f"no case of {names}"
            failed: list[BaseException] = []
            for case in table:
                values = dict(zip(keys, case, strict=True))
                try:
                    test(**fixtures, **values)
                except (Exception, BaseExceptionGroup, pytest.fail.Exception) as error:  # noqa: BLE001 - all that a case may fail with
                    of_case = error.exceptions if isinstance(error, BaseExceptionGroup) else (error,)
                    for each in of_case:
                        each.add_note(f"with {values}")
                    failed += of_case
            if failed:
                raise BaseExceptionGroup(f"{len(failed)} cases failed; each is named in a note below it", failed)

        signature = inspect.signature(test)
        others = [parameter for name, parameter in signature.parameters.items() if name not in keys]
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]  # what pytest asks for fixtures
        return run

    return looped
