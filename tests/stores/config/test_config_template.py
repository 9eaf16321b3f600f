"""The files that `pal init` writes: everything is a comment, and what the comments propose can be used as it is."""

import re
import tomllib
from pathlib import Path

import pytest

from palimpsest.stores.config import KEYS, key_of, project_template, user_template
from palimpsest.stores.config_files import read_config, resolve


def uncommented(text: str) -> str:
    return re.sub(r"^# (?=\[[a-z.]+\]$|[a-z_]+ = )", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("text", [user_template(), project_template()], ids=["user", "project"])
def test_a_new_file_sets_nothing(text: str) -> None:
    assert tomllib.loads(text) == {}


def test_a_new_file_proposes_every_key_and_each_proposal_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(uncommented(user_template()))
    found = read_config(path)
    assert found.problems == ()
    assert [key.name for name in found.values if (key := key_of(tuple(name.split("."))))] == list(KEYS)


def test_a_proposal_is_the_default_where_there_is_one(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(uncommented(user_template()))
    values = read_config(path).values
    with_default = {name: key.default for name, key in KEYS.items() if not key.example}
    assert {name: values[name] for name in with_default} == with_default


def test_everything_in_a_new_project_file_may_be_set_there(tmp_path: Path) -> None:
    path = tmp_path / ".palimpsest" / "config.toml"
    path.parent.mkdir()
    path.write_text(uncommented(project_template()))
    settings = resolve(None, tmp_path, {})
    assert (settings.problems, settings.refused) == ((), ())
    assert list(settings.settings) == [
        "model",
        "profile",
        "max_turns",
        "max_tools",
        "max_seconds",
        "max_usd",
        "max_tokens",
        "permissions.deny",
    ]


def test_the_file_names_the_variable_of_a_key_and_says_what_is_not_set() -> None:
    assert (
        "\n# Most US dollars of one prompt; refused where no price is known. Not set by default. (PAL_MAX_USD)\n# max_usd = 2.5\n"
        in user_template()
    )
