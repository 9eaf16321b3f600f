"""`pal jobs`: what runs beside the turns of a session, how far it is, and what it cost."""

import pytest
from pal_runs import BEGAN, SMALL, Pal, small

from palimpsest.core.events import CallStarted, JobRan, ModelReplied, ProfileChanged, Usage
from palimpsest.core.log import Log
from palimpsest.stores.in_memory import FixedClock

NEVER = {
    "is_on": True,
    "cursor": -1,
    "lag": 14,
    "at": None,
    "status": "",
    "why": "",
    "took_ms": 0,
    "failures": 0,
    "calls": 0,
    "tokens": 0,
    "cost_usd": 0.0,
}


@pytest.fixture
def ran(pal: Pal) -> Pal:
    """A session of fourteen events in which a job that is unknown here has called a model, and failed later."""
    small(pal.home)
    with Log.open(pal.home.store, SMALL, FixedClock(BEGAN + 60_000, 1_000), write=True) as log:
        started = log.append(CallStarted("claude-sonnet-4-5", "anthropic", purpose="job:extract"))
        log.append(ModelReplied((), started.seq, Usage(input=1_000, output=100), model="claude-sonnet-4-5", purpose="job:extract"))
        log.append(JobRan("extract", 9, took_ms=40))
        log.append(JobRan("extract", 9, "failed", "no such note", took_ms=7))
    return pal


def test_jobs_are_listed_as_programs_read_them(ran: Pal) -> None:
    extract = {
        "job": "extract",
        "is_on": False,
        "cursor": 9,
        "lag": 4,
        "at": "2031-04-01T09:01:03.000Z",
        "status": "failed",
        "why": "no such note",
        "took_ms": 7,
        "failures": 1,
        "calls": 1,
        "tokens": 1_100,
        "cost_usd": 1_000 * 3 / 1e6 + 100 * 15 / 1e6,
    }
    assert ran.json("jobs", SMALL) == [{"job": "titles", **NEVER}, {"job": "index", **NEVER}, extract]


def test_jobs_are_listed_as_people_read_them_with_the_reason_below(ran: Pal) -> None:
    lines = ran("jobs").stdout.splitlines()
    assert lines[0].split() == ["job", "cursor", "lag", "last", "run", "status", "calls", "cost"]
    assert [line.split()[0] for line in lines[1:4]] == ["titles", "index", "extract"]
    assert lines[3].split()[1:4] == ["(off)", "9", "4"]
    assert lines[4].strip() == "no such note"


def test_the_jobs_of_memory_are_listed_as_the_profile_and_the_settings_turn_them_on(pal: Pal) -> None:
    small(pal.home)
    with Log.open(pal.home.store, SMALL, FixedClock(BEGAN + 60_000, 1_000), write=True) as log:
        log.append(ProfileChanged("claude-code"))
    (pal.home.folder / "config.toml").write_text('[memory]\njobs = "auto"\n')
    # The notes of this profile are files of the project, which the model itself writes and nothing counts.
    names = ["extract_notes", "running_notes", "past_sessions"]
    assert [row["job"] for row in pal.json("jobs", SMALL)] == ["titles", "index", *names]
    (pal.home.folder / "config.toml").unlink()
    assert [row["job"] for row in pal.json("jobs", SMALL)] == ["titles", "index", "past_sessions"]
    (pal.home.folder / "config.toml").write_text("[memory]\nuse = false\n")
    assert [row["job"] for row in pal.json("jobs", SMALL)] == ["titles", "index"]


def test_the_settings_turn_jobs_off(pal: Pal) -> None:
    small(pal.home)
    (pal.home.folder / "config.toml").write_text('[jobs]\ntitles = "off"\nindex = "off"\n')
    assert pal.json("jobs", SMALL) == []
    assert pal("jobs", SMALL).stdout == "no jobs: all of them are off, and none ran in this session\n"
