import json
from pathlib import Path

import pytest

from pal.cli.gateway import bypasses

ADDRESS = {"env": {"ANTHROPIC_BASE_URL": "https://other.example"}}


@pytest.mark.parametrize("place", ["home/.claude/settings.json", "project/.claude/settings.json", "project/.claude/settings.local.json"])
def test_an_address_in_any_settings_file_of_claude_code_is_named(tmp_path: Path, place: str) -> None:
    file = tmp_path / place
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(ADDRESS))
    folder = tmp_path / "project" / "deep"
    assert bypasses("claude", [], {"HOME": str(tmp_path / "home")}, folder) == [f"{file} sets env.ANTHROPIC_BASE_URL"]


def test_other_clouds_and_settings_of_the_command_line_are_named(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "CLAUDE_CODE_USE_BEDROCK": "1", "CLAUDE_CODE_USE_VERTEX": "0"}
    assert bypasses("claude", ["--settings", json.dumps(ADDRESS)], environment, tmp_path) == [
        "CLAUDE_CODE_USE_BEDROCK is set in the environment",
        "--settings sets env.ANTHROPIC_BASE_URL",
    ]
    assert bypasses("claude", [], {"HOME": str(tmp_path)}, tmp_path) == []


def test_a_custom_provider_of_codex_is_named_and_its_own_is_not(tmp_path: Path) -> None:
    config = tmp_path / ".codex" / "config.toml"
    config.parent.mkdir()
    config.write_text('model_provider = "azure"\n[profiles.work]\nmodel_provider = "mine"\n')
    environment = {"HOME": str(tmp_path)}
    assert bypasses("codex", [], environment, tmp_path / "project") == [f"{config} sets model_provider = 'azure'"]
    assert bypasses("codex", ["--profile", "work"], environment, tmp_path / "project")[-1] == f"{config} sets model_provider = 'mine'"
    config.write_text('model_provider = "openai"\n')
    assert bypasses("codex", ["-c", "model_provider=other"], environment, tmp_path / "project") == ["-c sets model_provider = 'other'"]
    config.write_text("this is no TOML [")
    assert bypasses("codex", [], environment, tmp_path / "project") == []
