from pathlib import Path

import msgspec
import pytest
from recorded import compacted_session, edit_part, read_part

from pal.cli.replay_table import SessionLoaders
from pal_lab.cost.checks import report_calibration
from palimpsest.core.errors import BadInput


def _sources() -> SessionLoaders:
    return SessionLoaders([lambda: compacted_session(read_part(510, 5) + edit_part(520, 5))], [])


def test_predicted_rereads_stand_beside_recorded_ones(capsys: pytest.CaptureFixture[str]) -> None:
    report_calibration(_sources(), (), as_json=False)

    assert [line.split() for line in capsys.readouterr().out.splitlines()[:3]] == [
        ["sessions", "compactions", "after", "before", "extra", "text", "strings", "names"],
        ["claude", "1", "1.00", "0.00", "1.00", "1.00", "0.00", "1.00"],
        ["error", "0.00", "1.00", "0.00"],
    ]


def test_the_calibration_as_json_has_every_compaction(capsys: pytest.CaptureFixture[str]) -> None:
    report_calibration(_sources(), (), as_json=True)

    found = msgspec.json.decode(capsys.readouterr().out)
    assert list(found) == ["cases", "formats", "error", "best", "sessions", "stable", "official"]
    assert found["cases"] == [
        {
            "session": "recorded",
            "format": "claude",
            "step": 40,
            "after": 1,
            "control": 0,
            "predicted": {"text": 1, "strings": 0, "names": 1},
        }
    ]


def test_the_table_of_the_calibration_goes_between_its_marks(tmp_path: Path) -> None:
    document = tmp_path / "document.md"
    document.write_text("Before.\n<!-- calibration begins -->\nold\n<!-- calibration ends -->\nAfter.\n")
    report_calibration(_sources(), (document,), as_json=True)

    assert (
        "| claude, as `claude-code-2.1.325` | 1 | 1.00 | 0.00 | 1.00 | 1.00 (0.00) | 0.00 (1.00) | 1.00 (0.00) |\n" in document.read_text()
    )
    assert document.read_text().endswith("<!-- calibration ends -->\nAfter.\n")


def test_without_any_compaction_nothing_can_be_calibrated() -> None:
    sources = SessionLoaders([lambda: msgspec.structs.replace(compacted_session([]), format="palimpsest")], [])
    with pytest.raises(BadInput, match="none of these sessions has a compaction with 20 calls behind it"):
        report_calibration(sources, (), as_json=False)
