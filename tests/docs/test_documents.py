import ast
import re
import tomllib
from pathlib import Path

import pytest
from every_case import every_case

from pal.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
README, CHINESE = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh-CN.md"))
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")

# Where a path of this repository can begin.
_TOP = frozenset({"src", "tests", "examples", *(path.name for path in (ROOT / "src" / "palimpsest").iterdir() if path.is_dir())})


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _blocks(text: str, language: str) -> list[str]:
    return [code for spoken, code in _BLOCK.findall(text) if spoken == language]


def _prose(text: str) -> str:
    return _BLOCK.sub("", text)


def _anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", _prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if "```python\n" in path.read_text(encoding="utf-8")], ids=_name)
def test_the_python_of_a_document_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, object] = {"__name__": "document"}
    for code in _blocks(path.read_text(encoding="utf-8"), "python"):
        exec(compile(code, _name(path), "exec"), namespace)  # noqa: S102 - our own documents
        promised = [ast.literal_eval(said) for said in re.findall(r"^print\(.*#\s*(.+)$", code, re.MULTILINE)]
        assert capsys.readouterr().out.splitlines() == [str(value) for value in promised]


def test_the_documents_with_programs_are_among_those_that_run() -> None:
    assert _blocks(README, "python")
    assert _blocks((ROOT / "docs" / "adding.md").read_text(encoding="utf-8"), "python")


@every_case("path", DOCUMENTS)
def test_every_relative_link_of_a_document_leads_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for link in _LINK.findall(_prose(text)):
        if link.startswith("https://"):
            continue
        target, _, anchor = link.partition("#")
        found = (path.parent / target).resolve() if target else path
        assert found.exists(), f"{_name(path)} links to {link}"
        assert ROOT in found.parents, f"{_name(path)} links out of the repository: {link}"
        if anchor:
            assert anchor in _anchors(found.read_text(encoding="utf-8")), f"{_name(path)} links to {link}"


def test_the_first_screen_of_the_readme_has_the_picture_the_program_the_two_commands_and_the_lines_for_two_clients() -> None:
    screen = "\n".join(README.splitlines()[:48])
    (clients,) = _blocks(screen, "py")
    assert len([line for line in clients.splitlines() if line]) == 3 + 3
    assert "context you can audit, undo and price" in screen
    assert "](docs/pictures/session.svg)" in screen
    (program,) = _blocks(screen, "python")
    assert len([line for line in program.splitlines() if line and not re.match(r"import|from", line)]) <= 10
    assert re.findall(r"^\./run \w+(?: \w+)?", screen, re.MULTILINE) == ["./run pal demo", "./run pytest"]
    assert "](docs/picture.svg)" in README.partition("\n## ")[0]


def test_the_agent_as_a_library_is_a_program_of_at_most_15_lines() -> None:
    (program,) = _blocks(README.partition("\n## The agent\n")[2].partition("\n## ")[0], "python")
    assert len([line for line in program.splitlines() if line.strip()]) <= 15


@pytest.mark.parametrize("name", ["README.md", "docs/architecture.md", "docs/adding.md"])
def test_every_file_that_a_document_names_exists(name: str) -> None:
    text = _prose((ROOT / name).read_text(encoding="utf-8"))
    named = [path for path in re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", text) if path.split("/")[0] in _TOP and "NAME" not in path]
    assert named
    assert [path for path in named if not any((folder / path).exists() for folder in (ROOT, ROOT / "src" / "palimpsest"))] == []


def test_the_readme_leaves_a_place_for_the_bars() -> None:
    assert re.search(r"^<!-- bench begins -->\n.*^<!-- bench ends -->$", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", [README, CHINESE], ids=["English", "Chinese"])
def test_the_readme_has_a_row_for_every_command_and_for_no_other(text: str) -> None:
    assert re.findall(r"^\| `pal ([\w-]+)", text, re.MULTILINE) == list(COMMANDS)


def test_the_chinese_readme_has_the_same_programs_and_the_same_sections() -> None:
    assert _BLOCK.findall(CHINESE) == _BLOCK.findall(README)
    levels = [re.findall(r"^(#+) ", _prose(text), re.MULTILINE) for text in (README, CHINESE)]
    assert levels[0] == levels[1]
    links = [{link for link in _LINK.findall(_prose(text)) if "README" not in link} for text in (README, CHINESE)]
    assert links[0] == links[1]


def test_the_newest_section_of_the_changelog_is_that_of_the_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    sections = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert next(name for name in sections if name != "Unreleased") == version
