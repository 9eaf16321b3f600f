import os
import stat
from pathlib import Path
from threading import Thread

import pytest
from replay_samples import comparison

from pal.cli.report_files import require_report_path, write_report
from pal.replay.report import write_page
from palimpsest.core.errors import BadInput

PAGE = "".join(write_page(comparison(1, 30))).encode()


def test_a_page_takes_the_place_of_an_older_one_and_of_nothing_else(tmp_path: Path) -> None:
    place = tmp_path / "report.html"
    place.write_bytes(PAGE)
    require_report_path(place)

    assert write_report(comparison(1, 30), place) == len(PAGE)
    assert place.read_bytes() == PAGE
    assert list(tmp_path.iterdir()) == [place]

    place.write_text("<html>mine</html>", encoding="utf-8")
    with pytest.raises(BadInput, match="is not a report of a replay"):
        require_report_path(place)


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_not_followed_since_a_project_of_others_can_bring_one_of_the_usual_name(tmp_path: Path, there: bool) -> None:
    outside, link = tmp_path / "outside.html", tmp_path / "report.html"
    link.symlink_to(outside)
    if there:
        outside.write_bytes(PAGE)
    with pytest.raises(BadInput, match="symbolic link"):
        require_report_path(link)


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    require_report_path(pipe)

    write_report(comparison(1, 30), pipe)
    reader.join(10)

    assert read == [PAGE]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_place_that_cannot_be_written_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no such folder"):
        require_report_path(tmp_path / "gone" / "report.html")
    with pytest.raises(BadInput, match="this is a folder"):
        require_report_path(tmp_path)
    with pytest.raises(BadInput, match=r"this path cannot be written \(file name too long\); set another one with --html"):
        require_report_path(tmp_path / ("x" * 300))
    with pytest.raises(BadInput, match="the report cannot be written"):
        write_report(comparison(1, 30), tmp_path / ("x" * 300))
