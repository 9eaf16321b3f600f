"""The documentation as a site, and its page that is made of the docstrings."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

import palimpsest

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    made = subprocess.run([sys.executable, SUPPORT / "site.py", folder], capture_output=True, text=True, check=True)
    assert made.stdout == f"{len(_documents())} pages in {folder}\n"
    return folder


def _documents() -> list[Path]:
    return [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "docs" / "tour.md", ROOT / "docs" / "api.md"]


def test_the_tour_names_every_module_and_the_reference_every_exported_name() -> None:
    tour, reference = (
        subprocess.run([sys.executable, SUPPORT / name], capture_output=True, text=True, check=True).stdout
        for name in ("tour.py", "api.py")
    )
    modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py") if path.name != "__init__.py"}
    assert set(re.findall(r"^\| `([^`]+)` \| [A-Z`].*\. \|$", tour, re.MULTILINE)) == modules
    assert set(re.findall(r"^### (\w+)$", reference, re.MULTILINE)) >= set(palimpsest.__all__)


def test_every_document_is_a_page_that_each_page_leads_to(site: Path) -> None:
    pages = {str(path.relative_to(site)) for path in site.rglob("*.html")}
    assert pages == {
        "index.html" if path.name == "README.md" else str(path.relative_to(ROOT).with_suffix(".html")) for path in _documents()
    }
    for page in sorted(pages):
        listed = re.findall(r'href="([^"]*)"', (site / page).read_text(encoding="utf-8").partition("<main>")[0])
        assert {str((site / page).parent.joinpath(link).resolve().relative_to(site.resolve())) for link in listed} == pages


def test_every_link_of_the_site_leads_to_a_file_and_an_anchor_of_it(site: Path) -> None:
    broken = []
    for page in sorted(site.rglob("*.html")):
        for link in re.findall(r'(?:href|src)="([^"]*)"', page.read_text(encoding="utf-8")):
            if link.startswith("https://"):
                continue
            target, _, anchor = unquote(link).partition("#")
            found = page.parent / target if target else page
            if not found.exists() or (anchor and f'id="{anchor}"' not in found.read_text(encoding="utf-8")):
                broken.append(f"{page.relative_to(site)}: {link}")
    assert broken == []


def test_the_site_has_no_scripts_and_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8").lower()
        assert not re.search(
            r"<(?:script|iframe|link)\b|@import|\bsrc=\"https?:", re.sub(r"<(pre|code)>.*?</\1>", "", text, flags=re.DOTALL)
        )
