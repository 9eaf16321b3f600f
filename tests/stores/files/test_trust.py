"""Trust of commands that come with a project."""

from pathlib import Path

from palimpsest.stores.home import FolderHome, Home
from palimpsest.stores.trust import ProjectCommand, ProjectTrust

LINT = ProjectCommand("hook", "lint", b'{"command":"make lint"}')


def test_a_command_is_trusted_after_the_user_trusts_it_and_in_later_processes(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"

    before = ProjectTrust(FolderHome(home), project).trusts(LINT)
    ProjectTrust(FolderHome(home), project).add(LINT)

    assert (before, ProjectTrust(FolderHome(home), project).trusts(LINT)) == (False, True)


def test_a_changed_definition_another_kind_or_name_is_not_trusted(tmp_path: Path) -> None:
    trust = ProjectTrust(FolderHome(tmp_path), tmp_path / "project")
    trust.add(LINT)

    assert not trust.trusts(ProjectCommand("hook", "lint", b'{"command":"make lint "}'))
    assert not trust.trusts(ProjectCommand("mcp", "lint", LINT.definition))
    assert not trust.trusts(ProjectCommand("hook", "lint2", LINT.definition))


def test_another_project_with_the_same_command_is_not_trusted(tmp_path: Path) -> None:
    ProjectTrust(FolderHome(tmp_path), tmp_path / "one").add(LINT)

    assert not ProjectTrust(FolderHome(tmp_path), tmp_path / "two").trusts(LINT)


def test_trust_that_was_removed_is_gone(tmp_path: Path) -> None:
    trust = ProjectTrust(FolderHome(tmp_path), tmp_path / "project")
    trust.add(LINT)

    assert (trust.remove(LINT), trust.trusts(LINT), ProjectTrust(FolderHome(tmp_path), tmp_path / "project").trusts(LINT)) == (
        True,
        False,
        False,
    )


def test_a_home_in_memory_trusts_for_its_own_lifetime(tmp_path: Path) -> None:
    trust = ProjectTrust(Home.in_memory(), tmp_path)
    trust.add(LINT)

    assert trust.trusts(LINT)
    assert not ProjectTrust(Home.in_memory(), tmp_path).trusts(LINT)
