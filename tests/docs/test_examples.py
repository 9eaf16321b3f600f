import re
import runpy
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
# Programs with packages that take a second to import, which tests of the same process have imported already.
_LINES_OF_ADAPTERS = {
    "anthropic_client.py": ["26 messages of 350 kB in the list, at most 58 kB were sent", "['clear_dead', 'fold']"],
    "anthropic_memory_tool.py": [
        "The tool said: Created /memories/project/tests.md.",
        "The tool said:      1\tThe tests of this project run with make check.",
    ],
    "langchain_agent.py": ["26 messages of 187 kB in the state, at most 76 kB were sent", "['clear_dead', 'fold']"],
    "openai_agents_session.py": [
        "26 items of 208 kB in the session, at most 68 kB were sent",
        "['clear_dead', 'fold']",
        "28 items of 208 kB in the session, at most 68 kB were sent",
        "['clear_dead', 'fold']",
    ],
    "openai_client.py": [
        "responses: 26 messages in the list, at most 65 kB were sent, edited by clear_dead, fold",
        "chat: 26 messages in the list, at most 126 kB were sent, edited by clear_dead, fold",
    ],
    "pydantic_ai_agent.py": ["26 messages of 187 kB in the run, at most 76 kB were sent", "['clear_dead', 'fold']"],
}


@pytest.mark.parametrize("name", sorted(_LAST_LINES))
def test_an_example_runs_offline_and_prints_what_it_should(name: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-W", "error", _FOLDER / name], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    expected = _LAST_LINES[name]
    assert done.stdout.splitlines()[-len(expected) :] == expected
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", sorted(_LINES_OF_ADAPTERS))
def test_an_example_of_an_adapter_runs_offline_with_the_real_package_and_prints_what_it_should(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(_FOLDER / name), run_name="__main__")
    said = capsys.readouterr()
    assert (said.out.splitlines(), said.err) == (_LINES_OF_ADAPTERS[name], "")
    assert list(tmp_path.iterdir()) == []


def test_every_example_is_run() -> None:
    assert sorted(path.name for path in _FOLDER.glob("*.py")) == sorted({**_LAST_LINES, **_LINES_OF_ADAPTERS})


def test_the_lines_of_the_page_about_loops_are_those_of_the_examples() -> None:
    page = (_FOLDER.parent / "docs" / "loops.md").read_text(encoding="utf-8")
    parts = page.split("```py\n")
    names = [re.findall(r"examples/(\w+\.py)", before)[-1] for before in parts[:-1]]
    assert sorted(names) == sorted(_LINES_OF_ADAPTERS)
    for name, block in zip(names, parts[1:], strict=True):
        lines = block.partition("```")[0].splitlines()
        program = "".join((_FOLDER / name).read_text(encoding="utf-8").split())
        assert [line for line in lines if "".join(line.split()) not in program] == []
