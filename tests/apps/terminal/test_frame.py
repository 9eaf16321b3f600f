"""What a frame paints again: blocks once for each refresh, not for each key."""

from prompt_toolkit.data_structures import Size

from pal.terminal.choosing import Chooser
from pal.terminal.display import Frame
from pal.terminal.look import ScreenLook
from pal.terminal.painting import Block, NoticeBlock
from pal.terminal.transcript import PermissionQuestion, Status

SIZE = Size(rows=24, columns=80)


class Screen:
    """A terminal without a session."""

    look = ScreenLook(colours="none")
    is_answering = False
    last_block: Block | None = None

    def __init__(self) -> None:
        self.blocks: tuple[Block, ...] = ()
        self.waiting: tuple[str, ...] = ()

    def live_blocks(self) -> tuple[Block, ...]:
        return self.blocks

    def queued(self) -> tuple[str, ...]:
        return self.waiting

    def question(self) -> PermissionQuestion | None:
        return None

    def list(self) -> Chooser | None:
        return None

    def status(self) -> Status:
        return Status(hint="ready")


def test_a_key_shows_the_blocks_of_the_last_refresh_and_what_waits_now() -> None:
    screen = Screen()
    frame = Frame(screen)
    screen.blocks = (NoticeBlock("first"),)
    frame.advance()
    screen.blocks, screen.waiting = (NoticeBlock("second"),), ("sent",)

    assert frame.live(SIZE) == "· first\n  queued: sent  (arrow up takes it back)\n"
    frame.advance()
    assert frame.live(SIZE) == "· second\n  queued: sent  (arrow up takes it back)\n"
    assert frame.status(SIZE) == "ready"
