import pytest
from recorded import ended, recorded, said, used

from pal.replay.recording import RecordedSession, RecordingIndex
from pal_lab.cost.continuation import RecordedPlace, derived_tools, most_usd, place_of, requests_at
from palimpsest.core.errors import BadInput
from palimpsest.core.items import text_of
from palimpsest.core.view import shown
from palimpsest.policies.named import profile
from palimpsest.wire.models import card
from palimpsest.wire.request import Tool

SONNET = card("claude-sonnet-4-5", window=40_000)
CODE = "def merge_window(cursor_one, cursor_two):\n    return settle_basket(cursor_one)\n"


def _long_session() -> RecordedSession:
    """Two turns: the first reads twelve files of 3,000 tokens, the second runs a command."""
    timed = said(0, "Find out where merge_window is used.")
    for number in range(12):
        timed += used(10 * number + 1, f"c{number}", "Read", f'{{"file_path": "/repo/file_{number}.py"}}', CODE * 110)
    timed += [*ended(200), *said(210, "Now run the tests."), *used(211, "t", "Bash", '{"command": "pytest"}', "ok"), *ended(220)]
    return recorded(*timed)


RECORDING = _long_session()
INDEX = RecordingIndex(RECORDING.steps)


def test_the_place_is_the_first_user_message_after_the_named_fold() -> None:
    place = place_of(RECORDING, profile("palimpsest"), SONNET, 1, INDEX)

    assert place == RecordedPlace(step=13, folded_at=place.folded_at)
    assert 0 < place.folded_at < 13
    assert RECORDING.steps[13].turn


def test_a_fold_that_was_never_made_is_an_error_with_the_number_of_folds() -> None:
    with pytest.raises(BadInput, match="there is no fold 9 under palimpsest, which folds once; name a call with --call"):
        place_of(RECORDING, profile("palimpsest"), SONNET, 9, INDEX)
    with pytest.raises(
        BadInput, match="none never folds this session in a window of 200,000 tokens; give a smaller --window, or a call with --call"
    ):
        place_of(RECORDING, profile("none"), card("claude-sonnet-4-5", window=200_000), None, INDEX)


def test_each_profile_sends_its_own_view_up_to_the_same_message() -> None:
    folded, whole = requests_at(RECORDING, (profile("palimpsest"), profile("none")), SONNET, 13, INDEX)
    last = [[text_of(item.content) for item in request.view.items[-1:] if shown(item) is item.content] for request in (folded, whole)]

    assert (folded.profile, whole.profile) == ("palimpsest", "none")
    assert last == [["Now run the tests."], ["Now run the tests."]]
    assert folded.tokens < whole.tokens / 2


def test_the_stand_in_for_an_unrecorded_system_prompt_is_not_sent() -> None:
    (request,) = requests_at(RECORDING, (profile("none"),), SONNET, 13, INDEX)

    assert [text_of(item.content) for item in request.view.head] == [
        "You work on the task of the user with the tools that are at hand.",
        "Today is the day of the recording.",
    ]


def test_the_price_counts_every_sample_of_every_request_without_a_cache() -> None:
    requests = requests_at(RECORDING, (profile("none"),), SONNET, 13, INDEX)

    assert most_usd(requests, SONNET, 3, 1_000) == pytest.approx(3 * (requests[0].tokens * 3 + 1_000 * 15) / 1_000_000)


def test_tools_are_derived_from_the_arguments_of_recorded_calls() -> None:
    bash, read = derived_tools(RECORDING.steps)

    assert bash == Tool("Bash", schema=bash.schema)
    assert bytes(bash.schema) == b'{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}'
    assert bytes(read.schema) == b'{"type":"object","properties":{"file_path":{"type":"string"}},"required":["file_path"]}'
