"""When a git command that only reads may run by itself: nothing that the repository brings along may start a program."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from palimpsest.coding.read_only import follows_no_link, git_only_reads, gitlinks

pytestmark = pytest.mark.machine


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgSign=false", "-c", "protocol.file.allow=always")
    subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True)


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "a").write_text("1")
    git(folder, "add", "a")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def test_a_plain_repository_starts_nothing(tmp_path: Path) -> None:
    place = repository(tmp_path / "repo")
    (place / "src").mkdir()
    assert git_only_reads(place)
    assert git_only_reads(place / "src")


def test_a_git_folder_that_points_to_another_configuration_is_not_trusted(tmp_path: Path) -> None:
    place = repository(tmp_path / "repo")
    shutil.copytree(place / ".git", place / "other")
    (place / ".git/commondir").write_text("../other\n")
    assert not git_only_reads(place)


@pytest.mark.parametrize("setting", ["filter.x.clean", "core.fsmonitor", "core.worktree"])
def test_a_nested_repository_is_judged_by_its_own_settings(tmp_path: Path, setting: str) -> None:
    place = repository(tmp_path / "repo")
    inner = repository(place / "vendor" / "inner")
    git(place, "add", "vendor/inner")
    assert gitlinks(place / ".git/index") == ("vendor/inner",)
    assert git_only_reads(place)
    subprocess.run(["git", "config", "-f", inner / ".git/config", setting, "touch ran"], check=True)
    assert not git_only_reads(place)


def test_a_submodule_is_judged_by_its_own_settings_at_any_depth(tmp_path: Path) -> None:
    deep, middle, place = (repository(tmp_path / name) for name in ("deep", "middle", "repo"))
    git(middle, "submodule", "add", "-q", str(deep), "deep")
    git(middle, "commit", "-q", "-m", "deep")
    git(place, "submodule", "add", "-q", str(middle), "middle")
    git(place, "submodule", "update", "-q", "--init", "--recursive")
    assert git_only_reads(place)
    git(place / "middle/deep", "config", "filter.x.clean", "touch ran; cat")
    assert not git_only_reads(place)


def test_an_index_that_is_split_or_damaged_is_not_trusted(tmp_path: Path) -> None:
    place = repository(tmp_path / "repo")
    repository(place / "inner")
    git(place, "add", "inner")
    index = place / ".git/index"
    whole = index.read_bytes()
    index.write_bytes(whole[:4] + b"\0\0\0\x04" + whole[8:])
    assert not git_only_reads(place)
    index.write_bytes(whole[:8] + b"\0\0\xff\xff" + whole[12:])
    assert not git_only_reads(place)
    index.write_bytes(whole)
    assert git_only_reads(place)
    git(place, "update-index", "--split-index")
    assert not git_only_reads(place)


def test_the_index_of_many_files_with_long_names_is_read_whole(tmp_path: Path) -> None:
    place = repository(tmp_path / "repo")
    for number in range(40):
        (place / ("n" * number + "x")).touch()
    (place / "intended").touch()
    repository(place / "zz")
    git(place, "add", ".")
    git(place, "rm", "-q", "--cached", "intended")
    git(place, "add", "-N", "intended")
    assert gitlinks(place / ".git/index") == ("zz",)


def folder_that_ends_with_a_space(place: Path, *, good: str = "store") -> Path:
    """A git folder beside one of nearly the same name, which the file `.git` does not mean."""
    shutil.copytree(place / ".git", place / good)
    shutil.move(place / ".git", place / f"{good} ")
    (place / ".git").write_text(f"gitdir: {good} \n")
    return place / f"{good} " / "config"


def nested_folder_that_ends_with_a_space(place: Path) -> Path:
    repository(place / "inner")
    git(place, "add", "inner")
    return folder_that_ends_with_a_space(place / "inner")


def bare_folder_with_a_shared_one(place: Path) -> Path:
    shutil.move(place / ".git", place / "store")
    shutil.copy(place / "store" / "HEAD", place / "HEAD")
    (place / "commondir").write_text("store\n")
    return place / "store" / "config"


def bare_folder_whose_head_is_a_link_to_nothing(place: Path) -> Path:
    for entry in (place / ".git").iterdir():
        shutil.move(entry, place / entry.name)
    (place / ".git").rmdir()
    (place / "HEAD").unlink()
    (place / "HEAD").symlink_to("refs/heads/gone")
    config = (place / "config").read_text().replace("bare = true", "").replace("bare = false", "")
    (place / "config").write_text(config + "[core]\n\tworktree = .\n")
    return place / "config"


def nested_below_a_head_that_is_a_link_to_nothing(place: Path) -> Path:
    inner = repository(place / "inner")
    git(place, "add", "inner")
    (place / ".git" / "HEAD").unlink()
    (place / ".git" / "HEAD").symlink_to("refs/heads/gone")
    return inner / ".git" / "config"


@pytest.mark.parametrize(
    "made",
    [
        folder_that_ends_with_a_space,
        nested_folder_that_ends_with_a_space,
        bare_folder_with_a_shared_one,
        bare_folder_whose_head_is_a_link_to_nothing,
        nested_below_a_head_that_is_a_link_to_nothing,
    ],
)
def test_the_settings_that_git_obeys_are_those_that_are_judged(tmp_path: Path, made: Callable[[Path], Path]) -> None:
    place = repository(tmp_path / "repo")
    (place / "a").write_text("2")
    git(place, "commit", "-qam", "second")
    config = made(place)
    config.write_text(config.read_text() + f"\tfsmonitor = touch {tmp_path}/ran; false\n[diff]\n\texternal = touch {tmp_path}/ran; true\n")
    for words in (("status",), ("diff", "HEAD~1", "HEAD")):
        subprocess.run(["git", "-C", place, *words], check=False, capture_output=True)
    assert ((tmp_path / "ran").exists(), git_only_reads(place)) == (True, False)


def test_a_link_in_the_place_of_a_tracked_folder_is_noticed_because_git_searches_what_it_leads_to(tmp_path: Path) -> None:
    place = repository(tmp_path / "repo")
    (place / "src").mkdir()
    (place / "src" / "b").write_text("2")
    git(place, "add", "src")
    git(place, "worktree", "add", "-q", "-f", str(tmp_path / "tree"), "HEAD")
    assert [follows_no_link(each) for each in (place, place / "src", tmp_path / "tree", tmp_path)] == [True] * 4
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "b").write_text("a key")
    shutil.rmtree(place / "src")
    (place / "src").symlink_to(tmp_path / "outside")
    found = subprocess.run(["git", "-C", place, "grep", "--no-color", "key"], check=False, capture_output=True, text=True)
    assert (found.stdout, follows_no_link(place)) == ("src/b:a key\n", False)
