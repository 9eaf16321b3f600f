"""The wheel and the sdist: what is in them, and that they work in an environment that has nothing else of this repository."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
# Building and a demo take longer than all other tests of this folder together.
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel, built from the sdist by the backend that is installed here."""
    folder = tmp_path_factory.mktemp("packages")
    build = [sys.executable, "-m", "hatchling", "build", "-d"]
    subprocess.run([*build, str(folder), "-t", "sdist"], cwd=ROOT, check=True, capture_output=True)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (source,) = (folder / "unpacked").iterdir()
    subprocess.run([*build, str(folder), "-t", "wheel"], cwd=source, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def python(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an empty environment with the wheel in it. Its dependencies come from the packages of this environment.

    They are on its path behind its own packages, because tests have no network; the project itself is not among them.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    (own,) = folder.glob("lib/python*/site-packages")
    shutil.unpack_archive(next(packages.glob("*.whl")), own, "zip")
    others = [Path(place) for place in sys.path if place.endswith("site-packages")]
    (own / "others.pth").write_text("\n".join(map(str, others)), encoding="utf-8")
    return folder / "bin" / "python"


def run(python: Path, *arguments: str, cwd: Path) -> str:
    """What a program prints in the environment of the wheel."""
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PAL_HOME")}
    variables |= {"PAL_HOME": str(cwd / "home"), "COLUMNS": "120"}
    done = subprocess.run([str(python), *arguments], cwd=cwd, env=variables, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-2_000:]
    return done.stdout


def test_the_wheel_has_the_package_with_its_texts_and_types_and_nothing_else(packages: Path) -> None:
    (path,) = packages.glob("*.whl")
    names = zipfile.ZipFile(path).namelist()
    assert path.name == f"palimpsest_agent-{VERSION}-py3-none-any.whl"
    assert {name.split("/")[0] for name in names} == {"palimpsest", "pal", f"palimpsest_agent-{VERSION}.dist-info"}
    files = (each for room in ("palimpsest", "pal") for each in (ROOT / "src" / room).rglob("*") if "__pycache__" not in each.parts)
    ours = {str(each.relative_to(ROOT / "src")) for each in files if each.is_file()}
    assert {name for name in names if name.startswith(("palimpsest/", "pal/"))} == ours
    assert "palimpsest/py.typed" in ours


def test_the_sdist_has_what_builds_and_tests_it_and_names_no_host_of_packages(packages: Path) -> None:
    (source,) = (packages / "unpacked").iterdir()
    for name in ("pyproject.toml", "run", "LICENSE", "README.md", "SECURITY.md", "requirements-dev.lock", "tests/docs/test_packages.py"):
        assert (source / name).is_file(), name
    assert not [each for each in source.glob("*.lock") if "://" in each.read_text(encoding="utf-8")]


def test_the_metadata_says_what_the_project_says(packages: Path) -> None:
    wheel = zipfile.ZipFile(next(packages.glob("*.whl")))
    metadata = wheel.read(f"palimpsest_agent-{VERSION}.dist-info/METADATA").decode()
    assert re.findall(r"^(Name|Version|Requires-Python|License-Expression): (.*)$", metadata, re.MULTILINE) == [
        ("Name", "palimpsest-agent"),
        ("Version", VERSION),
        ("License-Expression", "Apache-2.0"),
        ("Requires-Python", ">=3.11"),
    ]
    assert "pal = pal.cli.start:main" in wheel.read(f"palimpsest_agent-{VERSION}.dist-info/entry_points.txt").decode()


def test_the_programs_of_the_readme_run_from_the_wheel(python: Path, tmp_path: Path) -> None:
    where = run(python, "-c", "import palimpsest; print(palimpsest.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(python.parents[1])
    for program in re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL):
        promised = re.findall(r"^print\(.*#\s*(.+)$", program, re.MULTILINE)
        assert run(python, "-c", program, cwd=tmp_path).splitlines() == promised


def test_what_only_measures_is_not_in_the_wheel_and_says_where_it_is(python: Path, tmp_path: Path) -> None:
    for words in ("bench", "lab continue last", "memory eval", "replay last --agreement"):
        done = subprocess.run([str(python), "-m", "pal.cli", *words.split()], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert "checkout" in done.stderr


def test_the_demo_and_the_contracts_run_from_the_wheel(python: Path, tmp_path: Path) -> None:
    shown = run(python, "-m", "pal.cli", "demo", cwd=tmp_path)
    assert "palimpsest" in shown
    assert (tmp_path / "report.html").is_file()
    assert run(python, str(ROOT / "examples" / "own_profile.py"), cwd=tmp_path) == "mask-only keeps 7 laws\n"
    assert run(python, "-m", "pal.cli", "--version", cwd=tmp_path).split()[-1] == VERSION
