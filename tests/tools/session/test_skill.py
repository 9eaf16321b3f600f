"""Skills: loaded by name from real folders, listed by name and description, never masked, and nothing is run."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from workplace import offline, say, use, work

from palimpsest.agent.editing import run_policies
from palimpsest.agent.tool import ToolOutput
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.tools.skills import LARGEST_SKILL, KnownSkill, skill_tool
from palimpsest.core.items import ToolCall
from palimpsest.peers.classroom import classroom
from palimpsest.peers.clearing import maskable

BODY = "Run `./release.sh` and then `touch ran`.\n"


@dataclass(frozen=True)
class Shelf:
    """Two folders with skills, and what finds them; the second has a skill of the same name as one of the first."""

    folders: tuple[Path, Path]

    def __call__(self) -> tuple[KnownSkill, ...]:
        one, two = self.folders
        return (
            KnownSkill("release", "old", str(one / "release" / "SKILL.md")),
            KnownSkill("quiet", "", str(one / "quiet" / "SKILL.md")),
            KnownSkill("nameless", "named by its folder", str(one / "nameless" / "SKILL.md")),
            KnownSkill("release", "How a release is made.", str(two / "release" / "SKILL.md")),
        )


@pytest.fixture
def skills(tmp_path: Path) -> Shelf:
    for folder, name, text in (
        ("one", "release", "---\nname: release\ndescription: old\n---\nold body\n"),
        ("one", "quiet", "---\nname: quiet\n---\nhush\n"),
        ("one", "nameless", "---\ndescription: named by its folder\n---\nx\n"),
        ("two", "release", f"---\nname: release\ndescription: >-\n  How a release\n  is made.\n---\n\n{BODY}"),
    ):
        place = tmp_path / folder / name
        place.mkdir(parents=True)
        (place / "SKILL.md").write_text(text)
    release = tmp_path / "two" / "release"
    (release / "docs").mkdir()
    (release / "docs" / "notes.md").write_text("ship it\n")
    (release / "release.sh").write_text("touch ran\n")
    (release / "release.sh").chmod(0o755)
    (release / "passwd").symlink_to("/etc/passwd")
    (tmp_path / "secret").write_text("secret")
    return Shelf((tmp_path / "one", tmp_path / "two"))


def load(skills: Shelf, workspace: Path, *hidden: Path, **arguments: object) -> ToolOutput:
    tool = skill_tool(skills, hides=frozenset(map(str, hidden)).__contains__)
    return asyncio.run(tool.run(json.dumps(arguments), Workspace(workspace)))


@pytest.mark.states("OC-48")
def test_the_list_shows_name_and_description_and_a_skill_without_one_is_only_loadable(skills: Shelf, tmp_path: Path) -> None:
    listed = skill_tool(skills, lists=True, hides=lambda _: False).declaration.description.partition("The skills:\n")[2]
    assert listed == "nameless: named by its folder\nrelease: How a release is made."
    assert load(skills, tmp_path, name="nameless").text.endswith("\n\nx")
    assert load(skills, tmp_path, name="quiet").text.endswith("\n\nhush")


def test_the_path_of_a_skill_loads_it_also_where_another_one_has_its_name(skills: Shelf, tmp_path: Path) -> None:
    one, _ = skills.folders
    old = load(skills, tmp_path, name=str(one / "release" / "SKILL.md"))
    assert old == ToolOutput(f"# Skill release\nFolder: {one / 'release'}\n\nold body")
    (one / "release" / "SKILL.md").unlink()
    assert load(skills, tmp_path, name=str(one / "release" / "SKILL.md")).error


@pytest.mark.states("CL-44")
def test_a_body_is_absent_until_it_is_asked_for_and_loading_it_runs_nothing(skills: Shelf, tmp_path: Path) -> None:
    declaration = skill_tool(skills, hides=lambda _: False).declaration
    listing = skill_tool(skills, lists=True, hides=lambda _: False).declaration.description
    assert BODY.strip() not in listing + declaration.description
    folder = skills.folders[1] / "release"
    assert load(skills, tmp_path, name="release") == ToolOutput(
        f"# Skill release\nFolder: {folder}\n\n{BODY.strip()}\n\nFiles, to be read with `file`:\ndocs/notes.md\nrelease.sh"
    )
    assert not any(path.name == "ran" for path in tmp_path.rglob("*"))


@pytest.mark.states("CL-44")
def test_a_loaded_body_is_never_masked_by_layer_one() -> None:
    session = work(classroom({}))
    say(session, "release it")
    for number, tool in enumerate(("skill", "bash", "bash", "bash", "bash")):
        use(session, f"c{number}", tool, "{}", "x" * 200)
    offline(session, run_policies(session, "before_call"))
    items = session.log.view.items
    tools = {item.content.call_id: item.content.tool for item in items if isinstance(item.content, ToolCall)}
    masked = [item.id for item in items if item.mask is not None]
    assert (list(tools.values()), masked) == (["skill", "bash", "bash", "bash", "bash"], ["7.0"])


@pytest.mark.states("OC-48")
def test_results_of_skills_are_none_of_those_that_clear_results_may_mask() -> None:
    session = work(classroom({}))
    say(session, "release it")
    use(session, "c1", "skill", "{}", "x" * 200)
    _, read = use(session, "c2", "Read", "{}", "x" * 200)
    assert [item.id for item in maskable(session.log.view)] == [f"{read.seq}.0"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": "../two/release"}, "there is no skill ../two/release; known are nameless, quiet, release"),
        ({"name": "release", "file": "../../secret"}, "the path leads out of the folder of the skill"),
        ({"name": "release", "file": "passwd"}, "the path leads out of the folder of the skill"),
        ({"name": "release", "file": "/etc/passwd"}, "the path leads out of the folder of the skill"),
        ({"name": "release", "file": "docs"}, "the skill has no file docs"),
    ],
)
def test_a_path_stays_inside_the_folder_of_the_skill(skills: Shelf, tmp_path: Path, arguments: dict[str, str], said: str) -> None:
    assert load(skills, tmp_path, **arguments) == ToolOutput(said, error=True)


def test_a_file_that_a_rule_restricts_is_not_read_by_any_name(skills: Shelf, tmp_path: Path) -> None:
    folder = skills.folders[1] / "release"
    (folder / ".env").write_text("KEY=1")
    (folder / "link").symlink_to(".env")
    for name in (".env", "docs/../.env", "link", str(folder / ".env")):
        assert load(skills, tmp_path, folder / ".env", name="release", file=name) == ToolOutput("a rule restricts reading .env", error=True)
    assert load(skills, tmp_path, folder / "SKILL.md", name="release") == ToolOutput("a rule restricts reading SKILL.md", error=True)


def test_another_file_of_a_skill_can_be_read_within_bounds(skills: Shelf, tmp_path: Path) -> None:
    assert load(skills, tmp_path, name="release", file="docs/notes.md") == ToolOutput("ship it\n")
    (skills.folders[1] / "release" / "long.md").write_text("x" * (LARGEST_SKILL + 5))
    assert load(skills, tmp_path, name="release", file="long.md").text.endswith("xxx\n[5 bytes left out]")
