"""Imports of instruction files: found by `@path`, bounded in depth, number and size, and only from allowed folders."""

import pytest
from worlds import MemoryWorld

from palimpsest.sources.instructions import InstructionFile, imported_paths, our_files, with_imports


def found(files: dict[str, str], links: dict[str, str] | None = None) -> list[str]:
    """The paths of all instruction files of `/repo`, whose own file is `AGENTS.md`."""
    world = MemoryWorld(files={"/repo/.git/HEAD": "", **files}, links=links or {})
    return [file.path for file in our_files()(world)]


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("see @docs/a.md and @./b.md.", ("docs/a.md", "./b.md")),
        ("@~/own.md", ("~/own.md",)),
        ("请看 @文档/规则.md，谢谢", ("文档/规则.md",)),
        ("mail me@example.org", ()),
        ("`@code.md` and\n```\n@fenced.md\n```\n@real.md", ("real.md",)),
        ("```\n@never/closed.md\n", ()),
        ("@a.md @a.md", ("a.md",)),
    ],
)
def test_a_path_after_an_at_sign_is_an_import_unless_it_is_code(text: str, paths: tuple[str, ...]) -> None:
    assert imported_paths(text) == paths


def test_imports_follow_the_file_that_names_them_and_circles_end() -> None:
    files = {
        "/repo/AGENTS.md": "@a.md @docs/b.md",
        "/repo/a.md": "@AGENTS.md @docs/b.md",
        "/repo/docs/b.md": "@../a.md @c.md",
        "/repo/docs/c.md": "x",
    }

    assert found(files) == ["/repo/AGENTS.md", "/repo/a.md", "/repo/docs/b.md", "/repo/docs/c.md"]


def test_imports_end_at_the_fifth_level() -> None:
    files = {f"/repo/{number}.md": f"@{number + 1}.md" for number in range(1, 9)}

    assert found({"/repo/AGENTS.md": "@1.md", **files}) == ["/repo/AGENTS.md", *(f"/repo/{number}.md" for number in range(1, 6))]


def test_imports_are_bounded_in_number_and_in_bytes() -> None:
    many = {f"/repo/{number}.md": "x" for number in range(60)}
    text = " ".join(f"@{number}.md" for number in range(60))
    big = {f"/repo/b{number}.md": "x" * 100_000 for number in range(9)}
    world = MemoryWorld(files=big)
    file = InstructionFile("/repo/AGENTS.md", " ".join(f"@b{number}.md" for number in range(9)))

    assert len(found({"/repo/AGENTS.md": text, **many})) == 41
    sizes = [len(each.text) for each in with_imports(world, (file,), ("/repo",), limit=80_000)[1:]]
    assert sizes == [32_768, 32_768, 80_000 - 65_536]


def test_nothing_outside_of_the_allowed_folders_is_imported_not_even_through_a_link() -> None:
    files = {
        "/repo/AGENTS.md": "@/etc/passwd @../other/x.md @~/.ssh/id @link.md @~/.config/palimpsest/own.md",
        "/etc/passwd": "root",
        "/other/x.md": "x",
        "/home/u/.ssh/id": "key",
        "/repo/link.md": "shadowed",
        "/home/u/.config/palimpsest/own.md": "mine",
    }

    assert found(files, {"/repo/link.md": "/home/u/.ssh/id"}) == ["/repo/AGENTS.md", "/home/u/.config/palimpsest/own.md"]


def test_each_folder_of_the_project_gives_one_file_by_the_order_of_names() -> None:
    files = {"/repo/CLAUDE.md": "1", "/repo/AGENTS.md": "2", "/repo/CONTEXT.md": "3", "/repo/a/CONTEXT.md": "4", "/repo/a/CLAUDE.md": "5"}
    world = MemoryWorld(files={"/repo/.git/HEAD": "", **files}).with_state(cwd="/repo/a")

    assert [file.text for file in our_files()(world)] == ["2", "5"]
