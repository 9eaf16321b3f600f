"""The room in which tests open terminals."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from streaming_model import Part
from terminal_room import Room, room_of


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Callable[..., Room]]:
    with ExitStack() as opened:

        def made(*replies: tuple[Part, ...], about: dict[str, list[tuple[Part, ...]]] | None = None) -> Room:
            return opened.enter_context(room_of(tmp_path, *replies, about=about))

        yield made
