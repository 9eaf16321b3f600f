"""Profiles of other authors: by entry point, and by `module:function` where the user names it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from palimpsest.agent.named_profiles import is_profile_name, profile, profile_names
from palimpsest.core.errors import BadInput
from palimpsest.policies.named import PROFILES, split_names
from palimpsest.stores.config_files import resolve
from palimpsest.wire.models import card

CARD = card("claude-sonnet-4-5")

MODULE = """
from palimpsest import Profile
from palimpsest.policies.budgets import palimpsest_budget

def careful(settings):
    return Profile("careful", (), lambda card: palimpsest_budget(card.window, card.reply))

def broken(settings):
    raise ValueError("no such\\nthing")

def number(settings):
    return 7

def tuned(settings):
    return Profile(f"tuned to {settings['level']}", (), lambda card: palimpsest_budget(card.window, card.reply))

tuned.settings = ("level",)
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


def test_a_name_carries_settings_that_win_over_the_environment_and_is_the_label() -> None:
    name = "claude-code-2.1.325@CLAUDE_CODE_AUTO_COMPACT_WINDOW=120000,PAL_EVIDENCE=on"
    named = profile(name, {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "90000"})
    set_by_environment = profile("claude-code-2.1.325", {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "120000", "PAL_EVIDENCE": "on"})

    assert (named.name, named.program) == (name, "claude-code-2.1.325")
    assert named.budget(CARD) == set_by_environment.budget(CARD)
    assert named.policies == set_by_environment.policies


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none@keep=3", "none does not read 'keep'; it has no settings"),
        ("classroom@told=end", "classroom does not read 'told'; its settings are told_from, PAL_EVIDENCE"),
        ("classroom@told_from", "'told_from' is no setting, or is given twice; write classroom@KEY=VALUE,KEY=VALUE"),
        (
            "classroom@told_from=end,told_from=start",
            "'told_from=start' is no setting, or is given twice; write classroom@KEY=VALUE,KEY=VALUE",
        ),
        ("classroom@", "'' is no setting, or is given twice; write classroom@KEY=VALUE,KEY=VALUE"),
        ("absent@a=1", f"there is no profile 'absent'; known are {', '.join(PROFILES)}, or module:function"),
        ("palimpsest@PAL_TAIL=many", "PAL_TAIL is 'many'; give a number of tokens from 0 on"),
        ("house_profiles:careful@a=1", "house_profiles:careful does not read 'a'; it has no settings"),
    ],
)
def test_settings_that_a_profile_does_not_read_are_an_error_that_lists_those_it_reads(folder: Path, name: str, message: str) -> None:
    with pytest.raises(BadInput) as error:
        profile(name)
    assert error.value.message == message


def test_a_function_of_another_author_lists_its_settings_as_an_attribute(folder: Path) -> None:
    assert profile("house_profiles:tuned", {"level": "2"}).name == "tuned to 2"
    assert profile("house_profiles:tuned@level=3", {"level": "2"}).name == "house_profiles:tuned@level=3"


def test_names_in_a_list_keep_their_settings_together() -> None:
    assert split_names("palimpsest, codex@a=1,b=2 none,none opencode@c=3") == ("palimpsest", "codex@a=1,b=2", "none", "opencode@c=3")
    assert split_names("none,a=1") == ("none", "a=1")
    assert split_names(" , ") == ()


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("palimpsest@PAL_THRIFT=careful", True),
        ("palimpsest@PAL_THRIFT=wild", False),
        ("palimpsest@unknown=1", False),
        ("palimpsest@PAL_THRIFT", False),
        ("palimpsest@PAL_INSTRUCTIONS=/etc/passwd", False),
        ("codex@experimental_compact_prompt_file=secret.txt", False),
        ("house_profiles:tuned@level=3", False),
    ],
)
def test_a_recorded_name_may_carry_numbers_and_switches_and_no_files(folder: Path, name: str, is_one: bool) -> None:
    assert is_profile_name(name) is is_one
    assert "house_profiles" not in sys.modules


def test_the_file_of_a_project_cannot_give_settings_in_the_name_of_a_profile(tmp_path: Path) -> None:
    place = tmp_path / ".palimpsest" / "config.toml"
    place.parent.mkdir()
    place.write_text('profile = "palimpsest@PAL_INSTRUCTIONS=notes.md"\n')
    settings = resolve(None, tmp_path, {})
    assert settings.config.profile == "palimpsest"
    assert [problem.message for problem in settings.refused] == [
        "a project file may not name a profile with settings, which can name other files"
    ]


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
        command = [sys.executable, "-m", "pal.cli", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=variables, stdin=subprocess.DEVNULL).stdout

    assert pal("-p", "hello", "--profile", "house_profiles:careful", "--quiet") == "ready\n"
    (log,) = (folder / "home" / "sessions").rglob("*.jsonl")
    assert '"profile":"careful"' in log.read_text(encoding="utf-8").splitlines()[0]
