"""The commands that a project's files want to start."""

from pathlib import Path

import pytest

from palimpsest.stores.config import HookConfig
from palimpsest.stores.config_files import resolve
from palimpsest.stores.home import FolderHome
from palimpsest.stores.project import ProjectHook, project_commands, project_hooks, trust_of
from palimpsest.stores.trust import ProjectCommand

TOML = '[[hooks]]\nmoment = "turn_end"\ncommand = "make test"\n'
DEFINITION = b'{"moment":"turn_end","command":"make test","tool":"*","seconds":60.0,"name":""}'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / ".palimpsest").mkdir()
    (folder / ".palimpsest" / "config.toml").write_text(TOML)
    (folder / "src").mkdir()
    return folder


def test_a_hook_is_defined_by_all_its_fields_also_those_at_their_default(project: Path) -> None:
    command = ProjectCommand("hook", "make", DEFINITION)
    assert project_hooks(project / "src") == (ProjectHook(HookConfig(moment="turn_end", command="make test"), command),)
    assert project_commands(project / "src") == (command,)


def test_the_file_of_the_user_is_none_of_a_project(project: Path) -> None:
    assert project_commands(project, project / ".palimpsest" / "config.toml") == ()


@pytest.mark.parametrize("text", ["", "hooks = 5\n", "[[hooks]]\n", "not toml", '[[hooks]]\nmoment = "turn_end"\ncommand = ""\n'])
def test_a_file_that_is_wrong_starts_nothing(project: Path, text: str) -> None:
    (project / ".palimpsest" / "config.toml").write_text(text)
    assert project_commands(project) == ()


def test_hooks_of_a_project_never_become_settings(project: Path) -> None:
    settings = resolve(None, project, {})
    assert (settings.config.hooks, settings.problems, settings.refused) == ((), (), ())


def test_trust_holds_for_all_folders_of_a_repository(project: Path, tmp_path: Path) -> None:
    [command] = project_commands(project)
    trust_of(FolderHome(tmp_path / "home"), project / "src").add(command)
    assert trust_of(FolderHome(tmp_path / "home"), project).trusts(command)
    assert not trust_of(FolderHome(tmp_path / "home"), tmp_path).trusts(command)
