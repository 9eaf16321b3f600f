from recorded import ended, log_of, recorded, said, used

from pal.replay.recording import RecordedInput, Step, TokenCalibration, calibrate, load_log
from palimpsest.core.events import Body, CallStarted, ModelReplied, ToolReturned, Usage, UserSaid, ViewEdited
from palimpsest.core.items import Mask, Text, ToolCall, ToolResult
from palimpsest.core.tokens import palimpsest_size
from palimpsest.stores.in_memory import MemoryBlobs

CALL = ToolCall("c1", "Bash", '{"command": "ls"}')


def test_a_step_is_what_arrived_since_the_last_reply_and_the_reply() -> None:
    recording = recorded(*said(10, "List it."), *used(20, "c1", "Bash", '{"command": "ls"}', "a.py"), *ended(30))

    size = recording.calibration.scaled
    assert recording.steps == (
        Step(
            0,
            3,
            10_000,
            ModelReplied((CALL,), model="claude-sonnet-4-5"),
            size(palimpsest_size(CALL)),
            (RecordedInput(1, 10_000, UserSaid((Text("List it."),))),),
            turn=True,
        ),
        Step(
            1,
            6,
            22_000,
            ModelReplied((Text("Done.", "assistant"),), model="claude-sonnet-4-5"),
            size(palimpsest_size(Text("Done."))),
            (RecordedInput(4, 22_000, ToolReturned(ToolResult("c1", (Text("a.py"),)), "Bash")),),
            ends=True,
        ),
    )


def test_a_request_left_when_its_last_input_was_there_and_not_when_its_answer_came() -> None:
    steps = recorded(*said(10, "Hello"), *ended(55), *said(100, "Go on"), *ended(103)).steps

    assert [step.at for step in steps] == [10_000, 100_000]


def test_edits_of_the_recorded_program_are_left_out() -> None:
    edited = (25, ViewEdited((Mask(("4.0",), "[gone]"),), "another program"))
    recording = recorded(*said(10, "List it."), *used(20, "c1", "Bash", '{"command": "ls"}', "a.py"), edited, *ended(30))

    assert [type(each.body).__name__ for step in recording.steps for each in step.inputs] == ["UserSaid", "ToolReturned"]


def test_a_message_after_a_reply_without_calls_begins_a_turn_even_if_no_end_was_recorded() -> None:
    first, second = ended(20, "Yes?"), ended(40, "Bye.")
    steps = recorded(*said(10, "Hello"), *first[:-1], *said(30, "Bye"), *second[:-1]).steps

    assert [(step.turn, step.ends) for step in steps] == [(True, True), (True, True)]


def test_a_message_while_a_tool_runs_is_part_of_the_turn() -> None:
    call = used(20, "c1", "Bash", '{"command": "ls"}', "a.py")
    steps = recorded(*said(10, "List it."), *call[:2], *said(21, "Quick!"), call[2], *ended(30)).steps

    assert [(step.turn, step.ends) for step in steps] == [(True, False), (False, True)]


def test_output_is_what_was_recorded_unless_the_reply_shows_more() -> None:
    long = Text("word " * 200, "assistant")
    steps = recorded(
        *said(10, "Tell"),
        (20, ModelReplied((long,), usage=Usage(input=10, output=3))),
        *said(30, "More"),
        (40, ModelReplied((Text("Yes.", "assistant"),), usage=Usage(input=10, output=900))),
    ).steps

    assert 150 < steps[0].output < 400
    assert steps[1].output == 900


def test_what_comes_after_the_last_reply_and_empty_replies_are_never_sent() -> None:
    steps = recorded(*said(10, "Hello"), *ended(20), (30, ModelReplied(())), *said(40, "Anybody?")).steps

    assert len(steps) == 1


def test_the_measure_learns_the_vocabulary_from_growth_and_the_unseen_from_what_is_left() -> None:
    timed: list[tuple[int, Body]] = []
    shown = 0
    for turn in range(30):
        text = f"Message {turn}: " + "plain words of no great length " * 60
        shown += palimpsest_size(Text(text))
        timed += said(100 * turn, text)
        timed.append((100 * turn + 1, CallStarted("claude-sonnet-4-5", "anthropic")))
        timed.append((100 * turn + 2, ModelReplied((Text("Yes.", "assistant"),), usage=Usage(input=12_000 + round(1.5 * shown)))))
        shown += palimpsest_size(Text("Yes.", "assistant"))

    measure = calibrate(log_of(*timed).events())
    assert abs(measure.factor - 1.5) < 0.001
    assert abs(measure.unseen - 12_000) < 5


def test_without_reported_usage_the_family_of_the_model_decides_and_nothing_is_unseen() -> None:
    assert calibrate(log_of(*said(10, "Hello"), *ended(20)).events()) == TokenCalibration(1.33, 0)


def test_an_edit_that_brings_what_is_not_recorded_does_not_count_as_unseen() -> None:
    timed: list[tuple[int, Body]] = []
    for turn in range(20):
        extra = 30_000 if turn >= 10 else 0
        if turn == 10:
            timed.append((100 * turn - 1, ViewEdited((), "another program")))
        timed += said(100 * turn, "word " * 500)
        timed.append((100 * turn + 1, CallStarted("claude-sonnet-4-5", "anthropic")))
        shown = (turn + 1) * palimpsest_size(Text("word " * 500)) + turn * palimpsest_size(Text("Yes."))
        timed.append((100 * turn + 2, ModelReplied((Text("Yes.", "assistant"),), usage=Usage(input=9_000 + shown + extra))))

    assert abs(calibrate(log_of(*timed).events()).unseen - 9_000) < 5


def test_a_taken_log_says_where_it_came_from_and_how_much_it_is() -> None:
    log = log_of(*said(10, "Hello"), *ended(20))
    taken = load_log(log, MemoryBlobs(), "here.jsonl")

    assert (taken.id, taken.source, taken.format, len(taken.events)) == ("recorded", "here.jsonl", "palimpsest", 5)
    sizes = palimpsest_size(Text("Hello")) + palimpsest_size(Text("Done."))
    assert taken.recording.tokens == taken.recording.calibration.scaled(sizes)
