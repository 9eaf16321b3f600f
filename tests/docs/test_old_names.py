"""Import paths that the documents of 0.2 named: they work, with a warning, and so does the command under its old name."""

import subprocess
import sys

import pytest

from palimpsest.old_names import MOVED

USES = (
    "from palimpsest.engine.coding.equip import equip",
    "from palimpsest.core.log.undo import rewind, plan_undo",
    "from palimpsest.core.events.deltas import TextDelta",
    "from palimpsest.wire.models.cards import card",
    "import palimpsest.stores.ephemeral; palimpsest.stores.ephemeral.FixedClock",
)


@pytest.mark.parametrize("line", USES)
def test_a_line_of_a_program_written_for_0_2_runs_and_warns(line: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "always::DeprecationWarning", "-c", line], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert "DeprecationWarning: palimpsest." in done.stderr
    assert "the old path goes with 0.5" in done.stderr


def test_every_old_path_leads_to_a_module_and_others_are_not_found() -> None:
    script = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\n"
    done = subprocess.run([sys.executable, "-c", script, *MOVED, *MOVED.values()], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    missing = subprocess.run(
        [sys.executable, "-c", "import palimpsest.engine.nothing"], capture_output=True, text=True, timeout=60, check=False
    )
    assert missing.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'palimpsest.engine.nothing'"


def test_the_command_under_its_old_name_is_pal() -> None:
    old, new = (
        subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
        for module in ("palimpsest.apps.cli", "pal.cli")
    )
    assert old == new
