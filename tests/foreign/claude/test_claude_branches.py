from claude_lines import branch_to, chain_faults, ids, lines_of, log_with, paired
from histories import new_log, steps, tell
from hypothesis import given, settings

from palimpsest.core.events import ModelReplied, ToolReturned, UserSaid, ViewEdited
from palimpsest.core.items import Fold, Put, Text, ToolCall, ToolResult
from palimpsest.core.undo import rewind


def test_a_call_that_ends_a_session_is_answered_for_the_program_would_forget_it() -> None:
    asked, called, answer = lines_of(log_with(UserSaid((Text("look"),)), ModelReplied((ToolCall("c1", "bash", "{}"),))))
    assert [asked["parentUuid"], called["parentUuid"], answer["parentUuid"]] == [None, asked["uuid"], called["uuid"]]
    assert answer["message"]["content"] == [
        {"tool_use_id": "c1", "type": "tool_result", "content": "The call was interrupted; there is no result.", "is_error": True}
    ]


def test_a_call_is_answered_on_its_own_branch_alone() -> None:
    log = log_with(UserSaid((Text("one"),)), ModelReplied((ToolCall("c1", "bash", "{}"),)))
    rewind(log, 1)
    log.append(UserSaid((Text("two"),)))
    rewind(log, 2)
    log.append(UserSaid((Text("three"),)))
    rewind(log, 2)
    log.append(ToolReturned(ToolResult("c1", (Text("late"),))))
    one, called, two, given_up, three, late = lines_of(log)
    assert [line["parentUuid"] for line in (called, two, given_up, three, late)] == [
        one["uuid"],
        one["uuid"],
        called["uuid"],
        given_up["uuid"],
        called["uuid"],
    ]
    assert [line["message"]["content"][0]["content"] for line in (given_up, late)] == [
        "The call was interrupted; there is no result.",
        "late",
    ]


def test_a_call_that_a_fold_keeps_is_answered_behind_it() -> None:
    log = log_with(UserSaid((Text("one"),)), UserSaid((Text("two"),)), ModelReplied((ToolCall("c1", "bash", "{}"),)))
    log.append(ViewEdited((Fold("1.0", "1.0", (Put("summary", Text("short")),)),), by="tester"))
    log.append(ToolReturned(ToolResult("c1", (Text("late"),))))
    _, two, called, boundary, summary, late = lines = lines_of(log)
    assert late["message"]["content"] == [{"tool_use_id": "c1", "type": "tool_result", "content": "late"}]
    assert (late["parentUuid"], late["sourceToolAssistantUUID"]) == (summary["uuid"], called["uuid"])
    assert branch_to(lines) == [boundary, summary, two, called, late]


def test_a_session_that_went_back_goes_on_from_there() -> None:
    log = log_with(UserSaid((Text("one"),)), ModelReplied((Text("yes", "assistant"),)), UserSaid((Text("two"),)))
    rewind(log, 2)
    lines = lines_of(log)
    assert [line["type"] for line in lines] == ["user", "assistant", "user", "user"]
    assert (lines[3]["message"]["content"], lines[3]["isMeta"]) == ("The conversation goes on from here.", True)
    assert branch_to(lines) == [lines[0], lines[1], lines[3]]
    assert lines[3]["timestamp"] > lines[2]["timestamp"]
    log.append(UserSaid((Text("three"),)))
    assert [line.get("isMeta") for line in lines_of(log)] == [None] * 4


@settings(max_examples=60, deadline=None)
@given(steps)
def test_any_history_is_written_as_one_chain_in_which_results_answer_calls(told: list[tuple[int, int, int]]) -> None:
    log = tell(new_log(), told)
    lines = lines_of(log)
    assert chain_faults(lines) == []
    # Lines are told by branches too: only along one branch does a call have one answer.
    branch = branch_to(lines) if log.view.items else []
    assert paired(branch)
    assert ids(branch, "id") == ids(branch, "tool_use_id")
    assert len({line["uuid"] for line in lines if "uuid" in line}) == len([line for line in lines if "uuid" in line])
