"""A process that gets a signal in the middle of a call records the parts that arrived."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from palimpsest.core.events import Interrupted, Usage
from palimpsest.core.items import Text
from palimpsest.stores.home import Home

PROGRAM = Path(__file__).parents[2] / "support" / "programs" / "stalled_call.py"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, None)])
def test_a_process_that_gets_a_signal_records_the_parts_that_arrived(tmp_path: Path, number: signal.Signals, code: int | None) -> None:
    process = subprocess.Popen([sys.executable, str(PROGRAM), str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "stalled\n"
        process.send_signal(number)
        process.communicate(timeout=120)
    if code is not None:
        assert process.returncode == code
    with Home.at(tmp_path).open("s", write=False) as log:
        event = log.event(log.tip)
        assert event.body == Interrupted(
            2, (Text("Half of an answer", "assistant"),), "CancelledError", Usage(input=12), "claude-sonnet-4-5"
        )
        assert log.open_call is None
        assert log.view.ids == ("1.0", f"{event.seq}.0")
