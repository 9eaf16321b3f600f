import pytest
from every_case import every_case

from palimpsest.audit.tool_calls import TextChange, changes_of, with_change
from palimpsest.core.items import ToolCall

PATCH = """*** Begin Patch
*** Update File: src/a.py
@@ class A
 def one():
-    return 1
+    return 2
@@
-last = 1
*** Add File: src/b.py
+first = 1
+second = 2
*** Delete File: src/c.py
*** End Patch
"""
PATCHED = (
    TextChange("src/a.py", "def one():\n    return 1", "def one():\n    return 2"),
    TextChange("src/a.py", "last = 1", ""),
    TextChange("src/b.py", "", "first = 1\nsecond = 2"),
)


@every_case(
    ("tool", "args", "changes"),
    [
        ("Edit", '{"file_path": "a.py", "old_string": "one", "new_string": "two"}', (TextChange("a.py", "one", "two"),)),
        (
            "Edit",
            '{"file_path": "a.py", "old_string": "one", "new_string": "two", "replace_all": true}',
            (TextChange("a.py", "one", "two", everywhere=True),),
        ),
        (
            "MultiEdit",
            '{"file_path": "a.py", "edits": [{"old_string": "one", "new_string": "two"}, {"old_string": "three", "new_string": ""}]}',
            (TextChange("a.py", "one", "two"), TextChange("a.py", "three", "")),
        ),
        (
            "str_replace_editor",
            '{"command": "str_replace", "path": "a.py", "old_str": "one", "new_str": "two"}',
            (TextChange("a.py", "one", "two"),),
        ),
        ("Write", '{"file_path": "a.py", "content": "one\\n"}', (TextChange("a.py", "", "one\n"),)),
        ("apply_patch", PATCH, PATCHED),
        ("Read", '{"file_path": "a.py"}', ()),
        ("Bash", '{"command": "sed -i s/one/two/ a.py"}', ()),
        ("Edit", '{"file_path": "a.py"}', ()),
    ],
)
def test_a_call_says_which_texts_it_replaces(tool: str, args: str, changes: tuple[TextChange, ...]) -> None:
    assert changes_of(ToolCall("c", tool, args)) == changes


@pytest.mark.parametrize(
    ("change", "after"),
    [
        (TextChange("a", "one", "1"), "1 two one"),
        (TextChange("a", "one", "1", everywhere=True), "1 two 1"),
        (TextChange("a", "three", "3"), None),
        (TextChange("a", "", "new"), "new"),
    ],
)
def test_a_change_gives_the_text_after_it_or_none_if_it_does_not_fit(change: TextChange, after: str | None) -> None:
    assert with_change("one two one", change) == after
