"""`pal init` and `pal config` as processes, and what `pal -p` and `pal compact` take from the configuration."""

import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from model_server import model_saying
from pal_runs import SMALL, small
from started_pal import run_pal

from palimpsest.coding.build import RecordedChoice, coding_agent, coding_settings
from palimpsest.stores.config_files import resolve
from palimpsest.stores.home import FolderHome, Home
from palimpsest.wire.models import CARDS, stand_in_note

PAL = [sys.executable, "-m", "pal.cli"]
KEY = "sk-config-0123456789abcdef"
CALL = {"calls": [{"tool": "nope", "args": {}}]}


class Workplace:
    """`pal` in a repository, with a home of its own and none of the variables of this machine."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        self.user_file = self.home / "config.toml"
        self.project_file = self.project / ".palimpsest" / "config.toml"
        self.project.mkdir()
        subprocess.run(["git", "init", "-q", str(self.project)], check=True)

    def write(self, user: str = "", project: str = "") -> None:
        for path, text in ((self.user_file, user), (self.project_file, project)):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)

    def __call__(self, *words: str, replies: tuple[object, ...] = (), **more: str) -> subprocess.CompletedProcess[str]:
        inherited = {name: text for name, text in os.environ.items() if not name.startswith(("PAL_", "ANTHROPIC_", "OPENAI_"))}
        settings = {**inherited, "PAL_HOME": str(self.home), "COLUMNS": "200", **more}
        if replies:
            script = self.home.parent / "script.jsonl"
            script.write_text("".join(f"{json.dumps(reply)}\n" for reply in replies))
            settings["PAL_SCRIPT"] = str(script)
        return run_pal(words, cwd=self.project, env=settings)

    def shown(self, *words: str, **more: str) -> dict[str, Any]:
        rows = json.loads(self("config", *words, "--json", replies=(), **more).stdout)
        return {row["key"]: (row["value"], row["source"]) for row in rows}


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)


def test_init_writes_a_private_file_once_and_replaces_it_only_by_force(workplace: Workplace) -> None:
    first = workplace("init")
    assert (first.returncode, first.stdout, first.stderr) == (0, f"wrote {workplace.user_file}\n", "")
    assert stat.S_IMODE(workplace.user_file.stat().st_mode) == 0o600
    written = workplace.user_file.read_text()
    workplace.user_file.write_text("max_turns = 3\n")
    again = workplace("init")
    assert (again.returncode, again.stderr) == (2, f"pal: {workplace.user_file}: the file exists; --force replaces it\n")
    assert workplace.user_file.read_text() == "max_turns = 3\n"
    assert workplace("init", "--force").returncode == 0
    assert workplace.user_file.read_text() == written


def test_init_of_a_project_writes_at_the_git_root_and_says_what_may_be_set(workplace: Workplace) -> None:
    done = workplace("init", "--project")
    assert done.stdout.splitlines() == [
        f"wrote {workplace.project_file.resolve()}",
        "it may set model, profile, max_turns, max_tools, max_seconds, max_usd, max_tokens, permissions.deny; other keys are ignored in it",
    ]
    again = json.loads(workplace("init", "--project", "--json").stdout)
    assert again["error"]["message"] == "the file exists; --force replaces it"
    assert json.loads(workplace("init", "--project", "--force", "--json").stdout)["path"] == str(workplace.project_file.resolve())


def test_init_does_not_write_through_a_link_of_the_repository(workplace: Workplace, tmp_path: Path) -> None:
    victim = tmp_path / "config.toml"
    victim.write_text("precious")
    workplace.project_file.parent.symlink_to(tmp_path)
    done = workplace("init", "--project", "--force")
    assert (done.returncode, victim.read_text()) == (2, "precious")
    assert "is a symbolic link; remove it first" in done.stderr


def test_config_shows_each_value_with_its_source(workplace: Workplace) -> None:
    workplace.write('profile = "codex"\nmax_usd = 2\n', '# ours\nmodel = "gpt-5.5"\n')
    shown = workplace.shown(PAL_MODE="plan")
    assert {key: shown[key] for key in ("model", "profile", "mode", "max_usd", "max_turns", "permissions.deny")} == {
        "model": ("gpt-5.5", f"{workplace.project_file.resolve()}:2"),
        "profile": ("codex", f"{workplace.user_file}:1"),
        "mode": ("plan", "PAL_MODE"),
        "max_usd": (2.0, f"{workplace.user_file}:2"),
        "max_turns": (None, "default"),
        "permissions.deny": ([], "default"),
    }
    done = workplace("config", "max_usd")
    assert done.stdout.splitlines() == [
        "key      value  source",
        "max_usd  2.0    user:2",
        f"user is {workplace.user_file}",
        f"project is {workplace.project_file.resolve()}",
    ]


def test_config_names_the_nearest_key_of_an_unknown_one(workplace: Workplace) -> None:
    done = workplace("config", "thrift")
    assert (done.returncode, done.stderr) == (2, "pal: pal config: the key 'thrift' is not known; the nearest known is context.thrift\n")


def test_secrets_are_shown_as_set_or_not_set(workplace: Workplace) -> None:
    workplace.write(
        f'[providers.anthropic]\napi_key = "{KEY}"\nheaders = {{ X-Auth = "{KEY}" }}\nbase_url = "http://me:{KEY}@h:1/v1"\n'
        '[providers.mine]\nbase_url = "http://m"\napi_key_env = "MINE"\n'
    )
    assert workplace.shown("providers", OPENAI_API_KEY=KEY) == {
        "providers.anthropic.base_url": ("http://h:1/v1", f"{workplace.user_file}:4"),
        "providers.anthropic.api_key": ("set", f"{workplace.user_file}:2"),
        "providers.anthropic.headers": ({"X-Auth": "set"}, f"{workplace.user_file}:3"),
        "providers.openai.base_url": (None, "default"),
        "providers.openai.api_key": ("set", "OPENAI_API_KEY"),
        "providers.mine.base_url": ("http://m", f"{workplace.user_file}:6"),
        "providers.mine.api_key_env": ("MINE", f"{workplace.user_file}:7"),
        "providers.mine.api_key": ("not set", "default"),
    }
    printed = workplace("config")
    assert (printed.returncode, printed.stderr) == (0, "")
    assert "providers.anthropic.api_key" in printed.stdout
    assert KEY not in printed.stdout


def test_a_project_that_oversteps_is_reported_and_the_rest_of_it_is_used(workplace: Workplace) -> None:
    workplace.write(project='sandbox = "off"\nmax_turns = 4\n')
    done = workplace("config", "--json")
    place = workplace.project_file.resolve()
    assert (done.returncode, done.stderr) == (
        1,
        f"pal: {place}:1: a project file may not set sandbox, so it is ignored; set it in your own file\n",
    )
    shown = {row["key"]: row["value"] for row in json.loads(done.stdout)}
    assert (shown["sandbox"], shown["max_turns"]) == ("auto", 4)


def test_a_broken_file_stops_the_agent_and_is_a_warning_elsewhere(workplace: Workplace) -> None:
    workplace.write("model =\n")
    stopped = workplace("-p", "hello", replies=("never",))
    problem = f"pal: {workplace.user_file}:1: this is not valid TOML: Invalid value"
    assert (stopped.returncode, stopped.stdout, stopped.stderr) == (2, "", f"{problem}; correct the file first\n")
    assert not (workplace.home / "sessions").exists()
    shown = workplace("config", "model")
    assert (shown.returncode, shown.stderr) == (1, f"{problem}; until this is fixed, it is not used\n")
    assert shown.stdout.splitlines()[1] == "model  claude-sonnet-4-6  default"


def test_a_new_session_has_the_configured_model_and_an_old_one_keeps_its_own(workplace: Workplace) -> None:
    def called(*words: str, **more: str) -> tuple[str, str]:
        done = workplace("-p", "go", "--json-stream", *words, replies=("ok",), **more)
        bodies = [json.loads(line).get("body", {}) for line in done.stdout.splitlines()]
        started = next(body for body in bodies if body.get("type") == "call_started")
        return started["model"], started["wire"]

    workplace.write('model = "gpt-5.5"\n')
    assert called() == ("gpt-5.5", "responses")
    workplace.write('model = "claude-sonnet-4-5"\n')
    assert called("--continue") == ("gpt-5.5", "responses")
    assert called("--continue", PAL_MODEL="claude-sonnet-4-5") == ("claude-sonnet-4-5", "anthropic")
    assert called("--model", "gpt-5.5") == ("gpt-5.5", "responses")


def test_limits_come_from_the_configuration_unless_an_option_is_given(workplace: Workplace) -> None:
    workplace.write("max_turns = 1\n")
    limited = workplace("-p", "go", "--json", replies=(CALL, "done"))
    assert (limited.returncode, json.loads(limited.stdout)["stop"]) == (4, "max_calls")
    free = workplace("-p", "go", "--json", "--max-turns", "9", replies=(CALL, "done"))
    assert (free.returncode, json.loads(free.stdout)["stop"]) == (0, "done")


def test_the_profile_of_the_agent_has_the_settings_of_the_file(workplace: Workplace) -> None:
    workplace.write("[context]\ncompact_at = 50_000\n")
    settings = resolve(workplace.user_file, None, {})
    agent = coding_agent(Home.in_memory(), settings, coding_settings(settings), cards=CARDS, notify=print)
    assert agent.session.profile.budget(agent.session.card).compact_at == 50_000
    agent.close()


def test_a_session_of_a_model_without_a_card_is_resumed_with_a_stand_in_that_is_stated(tmp_path: Path) -> None:
    settings = resolve(None, tmp_path, {})
    notices: list[str] = []

    recorded, coding = RecordedChoice("claude-opus-9"), coding_settings(settings)
    agent = coding_agent(Home.in_memory(), settings, coding, cards=CARDS, recorded=recorded, notify=notices.append, cwd=tmp_path)

    assert (agent.session.card.name, agent.session.card.wire) == ("claude-opus-9", "anthropic")
    assert notices == [f"{stand_in_note('claude-opus-9')}; name another with --model"]
    agent.close()


def test_a_variable_with_a_wrong_value_is_wrong_use(workplace: Workplace) -> None:
    done = workplace("-p", "go", replies=("never",), PAL_COMPACT_AT="no number")
    assert (done.returncode, done.stderr) == (
        2,
        "pal: PAL_COMPACT_AT: the variable is 'no number'; it must be a number of tokens, or a share of the window such as 60%\n",
    )


def test_the_agent_calls_the_configured_address_with_the_key_and_keeps_the_key_out_of_its_files(workplace: Workplace) -> None:
    with model_saying("hello from the server") as model:
        workplace.write(f'[providers.anthropic]\nbase_url = "{model.url}"\napi_key = "{KEY}"\n')
        done = workplace("-p", "go")
        assert (done.returncode, done.stdout) == (0, "hello from the server\n")
        assert len(model.asked) == 1
    kept = [path for path in workplace.home.rglob("*") if path.is_file() and path != workplace.user_file]
    assert len(kept) > 0
    assert [path for path in kept if KEY.encode() in path.read_bytes()] == []


def test_an_error_of_the_server_that_repeats_the_key_is_printed_without_it(workplace: Workplace) -> None:
    with model_saying(f"the key {KEY} is wrong", status=401) as model:
        workplace.write(f'[providers.anthropic]\nbase_url = "{model.url}"\napi_key = "{KEY}"\n')
        done = workplace("-p", "go")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (5, "pal: anthropic: HTTP 401: api_error: the key *** is wrong")
    assert [path for path in (workplace.home / "sessions").rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()] == []


def test_a_silent_server_fails_after_the_configured_seconds(workplace: Workplace) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        workplace.write(f'timeout_seconds = 0.2\nretries = 0\n[providers.anthropic]\nbase_url = "{url}"\n')
        done = workplace("-p", "go")
    assert done.returncode == 5
    assert "did not answer in time: it was silent for 0.2 seconds" in done.stderr


def test_retries_come_from_the_configuration(workplace: Workplace) -> None:
    with model_saying("overloaded", status=503) as model:
        workplace.write(f'retries = 1\n[providers.anthropic]\nbase_url = "{model.url}"\n')
        assert workplace("-p", "go").returncode == 5
        assert len(model.asked) == 2


def test_a_fold_asks_the_configured_address(workplace: Workplace) -> None:
    small(FolderHome(workplace.home))
    with model_saying("A summary.") as model:
        workplace.write(f'profile = "codex"\n[providers.anthropic]\nbase_url = "{model.url}"\n')
        assert workplace("compact", SMALL, "--profile", "claude-code").returncode == 0
        assert len(model.asked) == 1
