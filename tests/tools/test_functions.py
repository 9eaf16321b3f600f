"""Tools from plain functions and from installed packages."""

import asyncio
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from importlib.metadata import distributions
from pathlib import Path
from typing import Annotated, Any

import pytest
from msgspec import Meta, Struct

from palimpsest.agent.tool import GROUP, LONGEST_RESULT, ToolError, ToolOutput, installed_tools, tool_from
from palimpsest.agent.workspace import Workspace
from palimpsest.core.errors import BadInput


class Point(Struct):
    x: int
    y: int = 0


def area(width: int, height: Annotated[int, Meta(ge=1, description="in metres")] = 2, *, points: tuple[Point, ...] = ()) -> dict[str, int]:
    """Compute the area of a field.

    Give the width in metres.
    """
    return {"area": width * height, "points": len(points)}


async def root(workspace: Workspace, name: str = "") -> str:
    """Say where the project is."""
    return f"{workspace.root}/{name}"


def call(function: Callable[..., Any], workspace: Path = Path("/"), /, **arguments: object) -> ToolOutput:
    return asyncio.run(tool_from(function).run(json.dumps(arguments), Workspace(workspace)))


def test_a_typed_function_becomes_a_tool_with_a_schema_and_its_docstring() -> None:
    tool = tool_from(area, kind="reads", parallel=True)
    assert (tool.name, tool.kind, tool.parallel) == ("area", "reads", True)
    assert tool.declaration.description == "Compute the area of a field.\n\nGive the width in metres."
    point = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}}, "required": ["x"]}
    assert json.loads(bytes(tool.declaration.schema)) == {
        "type": "object",
        "properties": {
            "width": {"type": "integer"},
            "height": {"type": "integer", "minimum": 1, "description": "in metres", "default": 2},
            "points": {"type": "array", "items": point, "default": []},
        },
        "required": ["width"],
        "additionalProperties": False,
    }
    assert call(area, width=3, points=[{"x": 1}]) == ToolOutput('{"area":6,"points":1}')


def test_arguments_are_checked_against_the_annotations() -> None:
    for arguments in ({"width": "3"}, {"width": 3, "height": 0}, {"width": 3, "depth": 1}, {}):
        output = call(area, **arguments)
        assert (output.error, output.text.startswith("The arguments of area are not valid: ")) == (True, True)


def test_an_async_function_gets_the_workspace_which_is_not_declared(tmp_path: Path) -> None:
    assert json.loads(bytes(tool_from(root).declaration.schema))["properties"] == {"name": {"type": "string", "default": ""}}
    assert call(root, tmp_path, name="x") == ToolOutput(f"{tmp_path}/x")


def test_what_a_function_returns_becomes_bounded_text() -> None:
    def long() -> str:
        """Long."""
        return "ä" * LONGEST_RESULT

    def whole() -> ToolOutput:
        """Whole."""
        return ToolOutput("x", exit=3)

    def nothing() -> None:
        """Nothing."""

    def odd() -> list[object]:
        """Odd."""
        return [Path("/a"), {1, 2}]

    assert call(long).text == "ä" * (LONGEST_RESULT // 2) + f"\n[{LONGEST_RESULT:,} bytes left out]"
    assert [call(whole), call(nothing), call(odd)] == [ToolOutput("x", exit=3), ToolOutput("[no output]"), ToolOutput('["/a",[1,2]]')]


def test_what_a_function_raises_is_an_error_result_of_one_line() -> None:
    def fails(how: str) -> str:
        """Fail."""
        raise {"value": ValueError("one\ntwo"), "tool": ToolError("said so"), "time": TimeoutError("slow")}[how]

    assert call(fails, how="value") == ToolOutput("fails failed: ValueError: one two", error=True)
    assert call(fails, how="tool") == ToolOutput("said so", error=True)
    assert call(fails, how="time") == ToolOutput("fails failed: TimeoutError: slow", error=True)
    assert call(fails, how="other") == ToolOutput("fails failed: KeyError: 'other'", error=True)


def test_a_function_that_takes_too_long_is_an_error() -> None:
    released = threading.Event()

    def waits() -> str:
        """Wait."""
        released.wait(30)
        return "late"

    async def run() -> ToolOutput:
        try:
            return await tool_from(waits, seconds=0.05).run("{}", Workspace(Path("/")))
        finally:
            released.set()

    assert asyncio.run(run()) == ToolOutput("waits took more than 0.05 s", error=True)


def no_docstring(a: int) -> int:
    return a


def no_annotation(a) -> int:  # type: ignore[no-untyped-def]  # noqa: ANN001 - what this test is about
    """Text."""
    return int(a)


def starred(*a: int) -> int:
    """Text."""
    return sum(a)


def unknown_type(a: "NoSuchType") -> int:  # type: ignore[name-defined]  # noqa: F821 - what this test is about
    """Text."""
    return int(bool(a))


def without_schema(a: threading.Lock) -> int:
    """Text."""
    return int(bool(a))


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (no_docstring, "the function no_docstring has no docstring; the model reads it to know what the tool does"),
        (no_annotation, "the parameter a of no_annotation has no annotation; the model needs its type"),
        (starred, "the parameter a of starred has no name for the model; use plain parameters"),
        (unknown_type, "the signature of unknown_type cannot be read: name 'NoSuchType' is not defined"),
        (without_schema, "the parameters of without_schema have types that no JSON schema can express: "),
        (lambda: "x", "a tool cannot be called '<lambda>'; give it a name of letters, digits and underscores"),
    ],
)
def test_a_function_of_which_no_tool_can_be_made_is_refused(function: Callable[..., Any], said: str) -> None:
    with pytest.raises(BadInput) as raised:
        tool_from(function)
    assert raised.value.message.startswith(said)


GOOD = '''
from palimpsest.agent.tool import tool_from

def weather(city: str) -> str:
    """Say what the weather is."""
    return f"rain in {city}"

def clock() -> str:
    """Say the time."""
    return "noon"

def read(path: str) -> str:
    """Pretend to read."""
    return "nothing"

BOTH = [clock, tool_from(read)]
NUMBER = 7
'''


def install(folder: Path, name: str, source: str, **entries: str) -> None:
    """A package with its metadata, as an installer leaves it."""
    (folder / f"{name}.py").write_text(source)
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\n" + "".join(f"{key} = {value}\n" for key, value in entries.items()))


def test_tools_of_packages_are_found_by_entry_point_and_a_broken_package_costs_only_its_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "pal_good", GOOD, weather="pal_good:weather", more="pal_good:BOTH", number="pal_good:NUMBER")
    install(tmp_path, "pal_broken", "raise RuntimeError('broken\\nfor good')", broken="pal_broken:tool")
    monkeypatch.syspath_prepend(tmp_path)
    found = installed_tools(taken=("read",))
    assert {tool.name for tool in found.tools} == {"weather", "clock"}
    weather = next(tool for tool in found.tools if tool.name == "weather")
    assert asyncio.run(weather.run('{"city": "Ulm"}', Workspace(tmp_path))) == ToolOutput("rain in Ulm")
    number = "BadInput: int is no tool; an entry point names a function, an AgentTool, or a list of them"
    assert found.problems == (
        "the tools of broken (pal_broken:tool) cannot be loaded: RuntimeError: broken for good",
        "the tool read of more (pal_good:BOTH) is left out: its name is taken",
        f"the tools of number (pal_good:NUMBER) cannot be loaded: {number}",
    )
    assert "pal_good" in sys.modules
    assert {each.name for each in distributions(path=[str(tmp_path)])} == {"pal_good", "pal_broken"}


def test_packages_are_looked_for_in_folders_archives_and_eggs(tmp_path: Path) -> None:
    folder, archive, egg = tmp_path / "folder", tmp_path / "archive.zip", tmp_path / "eggs" / "pal_egg-1.0-py3.11.egg"
    folder.mkdir()
    install(folder, "pal_plain", "def plain() -> str:\n    'Plain.'\n    return ''", plain="pal_plain:plain")
    install(tmp_path, "pal_zipped", "def zipped() -> str:\n    'Zipped.'\n    return ''", zipped="pal_zipped:zipped")
    with zipfile.ZipFile(archive, "w") as written:
        for path in (tmp_path / "pal_zipped.py", *(tmp_path / "pal_zipped-1.0.dist-info").iterdir()):
            written.write(path, path.relative_to(tmp_path))
    install(tmp_path, "pal_egg", "def egg() -> str:\n    'Egg.'\n    return ''", egg="pal_egg:egg")
    egg.mkdir(parents=True)
    (tmp_path / "pal_egg.py").rename(egg / "pal_egg.py")
    (tmp_path / "pal_egg-1.0.dist-info").rename(egg / "EGG-INFO")
    (egg / "EGG-INFO" / "METADATA").rename(egg / "EGG-INFO" / "PKG-INFO")
    script = "from palimpsest.agent.tool import installed_tools; print(*(tool.name for tool in installed_tools().tools))"

    def found(*places: Path) -> str:
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, places), *filter(None, [os.environ.get("PYTHONPATH")])])}
        return subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, env=variables, timeout=120).stdout

    assert found(folder) == "plain\n"
    assert found(archive) == "zipped\n"
    assert found(egg) == "egg\n"
    assert found(egg.parent, tmp_path / "missing") == "\n"
    assert found(folder, archive, egg) == "egg plain zipped\n"
