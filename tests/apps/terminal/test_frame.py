"""What a frame paints again: blocks once for each refresh, not for each key."""

from prompt_toolkit.data_structures import Size

from pal.terminal.display import Frame, Shown
from pal.terminal.look import ScreenLook
from pal.terminal.painting import NoticeBlock
from pal.terminal.transcript import Status

SIZE = Size(rows=24, columns=80)


def test_a_key_shows_the_blocks_of_the_last_refresh_and_what_waits_now() -> None:
    shown = Shown(blocks=(NoticeBlock("first"),))
    frame = Frame(ScreenLook(colours="none"), lambda: shown, lambda: Status(hint="ready"))
    frame.advance()
    shown = Shown(blocks=(NoticeBlock("second"),), queued=("sent",))

    assert frame.live(SIZE) == "· first\n  queued: sent  (arrow up takes it back)\n"
    frame.advance()
    assert frame.live(SIZE) == "· second\n  queued: sent  (arrow up takes it back)\n"
    assert frame.status(SIZE) == "ready"
