"""Recorded sessions that a program compacted, with the calls that follow."""

from recorded import ended, log_of, said, used

from palimpsest.core.edits import Fold, Put
from palimpsest.core.events import Body, ViewEdited
from palimpsest.core.items import Text
from palimpsest.lab.simulation.loading import LoadedSession, load_log
from palimpsest.stores.ephemeral import MemoryBlobs

Timed = list[tuple[int, Body]]


def read_part(at: int, number: int, extra: str = "") -> Timed:
    body = f"def settle_basket_{number}(cursor):\n    return ledger_of_part_{number}\n" + "# more\n" * 400
    return used(at, f"r{at}", "Read", f'{{"file_path": "/repo/src/part_{number}.py"{extra}}}', body)


def edit_part(at: int, number: int) -> Timed:
    args = f'{{"file_path": "/repo/src/part_{number}.py", "old_string": "return ledger_of_part_{number}", "new_string": "return None"}}'
    return used(at, f"e{at}", "Edit", args, "ok")


def compacted(at: int) -> Timed:
    return [(at, ViewEdited((Fold("1.0", "9.0", (Put("summary", Text("Parts were read.")),)),), "claude-code"))]


def compacted_session(after: Timed) -> LoadedSession:
    """Forty calls that read a file each, a compaction, and twenty calls of which the first ones are given."""
    timed = said(0, "Read all parts.")
    for number in range(40):
        timed += read_part(10 * number + 1, number)
    timed += compacted(500)
    timed += after
    for number in range(20 - len(after) // 3):
        timed += used(700 + 10 * number, f"b{number}", "Bash", '{"command": "true"}', "")
    return load_log(log_of(*timed, *ended(999)), MemoryBlobs(), "made.jsonl", "claude")
