"""`./run lab` has a short name for each measurement, which takes the options of the command that it stands for."""

import subprocess
import sys

import pytest

from pal_lab.__main__ import COMMANDS, main


def lab(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "pal_lab", *words], capture_output=True, text=True, check=False)


def test_a_name_stands_for_a_command_of_pal(capsys: pytest.CaptureFixture[str]) -> None:
    found = {}
    for name in COMMANDS:
        with pytest.raises(SystemExit) as ended:
            main((name, "--help"))
        found[name] = (ended.value.code, capsys.readouterr().out.splitlines()[0].partition("[")[0].strip())
    assert found == {name: (0, f"Usage: pal {' '.join(words).partition(' --')[0]}") for name, words in COMMANDS.items()}


def test_a_name_works_from_a_shell() -> None:
    shown = lab("bench", "--help")
    assert (shown.returncode, shown.stdout.partition("[")[0].strip()) == (0, "Usage: pal bench")


def test_without_a_known_name_all_are_listed() -> None:
    shown = lab("benhc")
    assert (shown.returncode, shown.stdout) == (2, "")
    assert [line.split()[2] for line in shown.stderr.splitlines()[1:]] == list(COMMANDS)
