"""The tools that read and change files, against real ones."""

import asyncio
from pathlib import Path

import pytest
from tool_runs import run_tool as run

from palimpsest.agent.tool import ToolOutput
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.tools.change import edit_tool, patch_tool, write_tool
from palimpsest.coding.tools.read import read_tool
from palimpsest.stores.files import write_atomically


def replace_file(path: Path, data: bytes) -> None:
    write_atomically(path, (data,), replace=True)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A project with one file."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.py").write_text("one = 1\ntwo = 2\nthree = 3\n")
    return Workspace(project, keep=lambda data: f"blob-{len(data)}", write=replace_file)


def test_a_file_is_read_by_numbered_lines(workspace: Workspace) -> None:
    assert run(read_tool(), workspace, path="a.py") == ToolOutput("     1\tone = 1\n     2\ttwo = 2\n     3\tthree = 3", paths=("a.py",))
    assert run(read_tool(), workspace, path="a.py", offset=2, limit=1).text == "     2\ttwo = 2\n[lines 2 to 2 of 3; go on with offset 3]"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("b.py", "there is no file b.py"),
        ("../outside.txt", "the path leads out of the project folder"),
        ("/etc/passwd", "the path leads out of the project folder"),
        ("link/passwd", "the path leads out of the project folder"),
        ("", "an empty path names no file"),
        ("a\0b", "an empty path names no file"),
        ("binary", "binary is a binary file of 4 bytes"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_says_why(workspace: Workspace, path: str, said: str) -> None:
    (workspace.root.parent / "outside.txt").write_text("secret")
    (workspace.root / "link").symlink_to("/etc")
    (workspace.root / "binary").write_bytes(b"\0\1\2\3")
    output = run(read_tool(), workspace, path=path)
    assert output.error
    assert said in output.text


def test_a_line_beyond_the_end_an_empty_file_and_a_folder(workspace: Workspace) -> None:
    (workspace.root / "empty").write_text("")
    assert run(read_tool(), workspace, path="a.py", offset=9) == ToolOutput("a.py has 3 lines; line 9 does not exist", error=True)
    assert run(read_tool(), workspace, path="empty").text == "empty is empty"
    assert run(read_tool(), workspace, path=".").text == "a.py\nempty"


def test_an_edit_needs_a_file_that_was_read_and_has_not_changed_since(workspace: Workspace) -> None:
    path = workspace.root / "a.py"
    assert run(edit_tool(), workspace, path="a.py", old="two = 2", new="two = 22") == ToolOutput(
        "a.py has not been read in this session; read it before changing it", error=True
    )
    run(read_tool(), workspace, path="a.py")
    assert run(edit_tool(), workspace, path="a.py", old="two = 2", new="two = 22") == ToolOutput(
        "Edited a.py: 1 replacement", paths=("a.py",)
    )
    assert path.read_text() == "one = 1\ntwo = 22\nthree = 3\n"
    path.write_text("changed by the user\n")
    assert run(edit_tool(), workspace, path="a.py", old="changed", new="x").text.startswith("a.py has changed since it was read")
    assert path.read_text() == "changed by the user\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"old": "four", "new": "x"}, "`old` does not occur in a.py"),
        ({"old": " = ", "new": "="}, "`old` occurs 3 times in a.py"),
        ({"old": "", "new": "x"}, "`old` is empty"),
        ({"old": "one", "new": "one"}, "nothing would change"),
    ],
)
def test_an_edit_that_is_not_exact_or_not_unique_changes_nothing(workspace: Workspace, arguments: dict[str, str], said: str) -> None:
    run(read_tool(), workspace, path="a.py")
    output = run(edit_tool(), workspace, path="a.py", **arguments)
    assert (output.error, said in output.text) == (True, True)
    assert (workspace.root / "a.py").read_text() == "one = 1\ntwo = 2\nthree = 3\n"


def test_an_edit_keeps_carriage_returns_bytes_and_the_mode_of_the_file(workspace: Workspace) -> None:
    path = workspace.root / "w.txt"
    path.write_bytes(b"a\r\nb\r\n\xff\r\n")
    path.chmod(0o755)
    run(read_tool(), workspace, path="w.txt")
    assert not run(edit_tool(), workspace, path="w.txt", old="a\nb", new="c\nd").error
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"c\r\nd\r\n\xff\r\n", 0o755)


def test_a_file_is_written_and_an_existing_one_only_if_it_was_read(workspace: Workspace) -> None:
    assert run(write_tool(), workspace, path="new/b.py", content="x\ny") == ToolOutput("Created new/b.py (2 lines)", paths=("new/b.py",))
    assert run(write_tool(), workspace, path="new/b.py", content="z\n").text == "Replaced new/b.py (1 lines)"
    assert run(write_tool(), workspace, path="a.py", content="").error
    assert [path.name for path in (workspace.root / "new").iterdir()] == ["b.py"]


PATCH = """*** Begin Patch
*** Update File: a.py
@@
 one = 1
-two = 2
+two = 22
*** Add File: docs/new.md
+# New
*** Delete File: old.py
*** End Patch"""


def test_a_patch_changes_all_of_its_files(workspace: Workspace) -> None:
    (workspace.root / "old.py").write_text("x")
    run(read_tool(), workspace, path="a.py")
    run(read_tool(), workspace, path="old.py")
    assert run(patch_tool(), workspace, patch=PATCH).text == "Patched:\nU a.py\nA docs/new.md\nD old.py"
    files = {str(path.relative_to(workspace.root)): path.read_text() for path in workspace.root.rglob("*") if path.is_file()}
    assert files == {"a.py": "one = 1\ntwo = 22\nthree = 3\n", "docs/new.md": "# New\n"}


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ("*** Update File: a.py", "a patch begins with"),
        (PATCH.replace("-two = 2", "-two = 3"), "a hunk does not fit a.py"),
        (PATCH.replace("docs/new.md", "../new.md"), "leads out of the project folder"),
        (PATCH, "there is no file old.py"),
        (PATCH.replace("+# New", "# New"), "every line of an added file begins with"),
    ],
)
def test_a_patch_that_does_not_fit_changes_no_file(workspace: Workspace, patch: str, said: str) -> None:
    run(read_tool(), workspace, path="a.py")
    output = run(patch_tool(), workspace, patch=patch)
    assert (output.error, said in output.text) == (True, True)
    assert [path.name for path in workspace.root.rglob("*")] == ["a.py"]
    assert (workspace.root / "a.py").read_text() == "one = 1\ntwo = 2\nthree = 3\n"


def test_a_patch_moves_a_file(workspace: Workspace) -> None:
    run(read_tool(), workspace, path="a.py")
    patch = "*** Begin Patch\n*** Update File: a.py\n*** Move to: lib/b.py\n@@ two = 2\n-three = 3\n+four = 4\n*** End Patch"
    assert not run(patch_tool(), workspace, patch=patch).error
    assert (workspace.root / "lib" / "b.py").read_text() == "one = 1\ntwo = 2\nfour = 4\n"
    assert not (workspace.root / "a.py").exists()


def test_a_patch_keeps_carriage_returns(workspace: Workspace) -> None:
    path = workspace.root / "a.py"
    path.write_bytes(b"one\r\ntwo\r\nthree\r\n")
    run(read_tool(), workspace, path="a.py")
    patch = "*** Begin Patch\n*** Update File: a.py\n@@\n one\n-two\n+2\n+2.5\n*** End Patch"
    assert not run(patch_tool(), workspace, patch=patch).error
    assert path.read_bytes() == b"one\r\n2\r\n2.5\r\nthree\r\n"


def test_an_error_of_the_system_is_an_error_result(workspace: Workspace) -> None:
    def full(path: Path, _: bytes) -> None:
        raise OSError(28, "No space left on device", str(path))

    workspace.write = full
    assert run(write_tool(), workspace, path="b.py", content="x") == ToolOutput(
        "b.py cannot be written: No space left on device", error=True
    )


def test_arguments_that_do_not_match_the_schema_are_an_error_result(workspace: Workspace) -> None:
    for text in ("{", '{"path": 1}', '{"file": "a.py"}', "[]"):
        output = asyncio.run(read_tool().run(text, workspace))
        assert output.error
        assert output.text.startswith("The arguments of read are not valid: ")


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\n", "a\nb", "a\r\nx\nb", b"a\r\nx\r\nb\r\n"),
        (b"a\r\nb\r\n", "a\r\nb", "c\nd", b"c\r\nd\r\n"),
        (b"a\r\nb\nc\n", "b\nc", "x\ny", b"a\r\nx\ny\n"),
        (b"a\r\nb\r\nc\n", "a\nb", "x\ny", b"x\r\ny\r\nc\n"),
    ],
)
def test_an_edit_keeps_the_line_ends_of_the_place_that_it_changes(
    workspace: Workspace, before: bytes, old: str, new: str, after: bytes
) -> None:
    path = workspace.root / "mixed.txt"
    path.write_bytes(before)
    run(read_tool(), workspace, path="mixed.txt")
    assert run(edit_tool(), workspace, path="mixed.txt", old=old, new=new).text == "Edited mixed.txt: 1 replacement"
    assert path.read_bytes() == after


def test_a_patch_deletes_and_moves_no_link_and_not_the_file_behind_it(workspace: Workspace) -> None:
    (workspace.root / "link.py").symlink_to("a.py")
    run(read_tool(), workspace, path="link.py")
    for section in ("*** Delete File: link.py", "*** Update File: link.py\n*** Move to: c.py"):
        assert run(patch_tool(), workspace, patch=f"*** Begin Patch\n{section}\n*** End Patch") == ToolOutput(
            "link.py is a link to a.py; name that file, or use `rm` or `mv` for the link", error=True
        )
    assert (workspace.root / "link.py").read_text() == "one = 1\ntwo = 2\nthree = 3\n"
