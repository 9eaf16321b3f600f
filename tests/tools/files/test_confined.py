"""File access while links take the place of folders between the check and the use."""

import os
from pathlib import Path

import pytest
from tool_runs import run_tool as run

from palimpsest.agent.confined_files import confined_writer, entries_of, make_folders, read_file, remove_file
from palimpsest.agent.tool import ToolError, ToolOutput
from palimpsest.agent.workspace import OutsideWorkspace, Workspace
from palimpsest.coding.tools.change import edit_tool, patch_tool, write_tool
from palimpsest.coding.tools.read import read_tool
from palimpsest.core.errors import BadInput


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A project with a folder, beside a folder that is not to be touched."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "f").write_text("outside\n")
    (tmp_path / "project" / "d").mkdir(parents=True)
    (tmp_path / "project" / "d" / "f").write_text("inside\n")
    return Workspace(tmp_path / "project", write=confined_writer(tmp_path / "project"))


def outside(workspace: Workspace) -> dict[str, str]:
    return {path.name: path.read_text() for path in (workspace.root.parent / "outside").iterdir()}


def swap(workspace: Workspace) -> None:
    """Put a link to the outside in the place of the folder."""
    (workspace.root / "d").rename(workspace.root / "old")
    (workspace.root / "d").symlink_to(workspace.root.parent / "outside")


def test_a_folder_that_became_a_link_after_the_check_is_not_entered(workspace: Workspace) -> None:
    path = workspace.resolve("d/f")
    new = workspace.resolve("d/new/g")
    swap(workspace)
    with pytest.raises(ToolError, match="d/f cannot be read"):
        read_file(workspace, path, 100)
    with pytest.raises(OSError, match="Not a directory"):
        workspace.write(path, b"changed")
    with pytest.raises(OSError, match="Not a directory"):
        make_folders(workspace, new.parent)
    with pytest.raises(OSError, match="Not a directory"):
        remove_file(workspace, path)
    with pytest.raises(OSError, match="Not a directory"):
        entries_of(workspace, path.parent)
    assert outside(workspace) == {"f": "outside\n"}


def test_a_file_that_became_a_link_after_the_check_is_neither_read_nor_written_through(workspace: Workspace) -> None:
    path = workspace.resolve("d/f")
    path.unlink()
    path.symlink_to(workspace.root.parent / "outside" / "f")
    with pytest.raises(ToolError, match="d/f cannot be read"):
        read_file(workspace, path, 100)
    with pytest.raises(OSError, match="no regular file"):
        workspace.write(path, b"changed")
    assert outside(workspace) == {"f": "outside\n"}


def test_a_tool_whose_folder_is_swapped_while_it_runs_reports_it_and_changes_nothing_outside(workspace: Workspace) -> None:
    writer = workspace.write

    def swapping(path: Path, data: bytes) -> None:
        swap(workspace)
        writer(path, data)

    assert not run(read_tool(), workspace, path="d/f").error
    workspace.write = swapping
    output = run(edit_tool(), workspace, path="d/f", old="inside", new="changed")
    assert output == ToolOutput("d/f cannot be written: Not a directory", error=True)
    assert outside(workspace) == {"f": "outside\n"}


def test_writing_a_file_with_a_hard_link_outside_leaves_the_other_one_as_it_is(workspace: Workspace) -> None:
    os.link(workspace.root.parent / "outside" / "f", workspace.root / "hard")
    run(read_tool(), workspace, path="hard")
    assert run(edit_tool(), workspace, path="hard", old="outside", new="changed") == ToolOutput(
        "Edited hard: 1 replacement", paths=("hard",)
    )
    assert ((workspace.root / "hard").read_text(), outside(workspace)) == ("changed\n", {"f": "outside\n"})


def test_a_written_file_keeps_its_mode_without_the_bits_that_change_the_user(workspace: Workspace) -> None:
    path = workspace.root / "d" / "f"
    path.chmod(0o4755)
    workspace.write(path, b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o7777) == (b"new", 0o755)
    assert [each.name for each in path.parent.iterdir()] == ["f"]


def test_a_pipe_is_no_file_and_does_not_hold_the_tool_up(workspace: Workspace) -> None:
    os.mkfifo(workspace.root / "pipe")
    assert run(read_tool(), workspace, path="pipe") == ToolOutput("pipe is no regular file", error=True)
    assert run(write_tool(), workspace, path="pipe", content="x") == ToolOutput("pipe is no regular file", error=True)


def test_a_folder_is_no_file(workspace: Workspace) -> None:
    patch = "*** Begin Patch\n*** Delete File: d\n*** End Patch"
    assert run(edit_tool(), workspace, path="d", old="a", new="b") == ToolOutput("d is no regular file", error=True)
    assert run(write_tool(), workspace, path="d", content="x") == ToolOutput("d is a folder", error=True)
    assert run(patch_tool(), workspace, patch=patch) == ToolOutput("d is no regular file", error=True)
    assert [run(edit_tool(), workspace, path=".", old="a", new="b").error, run(read_tool(), workspace, path="d").text] == [True, "f"]


ESCAPES = (
    "../outside/f",
    "d/../../outside/f",
    "/etc/passwd",
    "~",
    "~/f",
    "~root/f",
    "link/f",
    "linkfile",
    "dangling",
    "/proc/self/root",
    "/proc/self/cwd/../outside/f",
    "/dev/fd/0",
    "/dev/stdin",
    "d/f\n/../../../outside/f",
    "D/../../outside/f",
    "",
    "a\0b",
)


@pytest.mark.parametrize("path", ESCAPES)
def test_no_path_leads_a_file_tool_out_of_the_project(workspace: Workspace, path: str) -> None:
    (workspace.root / "link").symlink_to(workspace.root.parent / "outside")
    (workspace.root / "linkfile").symlink_to(workspace.root.parent / "outside" / "f")
    (workspace.root / "dangling").symlink_to(workspace.root.parent / "outside" / "new")
    with pytest.raises((OutsideWorkspace, BadInput)):
        workspace.resolve(path)
    patch = f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch"
    outputs = [
        run(read_tool(), workspace, path=path),
        run(write_tool(), workspace, path=path, content="x"),
        run(edit_tool(), workspace, path=path, old="outside", new="x"),
        run(patch_tool(), workspace, patch=patch),
    ]
    assert [output.error for output in outputs] == [True, True, True, True]
    assert outside(workspace) == {"f": "outside\n"}
