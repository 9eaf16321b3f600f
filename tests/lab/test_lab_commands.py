"""`./run lab` has a short name for each measurement, which takes the options of the command that it stands for."""

import subprocess
import sys

from every_case import every_case

from pal_lab.__main__ import COMMANDS


def lab(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "pal_lab", *words], capture_output=True, text=True, check=False)


@every_case("name", COMMANDS)
def test_a_name_stands_for_a_command_of_pal(name: str) -> None:
    shown = lab(name, "--help")
    words, _, _ = " ".join(COMMANDS[name]).partition(" --")
    assert (shown.returncode, shown.stdout.splitlines()[0].partition("[")[0].strip()) == (0, f"Usage: pal {words}")


def test_without_a_known_name_all_are_listed() -> None:
    shown = lab("benhc")
    assert (shown.returncode, shown.stdout) == (2, "")
    assert [line.split()[2] for line in shown.stderr.splitlines()[1:]] == list(COMMANDS)
