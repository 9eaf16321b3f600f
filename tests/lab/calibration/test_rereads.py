from msgspec.structs import replace
from recorded import compacted, compacted_session, edit_part, ended, read_part, recorded, said, used

from pal_lab.cost.calibration import (
    CompactionCase,
    FormatFit,
    RereadCalibration,
    calibration_markdown,
    calibration_of,
    compacted_steps,
    compaction_cases,
    rereads_from,
    without_calls,
)
from palimpsest.core.events import ToolReturned
from palimpsest.core.items import ToolCall, ToolResult


def test_a_compaction_stands_before_the_call_that_follows_it() -> None:
    loaded = compacted_session([])

    assert compacted_steps(loaded.events, loaded.recording.steps) == (40,)


def test_calls_that_read_again_what_was_read_before_a_step_are_found_each_part_once() -> None:
    timed = said(0, "Read.")
    timed += read_part(1, 1, ', "offset": 10, "limit": 10') + used(5, "g1", "Grep", '{"pattern": "x"}', "") + read_part(10, 2)
    timed += read_part(21, 1, ', "offset": 30, "limit": 5') + read_part(31, 1, ', "offset": 19, "limit": 2') + read_part(41, 1)
    timed += used(51, "s1", "Bash", '{"command": "sed -n 1,20p src/part_2.py"}', "") + read_part(61, 3)
    timed += used(71, "g2", "Grep", '{"pattern": "x"}', "") + used(81, "g3", "Grep", '{"pattern": "y"}', "")

    # r21 reads other lines than before; r41 reads lines again that r31 has shown again.
    assert rereads_from(recorded(*timed, *ended(99)), 3) == {"r31", "s1", "g2"}


def test_calls_that_are_taken_out_ask_for_nothing_and_show_nothing() -> None:
    recording = recorded(*said(0, "Read."), *read_part(1, 1), *read_part(11, 2), *ended(99))
    first, second, *rest = without_calls(recording, {"r1"})

    assert first.reply.parts == (ToolCall("r1", "Read", "{}"),)
    (emptied,) = second.inputs
    assert isinstance(emptied.body, ToolReturned)
    assert emptied.body.result == ToolResult("r1")
    assert (second.reply, rest) == (recording.steps[1].reply, list(recording.steps[2:]))


def test_recorded_rereads_after_a_compaction_stand_beside_what_each_definition_predicts() -> None:
    again, nothing = compacted_session(read_part(510, 5) + edit_part(520, 5)), compacted_session([])

    # The file had to be read again before its edit. The imitated summary keeps the strings of this edit, but not the line.
    assert compaction_cases(again) == [CompactionCase("recorded", "claude", 40, 1, 0, {"text": 1, "strings": 0, "names": 1})]
    assert compaction_cases(nothing) == [CompactionCase("recorded", "claude", 40, 0, 0, {"text": 0, "strings": 0, "names": 0})]


def test_a_compaction_with_another_one_behind_it_is_left_out_and_one_with_another_before_it_has_no_control() -> None:
    near = compacted_session(read_part(510, 3) + compacted(515) + read_part(520, 4))

    assert [(case.step, case.control) for case in compaction_cases(near)] == [(41, None)]
    assert compaction_cases(replace(compacted_session([]), format="palimpsest")) == []


def _case(session: str, form: str, after: int, control: int | None, *predicted: int) -> CompactionCase:
    return CompactionCase(session, form, 40, after, control, dict(zip(("text", "strings", "names"), predicted, strict=True)))


CASES = (
    _case("one", "claude", 3, 1, 1, 2, 6),
    _case("one", "claude", 1, None, 0, 2, 4),
    _case("two", "codex", 2, 2, 0, 3, 3),
)


def test_the_definition_with_the_smallest_error_over_all_compactions_fits_best() -> None:
    assert calibration_of(CASES) == RereadCalibration(
        CASES,
        (
            FormatFit(
                *("claude", "claude-code-2.1.325", 2, 1, 2.0, 1.0, 1.0),
                {"text": 0.5, "strings": 2.0, "names": 5.0},
                {"text": 0.5, "strings": 1.0, "names": 4.0},
            ),
            FormatFit(
                *("codex", "codex-0.166", 1, 1, 2.0, 2.0, 0.0),
                {"text": 0.0, "strings": 3.0, "names": 3.0},
                {"text": 0.0, "strings": 3.0, "names": 3.0},
            ),
        ),
        {"text": 0.333, "strings": 1.667, "names": 3.667},
        "text",
        sessions=2,
        stable=2,
    )


def test_the_table_of_a_document_has_a_row_for_each_format() -> None:
    assert calibration_markdown(calibration_of(CASES)) == (
        "| sessions | compactions | re-reads in the next 20 calls | in the 20 before | extra | *text* | *strings* | *names* |\n"
        "|---|---:|---:|---:|---:|---:|---:|---:|\n"
        "| claude, as `claude-code-2.1.325` | 2 | 2.00 | 1.00 | 1.00 | 0.50 (0.50) | 2.00 (1.00) | 5.00 (4.00) |\n"
        "| codex, as `codex-0.166` | 1 | 2.00 | 2.00 | 0.00 | 0.00 (0.00) | 3.00 (3.00) | 3.00 (3.00) |\n"
        "\nAbsolute error over all compactions: *text* 0.33, *strings* 1.67, *names* 3.67. "
        "Best fit: *text*, also without any single session in 2 of 2 cases. Official: *text*."
    )
