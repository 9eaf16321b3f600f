import re
import shutil
import subprocess
from pathlib import Path

import pytest
from html_pages import Page
from replay_samples import comparison

from pal.replay.report import write_page

CHROMIUM = next((found for name in ("chromium", "chromium-browser", "google-chrome", "chrome") if (found := shutil.which(name))), None)


def browse(folder: Path, *options: str) -> str:
    """What a real browser makes of the page, without a window and without a network."""
    assert CHROMIUM is not None
    place = folder / "report.html"
    place.write_text("".join(write_page(comparison())), encoding="utf-8")
    quiet = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--proxy-server=127.0.0.1:9")
    command = (CHROMIUM, *quiet, f"--user-data-dir={folder / 'browser'}", *options, place.as_uri())
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium on this machine")
def test_a_real_browser_reads_the_page_as_it_was_meant_and_prints_it(tmp_path: Path) -> None:
    meant = Page("".join(write_page(comparison())))

    read = Page(browse(tmp_path, "--dump-dom"))
    browse(tmp_path, "--no-pdf-header-footer", f"--print-to-pdf={tmp_path / 'report.pdf'}")
    printed = (tmp_path / "report.pdf").read_bytes()

    # A browser that has to mend something adds, moves or drops elements.
    assert (read.seen, read.names, read.links, read.looks) == (meant.seen, meant.names, meant.links, meant.looks)
    assert "".join(read.text.split()) == "".join(meant.text.split())
    assert printed.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type ?/Page\b", printed)) <= 6
