from recorded import ended, recorded, said, used

from pal.replay.recording import RecordingIndex
from palimpsest.core.items import Text, ToolCall, ToolResult

EDIT = ToolCall("c2", "Edit", '{"file_path": "/repo/src/orders/merge_window.py", "old_string": "lift_ledger", "new_string": "drop_basket"}')


def test_names_and_numbers_of_a_content_are_looked_for_once() -> None:
    index = RecordingIndex(recorded(*said(1, "Rename it."), *used(2, "c2", "Edit", EDIT.args, "ok"), *ended(20)).steps)
    result = ToolResult("c1", (Text("lift_ledger has 417 rows"),))

    assert index.used_in(EDIT) == ("/repo/src/orders/merge_window.py", "lift_ledger", "drop_basket")
    assert index.shown(result, None) == ("lift_ledger",)
    assert index.numbers(result) == {"417"}
    assert index.used_in(EDIT) is index.used_in(EDIT)
    assert index.shown(result, None) is index.shown(result, None)
    assert index.numbers(result) is index.numbers(result)
