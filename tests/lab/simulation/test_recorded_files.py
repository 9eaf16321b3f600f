import pytest

from pal.replay.recording import RecordedFiles
from palimpsest.core.items import Text, ToolCall, ToolResult

PATH = "/repo/src/merge.py"
WHOLE = "     1→def merge(one):\n     2→    return one\n     3→"
TEXT = "def merge(one):\n    return one\n"


def _after(*calls: tuple[str, str, str]) -> RecordedFiles:
    """The files after calls that succeeded: tool, arguments, result."""
    files = RecordedFiles("/repo")
    for number, (tool, args, output) in enumerate(calls):
        files.record_call(ToolCall(f"c{number}", tool, args))
        files.record_result(ToolResult(f"c{number}", (Text(output),)))
    return files


READ = ("Read", f'{{"file_path": "{PATH}"}}', f"{WHOLE}\n\n<system-reminder>a remark</system-reminder>")
EDIT = ("Edit", f'{{"file_path": "{PATH}", "old_string": "return one", "new_string": "return two"}}', "ok")


def test_a_whole_read_gives_the_lines_of_the_file_without_numbers_and_remarks() -> None:
    assert _after(READ).text(PATH) == TEXT


@pytest.mark.parametrize(
    "part",
    [
        ("Read", f'{{"file_path": "{PATH}", "offset": 2, "limit": 1}}', "     2→    return one"),
        ("Read", f'{{"file_path": "{PATH}", "limit": 1}}', "     1→def merge(one):"),
        ("view", f'{{"path": "{PATH}", "view_range": [2, 2]}}', "2\t    return one"),
        ("Bash", f'{{"command": "sed -n 2,2p {PATH}"}}', "    return one"),
        ("Bash", f'{{"command": "head -1 {PATH}"}}', "def merge(one):"),
        # Two thousand lines are what a program shows at most.
        ("Read", f'{{"file_path": "{PATH}"}}', "\n".join(f"{number}→x" for number in range(1, 2_001))),
    ],
)
def test_a_read_of_a_part_is_not_the_file(part: tuple[str, str, str]) -> None:
    assert _after(part).text(PATH) is None
    assert _after(READ, part).text(PATH) == TEXT


def test_an_edit_changes_the_text_that_a_file_has() -> None:
    assert _after(READ, EDIT).text(PATH) == "def merge(one):\n    return two\n"


def test_an_edit_that_failed_changes_nothing() -> None:
    files = _after(READ)
    files.record_call(ToolCall("e", EDIT[0], EDIT[1]))
    files.record_result(ToolResult("e", (Text("not found"),), error=True))

    assert files.text(PATH) == TEXT


def test_a_patch_edits_adds_and_deletes_files_below_the_folder() -> None:
    patch = (
        "*** Begin Patch\n*** Update File: src/merge.py\n@@\n def merge(one):\n-    return one\n+    return two\n"
        "*** Add File: src/new.py\n+first = 1\n*** Delete File: src/old.py\n*** End Patch\n"
    )
    old = ("Write", '{"file_path": "/repo/src/old.py", "content": "x = 1"}', "ok")
    files = _after(READ, old, ("apply_patch", patch, "ok"))

    assert [files.text(path) for path in (PATH, "src/new.py", "./src/old.py")] == ["def merge(one):\n    return two\n", "first = 1", None]


@pytest.mark.parametrize(
    "change",
    [
        ("Edit", f'{{"file_path": "{PATH}", "old_string": "return three", "new_string": "x"}}', "ok"),
        ("Bash", f'{{"command": "sed -i s/one/two/ {PATH}"}}', ""),
        ("Bash", f'{{"command": "rm {PATH}"}}', ""),
    ],
)
def test_a_change_that_no_call_shows_leaves_no_text(change: tuple[str, str, str]) -> None:
    assert _after(READ, change).text(PATH) is None


def test_a_write_is_the_text_of_the_file() -> None:
    assert _after(("Write", f'{{"file_path": "{PATH}", "content": "{"y" * 3}"}}', "ok"), EDIT).text(PATH) is None
    assert _after(("Write", f'{{"file_path": "{PATH}", "content": "return one"}}', "ok"), EDIT).text("src/merge.py") == "return two"
