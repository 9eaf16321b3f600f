import os
import sys
from pathlib import Path

import pytest
from tiny_format import Tiny, user, written

from palimpsest.exchange.files import PSEUDO, FolderWalk, WalkLimits
from palimpsest.exchange.finding import find_sources
from palimpsest.exchange.transcript import ReadProblem


def walked(walk: FolderWalk, root: Path) -> list[str]:
    return [each.why if isinstance(each, ReadProblem) else os.path.relpath(each[0], root) for each in walk.folders(str(root))]


def test_folders_come_parents_first_in_order_and_those_that_a_caller_removes_are_left_out(tmp_path: Path) -> None:
    for name in ("b/two", "a/one", "c"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to("a")

    assert walked(FolderWalk(), tmp_path) == [".", "a", "a/one", "b", "b/two", "c"]

    kept = []
    for found in FolderWalk().folders(str(tmp_path)):
        assert not isinstance(found, ReadProblem)
        folder, folders, listing = found
        kept.append(os.path.relpath(folder, tmp_path))
        folders[:] = [name for name in folders if name != "a"]
        assert listing.links == (("link",) if folder == str(tmp_path) else ())
    assert kept == [".", "b", "b/two", "c"]


def test_a_second_walk_of_the_same_folders_reads_none_of_them_again(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    read: list[int] = []
    walk = FolderWalk(on_entries=read.append)

    assert walked(walk, tmp_path) == walked(walk, tmp_path) == [".", "a"]
    assert read == [1, 1]


@pytest.mark.parametrize(
    ("limits", "folders", "problem"),
    [
        (WalkLimits(entries=2), ["."], "the search ended at {root}/a, after 2 files and folders; name a folder further down"),
        (WalkLimits(seconds=0), ["."], "the search ended at {root}/a, after 0 seconds; name a folder further down"),
        (WalkLimits(levels=1), [".", "a", "b"], "not searched: it is deeper than 1 folder; name it to search it"),
    ],
    ids=["entries", "seconds", "levels"],
)
def test_a_search_ends_at_each_of_its_limits_with_one_line(tmp_path: Path, limits: WalkLimits, folders: list[str], problem: str) -> None:
    for name in ("a/deep", "b"):
        (tmp_path / name).mkdir(parents=True)
    written(tmp_path / "first.tiny", user("u", "hello"))
    why = problem.format(root=tmp_path)

    found = find_sources((Tiny(), Tiny()), [tmp_path], walk=FolderWalk(limits))

    assert [source.session for source in found.sources] == ["first"]
    assert [bad.why for bad in found.skipped] == [why]
    assert sorted(walked(FolderWalk(limits), tmp_path)) == sorted([*folders, why])


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no /proc")
def test_a_pseudo_file_system_is_never_searched_whether_it_is_named_or_a_link_leads_to_it(tmp_path: Path) -> None:
    (tmp_path / "kernel").symlink_to("/proc/self")
    written(tmp_path / "one.tiny", user("u", "hello"))

    found = find_sources((Tiny(),), [Path("/proc/self"), tmp_path])

    assert [source.session for source in found.sources] == ["one"]
    assert found.skipped == (ReadProblem("/proc/self", PSEUDO), ReadProblem(str(tmp_path / "kernel"), PSEUDO))
