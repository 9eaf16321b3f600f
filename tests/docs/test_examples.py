import subprocess
import sys
from pathlib import Path

import pytest

_FOLDER = Path(__file__).parents[2] / "examples"
_LAST_LINES = {
    "agent_with_a_tool.py": [
        "take: 10 of bolt are left",
        "take: take failed: ValueError: there are 0 of nut",
        "take: This call was not run: keep ten in store",
        "Two bolts taken.",
        "Answer(text='You have two bolts.', stop='done')",
        "2 turns, 5 model calls, 10 items in the view",
    ],
    "followed_clients.py": [
        "anthropic: 26 messages in the list, at most 116 kB were sent, edited by fold",
        "openai: 26 messages in the list, at most 126 kB were sent, edited by fold",
    ],
    "find_and_fork.py": ["the new session: ['2.0', '3.0', '5.0']", "the old session: ['2.0', '3.0', '4.0']", "4 sessions"],
    "go_on_after_a_crash.py": [
        "the first process ended with -9",
        "user: Deploy the shop, please.",
        "call: deploy",
        "result: Interrupted: the session ended while this tool was running, and its outcome is u",
        "assistant: I do not know whether the deployment went through; I will look first.",
    ],
    "own_loop.py": ["It has six words.", "resumed 4 items after 2 requests; the same view: True"],
    "own_profile.py": ["mask-only keeps 7 laws"],
    "price_a_session.py": ["on claude-opus-4-5: $0.4440", "on claude-haiku-4-5: $0.0888", "total of 3 calls: $0.2664"],
    "undo_what_rests.py": ["undoing event 7 takes back event 8 too", "the same bytes again: True"],
}


@pytest.mark.parametrize("name", sorted(_LAST_LINES))
def test_an_example_runs_offline_and_prints_what_it_should(name: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-W", "error", _FOLDER / name], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    expected = _LAST_LINES[name]
    assert done.stdout.splitlines()[-len(expected) :] == expected
    assert list(tmp_path.iterdir()) == []


def test_every_example_is_run() -> None:
    assert sorted(path.name for path in _FOLDER.glob("*.py")) == sorted(_LAST_LINES)
