from histories import Step, new_log, steps, tell
from hypothesis import given

from palimpsest.core.projections.view import ViewReplay, project


@given(steps)
def test_a_replay_shows_each_view_without_the_undone_edits(history: list[Step]) -> None:
    log = tell(new_log(), history)
    replay = ViewReplay(log.reader, log.path)
    skip = log.reader.skip(log.path)
    events = list(log.events())
    for number, event in enumerate(events, 1):
        expected = project(events[:number], skip=skip, find=log.reader.item)
        assert replay.view_at(event.seq) == expected
    assert replay.view_at(log.tip).items == log.view.items
