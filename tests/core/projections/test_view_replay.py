from histories import Step, new_log, steps, tell
from hypothesis import given

from palimpsest.core.projections.view import ViewReplay, project


@given(steps)
def test_walking_along_a_path_shows_each_view_as_if_what_was_undone_had_never_been(told: list[Step]) -> None:
    log = tell(new_log(), told)
    walk = ViewReplay(log.reader, log.path)
    skip = log.reader.skip(log.path)
    events = list(log.events())
    for number, event in enumerate(events, 1):
        expected = project(events[:number], skip=skip, find=log.reader.item)
        assert walk.view_at(event.seq) == expected
    assert walk.view_at(log.tip).items == log.view.items
