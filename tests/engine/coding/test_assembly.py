"""How a coding agent is put together: what is refused leaves nothing behind, and an agent is whole from its first moment."""

import os
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest

from palimpsest.agent.agent import Agent
from palimpsest.agent.workspace import OutsideWorkspace
from palimpsest.coding.build import coding_agent, coding_settings
from palimpsest.coding.settings import CodingSettings
from palimpsest.core.errors import BadInput
from palimpsest.sources.progress import StateMachine
from palimpsest.stores.config_files import resolve
from palimpsest.stores.home import FolderHome, Home
from palimpsest.wire.models import CARDS

ORDER = StateMachine({"clarify": "Ask.", "build": "Make it."}, "clarify", {"clarify": frozenset({"build"})})


def made(
    home: Home,
    root: Path,
    coding: CodingSettings | None = None,
    session: str = "",
    model: str = "claude-sonnet-4-5",
    *,
    drops_blank: bool = True,
) -> Agent:
    """The agent of the default settings in a folder."""
    settings = resolve(None, root, {}, {"model": model})
    known = replace(coding_settings(settings) if coding is None else coding, sandbox="off")
    return coding_agent(home, settings, known, cards=CARDS, notify=print, session=session, cwd=root, drops_blank=drops_blank)


@pytest.mark.parametrize(
    ("coding", "said"),
    [
        (CodingSettings(deny=("no such tool(x)",)), "no such tool"),
        (CodingSettings(state="build"), "there are no states"),
    ],
)
def test_what_can_be_refused_is_refused_before_a_file_of_a_session_is_made(tmp_path: Path, coding: CodingSettings, said: str) -> None:
    home = FolderHome(tmp_path / "home")
    with pytest.raises(BadInput, match=said):
        made(home, tmp_path, coding)
    with pytest.raises(BadInput, match="no card is known"):
        made(home, tmp_path, model="no-such-model")
    assert not (tmp_path / "home" / "sessions").exists()


def test_an_agent_that_is_refused_in_its_session_closes_it_and_keeps_no_empty_one(tmp_path: Path) -> None:
    home, project = FolderHome(tmp_path / "home"), tmp_path / "project"
    project.mkdir()
    first = made(home, project)
    first.say("hello")
    first.close()
    # A graph of tasks that leads out of the project is refused once its workspace is known.
    (project / ".tasks").symlink_to(tmp_path)
    for drops_blank in (True, False):
        with pytest.raises(OutsideWorkspace):
            made(home, project, drops_blank=drops_blank)
    with pytest.raises(OutsideWorkspace):
        made(home, project, session=first.id)
    assert [stat.session for stat in home.store.stats()] == [first.id]
    (project / ".tasks").unlink()
    again = made(home, project, session=first.id)
    assert again.parts.is_resumed
    again.close()
    kept, dropped = made(home, project, drops_blank=False), made(home, project)
    kept.close()
    dropped.close()
    assert {stat.session for stat in home.store.stats()} == {first.id, kept.id}


def test_an_agent_that_is_refused_late_leaves_neither_a_session_nor_a_temporary_folder(tmp_path: Path) -> None:
    for folder in ("home", "temporary"):
        (tmp_path / folder).mkdir()
    (tmp_path / "home" / "config.toml").write_text('[states]\nnames = {ask = "Ask.", build = "Make."}\nmoves = {ask = ["build"]}\n')
    (tmp_path / "script.jsonl").write_text('"never"\n')
    script, temporary = str(tmp_path / "script.jsonl"), str(tmp_path / "temporary")
    variables = {**os.environ, "PAL_HOME": str(tmp_path / "home"), "PAL_SCRIPT": script, "TMPDIR": temporary}
    command = [sys.executable, "-m", "pal.cli", "-p", "hello", "--state", "nowhere"]
    done = subprocess.run(
        command, cwd=tmp_path, env=variables, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, timeout=120
    )
    assert (done.returncode, "there is no state 'nowhere'" in done.stderr) == (2, True)
    assert [path.name for path in (tmp_path / "temporary").iterdir()] == []
    assert list(FolderHome(tmp_path / "home").store.stats()) == []


def test_the_parts_of_an_agent_are_whole_and_cannot_be_filled_in_later(tmp_path: Path) -> None:
    agent = made(FolderHome(tmp_path / "home"), tmp_path, CodingSettings(states=ORDER, state="build", hooks=()))
    parts = agent.parts
    assert None not in (parts.context, parts.recall, parts.business, parts.children, parts.mode, parts.shell)
    assert agent.business is not None
    assert (agent.business.current, sorted({"bash", "edit", "recall", "spawn_agent"} - parts.toolbox.tools.keys())) == ("build", [])
    with pytest.raises(FrozenInstanceError):
        parts.mode = None  # type: ignore[misc]
    agent.close()
