"""The reply that is being streamed, on disk: what had arrived is shown again, and nothing is left once the log has the reply."""

import asyncio
from pathlib import Path

from pal.terminal.conversation import CUT_OFF, OpenReply
from pal.terminal.painting import Block, NoticeBlock, ReplyBlock, ThinkingBlock, ToolBlock
from palimpsest.agent.feed import Piece
from palimpsest.core.deltas import CallDelta, TextDelta, ThinkingDelta
from palimpsest.core.events import Body, CallStarted, Event, Failed, Interrupted, ModelReplied
from palimpsest.core.items import Text

DELTAS = (ThinkingDelta("hm"), TextDelta("the begin"), TextDelta("ning"), CallDelta("c1", "bash", ""), CallDelta("c1", "bash", '{"comm'))
SHOWN: tuple[Block, ...] = (
    ThinkingBlock("hm"),
    ReplyBlock("the beginning", is_cut_off=True),
    ToolBlock("c1", "bash", '{"comm', "writing"),
    NoticeBlock(CUT_OFF, "warning"),
)


def event(seq: int, body: Body) -> Event:
    return Event(seq, seq - 1, 0, "", body)


def taken(folder: Path, *pieces: Piece) -> None:
    """Let a terminal take pieces, and end it after what it keeps within a frame is written."""

    async def take() -> None:
        reply = OpenReply(folder, "s")
        for piece in pieces:
            reply.take(piece)
        reply.write()

    asyncio.run(take())


def cut_off(folder: Path, call: int = 7, *, body: Body | None = None) -> tuple[Block, ...]:
    return OpenReply(folder, "s").cut_off(event(9, body or Interrupted(call)))


def test_what_had_arrived_of_the_call_that_has_no_outcome_is_there_again(tmp_path: Path) -> None:
    taken(tmp_path, event(7, CallStarted("m", "anthropic")), *DELTAS)
    assert cut_off(tmp_path) == SHOWN
    assert cut_off(tmp_path, 6) == ()
    assert cut_off(tmp_path, body=Interrupted(7, (Text("the beginning", "assistant"),))) == ()
    assert cut_off(tmp_path, body=ModelReplied((), 7)) == ()


def test_a_call_that_has_sent_nothing_yet_leaves_what_was_kept_before(tmp_path: Path) -> None:
    taken(tmp_path, event(7, CallStarted("m", "anthropic")), *DELTAS)
    taken(tmp_path, event(10, CallStarted("m", "anthropic")))
    assert cut_off(tmp_path) == SHOWN
    taken(tmp_path, event(10, CallStarted("m", "anthropic")), TextDelta("again"))
    assert cut_off(tmp_path) == ()
    assert cut_off(tmp_path, 10) == (ReplyBlock("again", is_cut_off=True), NoticeBlock(CUT_OFF, "warning"))


def test_nothing_is_left_once_the_log_has_the_outcome(tmp_path: Path) -> None:
    for outcome in (ModelReplied((), 7), Interrupted(7), Failed("call", "internal", call=7)):
        taken(tmp_path, event(7, CallStarted("m", "anthropic")), *DELTAS, event(8, outcome))
        assert list((tmp_path / "drafts").iterdir()) == []


def test_deltas_of_no_call_of_the_turn_and_a_home_in_memory_keep_nothing(tmp_path: Path) -> None:
    taken(tmp_path, event(7, CallStarted("m", "anthropic", purpose="summary")), *DELTAS)
    assert list(tmp_path.iterdir()) == []
    reply = OpenReply(None, "s")
    reply.take(event(7, CallStarted("m", "anthropic")))
    reply.take(TextDelta("text"))
    assert reply.cut_off(event(9, Interrupted(7))) == ()


def test_a_torn_last_line_is_left_out_and_a_damaged_file_shows_nothing(tmp_path: Path) -> None:
    taken(tmp_path, event(7, CallStarted("m", "anthropic")), *DELTAS)
    file = tmp_path / "drafts" / "s.reply.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[:-3])
    assert cut_off(tmp_path) == (*SHOWN[:2], ToolBlock("c1", "bash", "", "writing"), SHOWN[3])
    file.write_bytes(b"7\n[]\n" + whole)
    assert cut_off(tmp_path) == ()
    file.write_bytes(b"")
    assert cut_off(tmp_path) == ()


def test_half_a_letter_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    started = event(7, CallStarted("m", "anthropic"))
    taken(tmp_path, started, TextDelta("\ud83d"), TextDelta("whole"))
    assert cut_off(tmp_path) == (ReplyBlock("whole", is_cut_off=True), NoticeBlock(CUT_OFF, "warning"))


def test_a_reply_without_end_is_kept_up_to_a_megabyte(tmp_path: Path) -> None:
    taken(tmp_path, event(7, CallStarted("m", "anthropic")), *[TextDelta("x" * 400_000)], TextDelta("y" * 400_000))
    taken_size = (tmp_path / "drafts" / "s.reply.jsonl").stat().st_size
    assert 800_000 < taken_size < 1024 * 1024
    taken(tmp_path, event(7, CallStarted("m", "anthropic")), TextDelta("x"), TextDelta("y" * 2_000_000))
    assert cut_off(tmp_path)[:1] == (ReplyBlock("x", is_cut_off=True),)
