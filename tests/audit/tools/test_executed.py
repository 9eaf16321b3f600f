"""The commands of a shell line without their wrappers."""

import pytest
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.audit.shell_lines import executed, program_name


def words(line: str) -> list[str]:
    """Each command as one text, in a container with a mark in front of it."""
    return [f"{'@ ' if each.elsewhere else ''}{' '.join(each.command.words)}" for each in executed(line)]


@every_case(
    ("line", "commands"),
    [
        ("env -u X A=1 B=2 rm a", ["rm a"]),
        ("timeout -k 5 60s rm a", ["rm a"]),
        ("sudo -u me -E rm a", ["rm a"]),
        ("time -p nice -n 5 nohup rm a", ["rm a"]),
        ("xargs rm", ["xargs rm"]),
        ("command rm a", ["rm a"]),
        ("command -v rm", ["command -v rm"]),
        ("uv run --with x -m pytest", ["pytest"]),
        ("uv --directory d run pytest", ["pytest"]),
        ("uv pip install pytest", ["uv pip install pytest"]),
        ("poetry run python -m pytest", ["python -m pytest"]),
        ("npm --prefix web exec -- jest", ["jest"]),
        ("npm run test", ["npm run test"]),
        ("npx -y jest@29 --ci", ["jest@29 --ci"]),
        ("bundle exec rspec", ["rspec"]),
        ("mise exec node@20 -- npm test", ["npm test"]),
        ("bash -lc 'cd x && rm a'", ["cd x", "rm a"]),
        ("bash -eo pipefail -c 'rm a | cat'", ["rm a", "cat"]),
        ("sh -c \"bash -c 'rm a'\"", ["rm a"]),
        ("bash <<'EOF'\nrm a\nEOF", ["rm a"]),
        ("bash run.sh a", ["bash run.sh a"]),
        ("eval 'rm a'", ["rm a"]),
        ("docker compose -f x.yml exec -T web bash -c 'rm a; ls'", ["@ rm a", "@ ls"]),
        ("docker run image", ["docker run image"]),
        ("edit 1:3\nrm a\nend_of_edit", ["edit 1:3"]),
        ("env", [""]),
    ],
)
def test_wrappers_are_removed_and_scripts_are_parsed_in_their_place(line: str, commands: list[str]) -> None:
    assert words(line) == commands


def test_redirections_of_a_shell_apply_to_its_script() -> None:
    assert [each.command.redirects for each in executed("bash -c 'make' > log")] == [((">", "log"),), ()]


@pytest.mark.parametrize(
    ("word", "name"), [("rm", "rm"), ("/usr/bin/rm", "rm"), ("C:\\Python\\python.exe", "python"), ("./gradlew.bat", "gradlew"), ("", "")]
)
def test_a_program_is_known_by_its_name_wherever_it_lies(word: str, name: str) -> None:
    assert program_name(word) == name


@given(st.lists(st.sampled_from(["sudo", "env", "bash", "-c", "uv", "run", "--", "A=1", "'rm a'", "docker", "compose", "exec", "<<< x"])))
def test_wrappers_in_any_order_come_to_an_end(parts: list[str]) -> None:
    assert executed(" ".join(parts)) == executed(" ".join(parts))
