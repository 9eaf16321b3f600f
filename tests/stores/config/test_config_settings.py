"""The layers of the configuration: which value wins, where it comes from, and what a project may not do."""

from pathlib import Path

import pytest

from palimpsest.core.errors import BadInput
from palimpsest.policies.named import DEFAULT
from palimpsest.policies.profile import SETTINGS
from palimpsest.stores.config import KEYS, Config, ContextConfig, PermissionConfig
from palimpsest.stores.config_files import ConfigProblem, Setting, Settings, find_project_file, project_denials, resolve
from palimpsest.wire.models import card


class Files:
    """A home with a user's file, and a git repository with a project's file."""

    def __init__(self, folder: Path) -> None:
        self.user = folder / "home" / "config.toml"
        self.root = folder / "repository"
        self.project = self.root / ".palimpsest" / "config.toml"
        self.user.parent.mkdir()
        self.project.parent.mkdir(parents=True)
        (self.root / ".git").mkdir()

    def resolve(self, environment: dict[str, str] | None = None, **options: object) -> Settings:
        return resolve(self.user, self.root, environment or {}, options)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_without_files_every_value_is_the_default(files: Files) -> None:
    assert files.resolve() == Settings(Config(), {})
    assert files.resolve().source("model") == "default"


def test_each_layer_wins_over_the_one_before(files: Files) -> None:
    files.user.write_text('model = "user"\n')
    assert files.resolve().settings["model"] == Setting("model", "user", f"{files.user}:1")
    files.project.write_text('\nmodel = "project"\n')
    assert files.resolve().settings["model"] == Setting("model", "project", f"{files.project}:2")
    assert files.resolve({"PAL_MODEL": " env "}).settings["model"] == Setting("model", "env", "PAL_MODEL")
    assert files.resolve({"PAL_MODEL": "env"}, model="option").settings["model"] == Setting("model", "option", "--model")
    assert files.resolve({"PAL_MODEL": "env"}, model="option").config == Config(model="option")


def test_empty_variables_and_options_set_nothing(files: Files) -> None:
    files.user.write_text("max_turns = 7\n")
    assert files.resolve({"PAL_MAX_TURNS": " ", "PAL_MODEL": ""}, max_turns=None, model="").config == Config(max_turns=7)


@pytest.mark.parametrize(
    "line",
    [
        'mode = "auto"',
        'sandbox = "off"',
        "network = true",
        "retries = 100",
        "timeout_seconds = 1",
        'permissions.allow = ["bash"]',
        "permissions.ask = []",
        "tools.disabled = []",
        'providers.anthropic.base_url = "http://elsewhere.example"',
        'providers.anthropic.api_key = "k"',
        'providers.anthropic.api_key_env = "HOME"',
        'providers.anthropic.headers = { a = "b" }',
        'providers."a.b".base_url = "http://elsewhere.example"',
        'context.thrift = "thrifty"',
    ],
)
def test_a_project_cannot_loosen_redirect_or_name_a_key(files: Files, line: str) -> None:
    files.project.write_text(f"{line}\nmax_turns = 3\n")
    settings = files.resolve()
    assert settings.config == Config(max_turns=3)
    (refused,) = settings.refused
    name = line.partition(" = ")[0].replace('"', "")
    assert refused == ConfigProblem(f"{files.project}:1", f"a project file may not set {name}, so it is ignored; set it in your own file")


def test_the_keys_of_a_project_are_those_that_choose_or_restrict() -> None:
    allowed = [key.name for key in KEYS.values() if key.project]
    assert allowed == ["model", "profile", "max_turns", "max_tools", "max_seconds", "max_usd", "max_tokens", "permissions.deny"]


def test_a_project_can_lower_a_limit_of_the_user_and_not_raise_it(files: Files) -> None:
    files.user.write_text("max_usd = 2\nmax_turns = 10\nmax_tokens = 5000\n")
    files.project.write_text("max_usd = 500\nmax_turns = 5\nmax_tokens = 9000\n")
    settings = files.resolve()
    assert settings.config == Config(max_usd=2.0, max_turns=5, max_tokens=5_000)
    assert (settings.source("max_usd"), settings.source("max_turns")) == (f"{files.user}:1", f"{files.project}:2")


def test_the_rules_of_a_project_that_deny_are_read_alone_and_a_spoilt_file_is_an_error(files: Files) -> None:
    folder = files.project.parents[1]
    assert project_denials(folder) == ()
    files.project.write_text('permissions.deny = ["read(.env)", "bash(rm:*)"]\npermissions.allow = ["bash"]\n')
    assert project_denials(folder) == ("deny read(.env)", "deny bash(rm:*)")
    assert project_denials(folder, files.project) == ()
    files.project.write_text('permissions.deny = ["read(.env)"]\nno toml\n')
    with pytest.raises(BadInput, match="correct the file first"):
        project_denials(folder)


def test_a_project_adds_rules_that_deny_and_removes_none(files: Files) -> None:
    files.user.write_text('permissions.deny = ["a", "b"]\n')
    files.project.write_text('permissions.deny = ["b", "c"]\n')
    settings = files.resolve()
    assert settings.config == Config(permissions=PermissionConfig(deny=("a", "b", "c")))
    assert settings.source("permissions.deny") == f"{files.user}:1, {files.project}:1"
    files.project.write_text("permissions.deny = []\n")
    assert files.resolve().config.permissions.deny == ("a", "b")


def test_the_file_of_a_project_is_looked_for_up_to_the_git_root(files: Files) -> None:
    inner = files.root / "a" / "b"
    inner.mkdir(parents=True)
    files.project.write_text("")
    assert find_project_file(inner) == files.project.resolve()
    nested = files.root / "a" / ".palimpsest" / "config.toml"
    nested.parent.mkdir()
    nested.write_text("")
    assert find_project_file(inner) == nested.resolve()
    (inner / ".git").write_text("gitdir: elsewhere")
    assert find_project_file(inner) is None


def test_outside_of_git_only_the_folder_itself_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / ".palimpsest").mkdir()
    (tmp_path / ".palimpsest" / "config.toml").write_text("")
    (tmp_path / "inner").mkdir()
    assert find_project_file(tmp_path / "inner") is None
    assert find_project_file(tmp_path) == (tmp_path / ".palimpsest" / "config.toml").resolve()


def test_the_file_of_the_user_is_not_one_of_a_project(files: Files) -> None:
    files.project.write_text('sandbox = "off"\n')
    settings = resolve(files.project, files.root, {})
    assert (settings.config, settings.refused) == (Config(sandbox="off"), ())


def test_a_file_with_a_problem_stops_what_must_be_strict_and_nothing_else(files: Files) -> None:
    files.user.write_text('[permissions]\ndeny = "bash(rm)"\n')
    files.project.write_text('model = "gpt-5.5"\n')
    settings = files.resolve()
    assert settings.config == Config(model="gpt-5.5")
    with pytest.raises(BadInput) as raised:
        settings.require_valid()
    assert str(raised.value) == f"{files.user}:2: deny must be a list of texts; correct the file first"


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("PAL_RETRIES", "abc", "PAL_RETRIES: the variable is 'abc'; it must be a whole number from 0 to 100"),
        ("PAL_MODE", "yolo", "PAL_MODE: the variable is 'yolo'; it must be one of ask, edits, plan, auto"),
        ("PAL_MAX_USD", "nan", "PAL_MAX_USD: the variable is 'nan'; it must be a number above 0 and up to 1000000"),
        ("PAL_NETWORK", "x" * 50, f"PAL_NETWORK: the variable is '{'x' * 40}…'; it must be true or false"),
    ],
)
def test_a_variable_with_a_wrong_value_is_an_error(files: Files, variable: str, text: str, message: str) -> None:
    with pytest.raises(BadInput) as raised:
        files.resolve({variable: text})
    assert str(raised.value) == message


def test_variables_are_read_as_leniently_as_profiles_read_them(files: Files) -> None:
    environment = {"PAL_TAIL": "1_000", "PAL_COMPACT_AT": "60 %", "PAL_AUTO_COMPACT": "Off", "PAL_THRIFT": "CAREFUL"}
    assert files.resolve(environment).config.context == ContextConfig(tail=1000, compact_at="60%", auto_compact=False, thrift="careful")


def test_settings_of_files_reach_the_profile_unless_a_variable_is_set(files: Files) -> None:
    files.user.write_text('[context]\ntail = 900\nauto_compact = false\ncompact_at = "60%"\n[jobs]\nkeep_alive = true\nindex = "off"\n')
    settings = files.resolve({"PAL_TAIL": "1_000"})
    assert settings.profile_environment({"PAL_TAIL": "1_000", "PAL_COMPACT_AT": " ", "A": "b"}) == {
        "PAL_TAIL": "1_000",
        "PAL_AUTO_COMPACT": "off",
        "PAL_COMPACT_AT": "60%",
        "PAL_KEEP_ALIVE": "on",
        "A": "b",
    }


def test_only_variables_and_options_change_a_session_that_exists(files: Files) -> None:
    files.user.write_text('model = "gpt-5.5"\n')
    assert [files.resolve().is_given_now("model"), files.resolve({"PAL_MODEL": "a"}).is_given_now("model")] == [False, True]
    assert [files.resolve(profile="codex").is_given_now("profile"), files.resolve().is_given_now("profile")] == [True, False]


def test_the_schema_has_every_own_setting_of_the_profiles_and_their_defaults() -> None:
    variables = {name for names in SETTINGS.values() for name in names if name.startswith("PAL_")}
    assert {key.variable for key in KEYS.values() if key.name.startswith("context.") or key.name == "jobs.keep_alive"} == variables
    assert Config().profile == DEFAULT
    assert card(Config().model).name == Config().model
