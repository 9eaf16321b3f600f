"""The user's permission rules of a project, in real files."""

import subprocess
import sys
from pathlib import Path

import pytest

from palimpsest.core.errors import BadInput
from palimpsest.stores.home import FolderHome, Home
from palimpsest.stores.trust import PermissionRules


def test_rules_are_kept_for_each_project_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    home, one, other = FolderHome(tmp_path / "home"), tmp_path / "one", tmp_path / "other"
    rules = PermissionRules(home, one)
    assert rules.load() == ()
    for text in ("bash(git status)", "deny bash(rm:*)", "bash(git status)"):
        rules.add(text)
    assert PermissionRules(home, one).load() == ("bash(git status)", "deny bash(rm:*)")
    assert PermissionRules(home, other).load() == ()
    (path,) = (home.folder / "permissions").glob("*.rules")
    assert (path.read_text(), path.stat().st_mode & 0o777) == (f"# {one}\nbash(git status)\ndeny bash(rm:*)\n", 0o600)
    assert (rules.remove("bash(git status)"), rules.remove("bash(git status)"), rules.load()) == (True, False, ("deny bash(rm:*)",))


def test_a_project_behind_a_link_is_the_same_project(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    PermissionRules(FolderHome(tmp_path / "home"), tmp_path / "link").add("edit")
    assert PermissionRules(FolderHome(tmp_path / "home"), tmp_path / "real").load() == ("edit",)


@pytest.mark.parametrize("rule", ["", "  ", "a\nb", "# a", "a\x1b[2K"])
def test_a_rule_is_one_line(tmp_path: Path, rule: str) -> None:
    for rules in (PermissionRules(FolderHome(tmp_path), tmp_path), PermissionRules(Home.in_memory(), tmp_path)):
        with pytest.raises(BadInput, match="a rule is one line of text"):
            rules.add(rule)
        assert rules.load() == ()


def test_rules_in_memory_behave_the_same(tmp_path: Path) -> None:
    rules = PermissionRules(Home.in_memory(), tmp_path)
    rules.add("a")
    rules.add("b")
    rules.add("b")
    assert (rules.load(), rules.remove("a"), rules.remove("a"), rules.load()) == (("a", "b"), True, False, ("b",))


def test_processes_that_add_at_once_lose_no_rule(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from palimpsest.stores.trust import PermissionRules\n"
        "from palimpsest.stores.home import Home\n"
        "rules = PermissionRules(Home.at(sys.argv[1]), Path(sys.argv[1]))\n"
        "[rules.add(f'bash({sys.argv[2]} {number})') for number in range(25)]\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", program, tmp_path, name]) for name in ("a", "b", "c")]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    expected = sorted(f"bash({name} {number})" for name in "abc" for number in range(25))
    assert sorted(PermissionRules(FolderHome(tmp_path), tmp_path).load()) == expected
