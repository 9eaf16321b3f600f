import resource
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from tiny_format import BEGAN, Tiny, reply, source_of, user, written

from pal.cli.imports import ImportRow, ImportRun, total_of
from palimpsest.core.errors import StoreError
from palimpsest.core.log import Log
from palimpsest.core.ports import Blobs
from palimpsest.core.verify import verify
from palimpsest.exchange.importing import Counts
from palimpsest.exchange.transcript import ReadOutput, ReadPosition, ReadProblem, TranscriptSource
from palimpsest.stores.home import FolderHome
from palimpsest.stores.in_memory import FixedClock

TOKEN = "ghp_" + "a1B2" * 9
TALK = (user("u1", f"use {TOKEN}"), reply("r1", "I look.", calls=["c1"]), {"id": "t1", "kind": "result", "call": "c1", "text": "ten"})


def bring(home: Path, *paths: Path, form: Tiny | None = None, redact: bool = False, dry: bool = False) -> ImportRun:
    run = ImportRun(FolderHome(home, FixedClock(BEGAN)), redact=redact, dry=dry)
    with run.stoppable():
        for path in paths:
            if not run.stopped:
                run.take(form or Tiny(), source_of(path))
    return run


def digests(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*")) if path.is_file()}


@dataclass(frozen=True)
class _Told(Tiny):
    """A tiny format that can be asked how much it was made to read."""

    reads: tuple[list[str], ...] = ([],)

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        self.reads[0].append(f"{source.session} from {0 if position is None else position.offset}")
        return super().read(source, blobs, position)


def test_a_second_run_reads_only_what_is_new(tmp_path: Path) -> None:
    one, two = written(tmp_path / "a.tiny", *TALK), written(tmp_path / "b.tiny", TALK[0])
    form = _Told(reads=([],))
    size = two.stat().st_size

    first = bring(tmp_path / "home", one, two, form=form)
    second = bring(tmp_path / "home", one, two, form=form)
    written(two, TALK[1])
    third = bring(tmp_path / "home", one, two, form=form)

    assert form.reads[0] == ["a from 0", "b from 0", f"b from {size}"]
    assert [row.counts for row in first.rows] == [Counts(5, 1, 1, 1), Counts(2, 1)]
    assert [row.counts for row in second.rows] == [Counts(), Counts()]
    assert [row.counts for row in third.rows] == [Counts(), Counts(2, 0, 1)]
    assert total_of(first.rows) == Counts(7, 2, 1, 1)
    assert total_of([]) == Counts()


def test_without_its_memory_a_second_run_changes_nothing_and_finds_the_secrets_again(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tiny", *TALK)
    home = tmp_path / "home"
    bring(home, path)
    before = digests(home)
    (home / "imports.json").unlink()

    again = bring(home, path)

    assert again.rows == [ImportRow(str(path), "tiny", "tiny-a", Counts())]
    assert digests(home) == before


def test_a_deleted_session_is_imported_again(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tiny", *TALK)
    bring(tmp_path / "home", path)
    (tmp_path / "home" / "sessions" / "tiny-a.jsonl").unlink()
    (tmp_path / "home" / "sessions" / "tiny-a.checkpoint").unlink()

    assert bring(tmp_path / "home", path).rows[0].counts == Counts(5, 1, 1, 1)


def test_secrets_are_counted_added_up_and_replaced_on_demand(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tiny", *TALK)
    bring(tmp_path / "home", path)
    written(path, user("u2", "and AKIA" + "ABCD1234" * 2))
    bring(tmp_path / "home", path)
    redacted = bring(tmp_path / "other", path, redact=True)

    kept = msgspec.json.decode((tmp_path / "home" / "imports.json").read_bytes())["seen"]
    assert [each["secrets"] for each in kept] == [{"aws": 1, "github": 1}]
    assert redacted.secrets == {"tiny-a": {}}
    assert TOKEN.encode() not in (tmp_path / "other" / "sessions" / "tiny-a.jsonl").read_bytes()


def test_a_dry_run_counts_what_would_be_new_and_writes_nothing(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tiny", *TALK)

    dry = bring(tmp_path / "home", path, dry=True)
    assert dry.rows == [ImportRow(str(path), "tiny", "tiny-a", Counts(5, 1, 1, 1))]
    assert dry.secrets == {"tiny-a": {"github": 1}}
    assert not (tmp_path / "home").exists()

    bring(tmp_path / "home", path)
    written(path, user("u2", "more"))
    before = digests(tmp_path)
    assert bring(tmp_path / "home", path, dry=True).rows[0].counts == Counts(1, 1)
    assert digests(tmp_path) == before


def test_a_session_that_another_writes_is_passed_over_with_its_reason(tmp_path: Path) -> None:
    one, two = written(tmp_path / "a.tiny", *TALK), written(tmp_path / "b.tiny", *TALK)
    bring(tmp_path / "home", one)
    written(one, user("u2", "more"))
    home = FolderHome(tmp_path / "home", FixedClock(BEGAN))
    with Log.open(home.store, "tiny-a", home.clock, write=True):
        run = bring(tmp_path / "home", one, two)

    assert [bad.where for bad in run.skipped] == [str(one)]
    assert run.skipped[0].why.startswith("the session is being written by process ")
    assert [row.session for row in run.rows] == ["tiny-b"]
    assert bring(tmp_path / "home", one, two).rows[0].counts == Counts(1, 1)


def test_a_file_without_a_session_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "a.tiny"
    path.write_bytes(b"garbage\n")

    run = bring(tmp_path / "home", path, form=_Silent())

    assert run.skipped == [ReadProblem(str(path), "this is nothing (and 1 more)")]
    assert run.rows == []


class _Silent(Tiny):
    """Finds nothing but bad lines."""

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        yield ReadProblem(f"{source.path}:1", "this is nothing")
        yield ReadProblem(f"{source.path}:2", "nor is this")


class _Interrupted(Tiny):
    """Somebody presses Ctrl-C after the second line."""

    def read(self, source: TranscriptSource, blobs: Blobs, position: ReadPosition | None = None) -> Iterator[ReadOutput]:
        for number, reported in enumerate(super().read(source, blobs, position)):
            if number == 2:
                signal.raise_signal(signal.SIGINT)
            yield reported


def test_an_interrupt_leaves_what_was_imported_valid_and_the_next_run_goes_on(tmp_path: Path) -> None:
    paths = [written(tmp_path / f"{name}.tiny", *TALK) for name in "abc"]
    home = FolderHome(tmp_path / "home", FixedClock(BEGAN))
    bring(tmp_path / "home", paths[0])

    run = bring(tmp_path / "home", *paths, form=_Interrupted())

    assert run.stopped
    assert [(row.session, row.counts.events) for row in run.rows] == [("tiny-a", 0), ("tiny-b", 2)]
    assert verify(home.store, "tiny-b", home.blobs).ok
    assert [row.counts.events for row in bring(tmp_path / "home", *paths).rows] == [0, 3, 5]


def test_a_second_interrupt_ends_at_once(tmp_path: Path) -> None:
    run = ImportRun(FolderHome(tmp_path / "home"))
    with run.stoppable():
        signal.raise_signal(signal.SIGINT)
        assert run.stopped
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_full_disk_stops_with_nothing_half_written(tmp_path: Path) -> None:
    small, large = written(tmp_path / "a.tiny", *TALK), written(tmp_path / "b.tiny", *TALK, user("u2", "x" * 9_000))
    home = FolderHome(tmp_path / "home", FixedClock(BEGAN))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    earlier = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, hard))
    try:
        with pytest.raises(StoreError, match=r"tiny-b.jsonl: cannot write to it: "):
            bring(tmp_path / "home", small, large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, earlier)

    assert verify(home.store, "tiny-a", home.blobs).findings == ()
    assert [each.name for each in (tmp_path / "home" / "sessions").glob("*.jsonl")] == ["tiny-a.jsonl"]
    assert [row.counts.events for row in bring(tmp_path / "home", small, large).rows] == [0, 6]


def test_progress_is_reported_within_a_long_file_and_after_each(tmp_path: Path) -> None:
    long = written(tmp_path / "a.tiny", *(user(f"u{number}", "hello") for number in range(600)))
    heard: list[tuple[int, int]] = []
    run = ImportRun(FolderHome(tmp_path / "home"), on_progress=lambda files, events: heard.append((files, events)))
    run.take(Tiny(), source_of(long))

    assert heard == [(0, 256), (0, 512), (1, 602)]
