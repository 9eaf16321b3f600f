"""Paths of the memory tool: everything that could lead out of the tree is refused."""

import pytest
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.agent.tool import ToolError
from palimpsest.memory.tree import ROOT, checked_path, is_below

ESCAPES = [
    "/memories/../etc/passwd",
    "/memories/user/../../secret",
    "/memories/..",
    "/memories/.",
    "/memories/./user",
    "/memories//etc",
    "/memories/%2e%2e/etc",
    "/memories/%2E%2E%2Fetc",
    "/memories/%252e%252e/etc",
    "/memories/user%00.md",
    "/memories/user\x00.md",
    "/memories/a\nb.md",
    "/memories/..\\windows",
    "/memories\\user",
    "\\memories\\user",
    "C:\\memories\\user",
    "/etc/passwd",
    "/memoriesx/user",
    "memories/user",
    "../memories/user",
    "/Memories/user",
    "~/memories",
    "/memories/~root/x",
    "/memories/.git/config",
    "/memories/ /x",
    "/memories/user /x",
    "/memories/\u202e/x",
    "/memories/...",
    "/memories/" + "a/" * 9 + "b",
    "/memories/" + "a" * 300,
    "",
]


@every_case("path", ESCAPES)
@pytest.mark.states("ME-49")
def test_a_path_that_could_lead_out_of_the_tree_is_refused(path: str) -> None:
    with pytest.raises(ToolError):
        checked_path(path)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/memories", "/memories"),
        ("/memories/", "/memories"),
        ("/memories/user/prefs.md", "/memories/user/prefs.md"),
        ("/memories/project/", "/memories/project"),
        ("/memories/笔记/设置.md", "/memories/笔记/设置.md"),
        ("/memories/a b/100% sure.txt", "/memories/a b/100% sure.txt"),
    ],
)
def test_plain_paths_are_accepted(path: str, expected: str) -> None:
    assert checked_path(path) == expected


@given(st.text(max_size=60).map(lambda text: f"{ROOT}/{text}") | st.text(max_size=60))
@pytest.mark.states("ME-49")
def test_an_accepted_path_lies_below_the_root_and_has_only_plain_parts(path: str) -> None:
    try:
        found = checked_path(path)
    except ToolError:
        return
    assert found == ROOT or is_below(found, ROOT)
    assert not {"", ".", ".."} & set(found.split("/")[1:])
    assert checked_path(found) == found
