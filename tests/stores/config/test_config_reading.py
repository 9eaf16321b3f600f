"""One configuration file: its values, their lines, and what is said about a file that is wrong."""

import os
from pathlib import Path

import pytest

from palimpsest.core.redaction import Credential
from palimpsest.stores.config_files import ConfigFile, ConfigProblem, key_lines, read_config

WHOLE = """\
# a comment
model = "gpt-5.5"
max_usd = 2

[permissions]
allow = [
  "bash(pytest)",   # model = "not a key"
]
"deny" = []

[providers.anthropic]
api_key = "k-1"
[providers."my.own".headers]
X-Team = "a"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def test_a_file_gives_values_of_the_schema_and_their_lines(path: Path) -> None:
    path.write_text(WHOLE)
    assert read_config(path) == ConfigFile(
        path,
        {
            "model": "gpt-5.5",
            "max_usd": 2.0,
            "permissions.allow": ("bash(pytest)",),
            "permissions.deny": (),
            "providers.anthropic.api_key": Credential("k-1"),
            "providers.my.own.headers": {"X-Team": Credential("a")},
        },
        {
            "model": f"{path}:2",
            "max_usd": f"{path}:3",
            "permissions.allow": f"{path}:6",
            "permissions.deny": f"{path}:9",
            "providers.anthropic.api_key": f"{path}:12",
            "providers.my.own.headers": f"{path}:13",
        },
    )


def test_a_missing_file_is_an_empty_one(path: Path) -> None:
    assert read_config(path) == ConfigFile(path, {}, {})


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('modle = "x"', 1, "the key 'modle' is not known; the nearest known is mode or model"),
        ("\ntail = 3", 2, "the key 'tail' is not known; the nearest known is context.tail or jobs.titles"),
        ('[providers.x]\nbase_ulr = ""', 2, "the key 'providers.x.base_ulr' is not known; the nearest known is providers.*.base_url"),
        ("[zzzzzzzz]\nqqqqqqqq = 1", 2, "the key 'zzzzzzzz.qqqqqqqq' is not known; `pal config` lists the known keys"),
        ("model = 3", 1, "model must be a text"),
        ('mode = "yolo"', 1, "mode must be one of ask, edits, plan, auto"),
        ("network = 1", 1, "network must be true or false"),
        ("max_turns = 0", 1, "max_turns must be a whole number from 1 to 1000000"),
        ('max_turns = "3"', 1, "max_turns must be a whole number from 1 to 1000000"),
        ("max_usd = nan", 1, "max_usd must be a number above 0 and up to 1000000"),
        ("timeout_seconds = inf", 1, "timeout_seconds must be a number of seconds above 0 and up to a year"),
        ("retries = -1", 1, "retries must be a whole number from 0 to 100"),
        ('[context]\ncompact_at = "101%"', 2, "compact_at must be a number of tokens, or a share of the window such as 60%"),
        ("[permissions]\n\nallow = 'bash'", 3, "allow must be a list of texts"),
        ("permissions = 3", 1, "permissions must be a table"),
        ("[providers.x]\nheaders = { a = 3 }", 2, "headers must be a table of texts"),
        ("a = 1\nmodel =", 2, "this is not valid TOML: Invalid value"),
        ("model = 'a'\nmodel = 'b'\nmode = 'ask'", 2, "this is not valid TOML: Cannot overwrite a value"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(path: Path, text: str, line: int, message: str) -> None:
    path.write_text(text)
    problems = read_config(path).problems
    assert problems[-1] == ConfigProblem(f"{path}:{line}", message)


def test_a_wrong_key_leaves_the_others_in_use(path: Path) -> None:
    path.write_text('modle = "x"\nmodel = "gpt-5.5"\nretries = "many"\n')
    found = read_config(path)
    assert (found.values, len(found.problems)) == ({"model": "gpt-5.5"}, 2)


def test_a_problem_never_repeats_the_value_of_a_key(path: Path) -> None:
    path.write_text('[providers.x]\napi_key = ["sk-secret-1"]\nheaders = ["sk-secret-2"]\n')
    found = read_config(path)
    assert [problem.message for problem in found.problems] == ["api_key must be a text", "headers must be a table of texts"]
    path.write_text('[providers.x]\napi_key = "sk-secret-1"\nheaders = { a = "sk-secret-2" }\n')
    assert "secret" not in repr(read_config(path))


def test_files_that_are_no_text_too_large_or_no_files_are_not_read(path: Path) -> None:
    path.write_bytes(b"model = '\xff'")
    assert read_config(path).problems == (ConfigProblem(str(path), "the file is not UTF-8 text"),)
    path.write_text("#" * (256 * 1024 + 1))
    assert read_config(path).problems == (ConfigProblem(str(path), "the file cannot be read: it has more than 256 KiB"),)
    path.write_text(f"max_turns = {'9' * 5000}")
    assert len(read_config(path).problems) == 1
    path.unlink()
    os.mkfifo(path)
    assert read_config(path).problems == (ConfigProblem(str(path), "the file cannot be read: it is not a regular file"),)


def test_lines_are_found_for_tables_dotted_and_quoted_keys() -> None:
    text = 'a.b = 1\n[c]\n"d e" = 2\n[c.f]\n# g = 3\n h=4\n'
    assert key_lines(text) == {("a", "b"): 1, ("c",): 2, ("c", "d e"): 3, ("c", "f"): 4, ("c", "f", "h"): 6}
