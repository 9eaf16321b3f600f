"""Profiles of other authors: by entry point, and by `module:function` where the user names it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from palimpsest.core.errors import BadInput
from palimpsest.engine.named_profiles import is_profile_name, profile, profile_names
from palimpsest.profiles.named import PROFILES
from palimpsest.stores.config.settings import resolve

MODULE = """
from palimpsest import Profile
from palimpsest.policies.budgets import palimpsest_budget

def careful(settings):
    return Profile("careful", (), lambda card: palimpsest_budget(card.window, card.reply))

def broken(settings):
    raise ValueError("no such\\nthing")

def number(settings):
    return 7
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "house_profiles.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "house_profiles", raising=False)
    return tmp_path


def install(folder: Path) -> None:
    """Install a package that offers a profile, as far as the metadata is concerned."""
    metadata = folder / "house-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: house\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[palimpsest.profiles]\ncareful = house_profiles:careful\npalimpsest = house_profiles:broken\n"
    )


def test_a_function_of_the_current_folder_makes_a_profile_and_leaves_the_import_path_alone(folder: Path) -> None:
    before = list(sys.path)
    assert profile("house_profiles:careful").name == "careful"
    assert sys.path == before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("house_profiles:broken", "the profile 'house_profiles:broken' cannot be made: ValueError: no such thing"),
        ("house_profiles:number", "'house_profiles:number' returns int; it must be a function from settings to a Profile"),
        ("house_profiles:absent", "AttributeError"),
        ("no_such_module:careful", "ModuleNotFoundError"),
        ("absent", f"there is no profile 'absent'; known are {', '.join(PROFILES)}, or module:function"),
    ],
)
def test_what_makes_no_profile_is_an_error_of_one_line(folder: Path, name: str, message: str) -> None:
    with pytest.raises(BadInput) as error:
        profile(name)
    assert message in error.value.message
    assert "\n" not in error.value.message


def test_an_installed_package_offers_profiles_and_replaces_none_of_ours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(folder)
    monkeypatch.syspath_prepend(folder)
    assert profile_names() == (*PROFILES, "careful")
    assert (profile("careful").name, profile("palimpsest").name) == ("careful", "palimpsest")
    assert is_profile_name("careful")


def test_a_recorded_name_never_runs_code(folder: Path) -> None:
    assert not is_profile_name("house_profiles:careful")
    assert not is_profile_name("")
    assert "house_profiles" not in sys.modules


def test_the_file_of_a_project_cannot_name_a_function(tmp_path: Path) -> None:
    place = tmp_path / ".palimpsest" / "config.toml"
    place.parent.mkdir()
    place.write_text('profile = "house_profiles:careful"\n')
    settings = resolve(None, tmp_path, {})
    assert settings.config.profile == "palimpsest"
    assert [problem.message for problem in settings.refused] == [
        "a project file may not name a function as profile, because that would run its code"
    ]
    assert resolve(place, None, {}).config.profile == "house_profiles:careful"


def test_the_command_takes_a_function_and_records_the_name_of_its_profile(folder: Path) -> None:
    (folder / "script.jsonl").write_text('"ready"\n')
    variables = {**os.environ, "PAL_HOME": str(folder / "home"), "PAL_SCRIPT": str(folder / "script.jsonl")}

    def pal(*arguments: str) -> str:
        command = [sys.executable, "-m", "palimpsest.apps.cli", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=variables, stdin=subprocess.DEVNULL).stdout

    assert pal("-p", "hello", "--profile", "house_profiles:careful", "--quiet") == "ready\n"
    (log,) = (folder / "home" / "sessions").rglob("*.jsonl")
    assert '"profile":"careful"' in log.read_text(encoding="utf-8").splitlines()[0]
