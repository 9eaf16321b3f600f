"""The tour is what the docstrings of the source say."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tour_is_made_of_the_docstrings() -> None:
    made = subprocess.run([sys.executable, ROOT / "tests" / "support" / "tour.py"], capture_output=True, text=True, check=True).stdout
    assert (ROOT / "docs" / "tour.md").read_text(encoding="utf-8") == made.rstrip("\n") + "\n", "run ./run tour"
