"""`pal hook`: runs as a hook of another agent; it prints what that agent's model is to see, and never fails or blocks."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import click

from pal.cli.opening import find_home
from pal.plugin.bounds import HOOK_BYTES
from pal.plugin.hooks import AGENTS, LIMIT, MOST_INPUT, Agent, HookAnswer, HookInput, answer, hook_input, is_after_compaction, transcript_of
from palimpsest.stores.home import FolderHome
from palimpsest.stores.memory_config import MemoryConfig

# Seconds of work and of waiting after which a hook ends without a word; agents wait for 4 s.
_CPU_SECONDS: Final = 0.4
_WALL_SECONDS: Final = 2.0
# After a compaction, which took the agent much longer, a hook reads a transcript: how much work depends on its lines and on the machine.
# If it runs out of time it reads once more, only the end of the transcript.
_EVIDENCE_SECONDS: Final = 1.5
_END_BYTES: Final = HOOK_BYTES // 8
_END_WALL_SECONDS: Final = 1.0


class _OutOfTimeError(BaseException):
    """The hook has used its time. No handler of ordinary errors may catch it."""


@click.command()
@click.argument("event", required=False, default="")
@click.option("--for", "agent", type=click.Choice(AGENTS), default="claude", help="The agent whose hook this is.")
@click.option("--limit", type=click.IntRange(1_000, 100_000), default=LIMIT, metavar="N", help="Most characters of the output.")
@click.option(
    "--seconds",
    type=click.FloatRange(0.001, 60),
    default=None,
    metavar="S",
    help=f"Seconds of processor time of the hook; by default {_CPU_SECONDS}, after a compaction {_EVIDENCE_SECONDS}.",
)
@click.option("--background", type=click.Choice(["read", "import"]), default=None, help="Work beside the agent: keep up with a transcript.")
@click.option("--transcript", type=click.Path(path_type=Path), default=None, metavar="FILE", help="The transcript of --background.")
def hook(*, event: str, agent: Agent, limit: int, seconds: float | None, background: str | None, transcript: Path | None) -> None:
    """Run as a hook: read its JSON from standard input, and print JSON, lines or nothing. The exit code is always 0."""
    # A hook that writes to standard error is shown as failed by some agents.
    with suppress(Exception, _OutOfTimeError):
        home = find_home()
        if not isinstance(home, FolderHome):
            return
        if background is not None and transcript is not None:
            _keep_up(home, transcript, imports=background == "import")
            return
        given = hook_input(sys.stdin.buffer.read(MOST_INPUT))
        if given is not None and event in ("", given.hook_event_name):
            _print_answer(_answered(given, home, agent, limit, seconds), given)


def _answered(given: HookInput, home: FolderHome, agent: Agent, limit: int, seconds: float | None) -> HookAnswer:
    """Return the answer; an empty one if it takes too long."""

    def settings() -> MemoryConfig:
        from pal.cli.settings import config_path  # only notes need it
        from palimpsest.stores.config_files import resolve

        return resolve(config_path(home), Path(given.cwd) if given.cwd else None, os.environ).config.memory

    if not is_after_compaction(given):
        return _in_time(lambda: answer(given, home, agent, settings, limit), seconds or _CPU_SECONDS, _WALL_SECONDS) or HookAnswer()
    found = _in_time(lambda: answer(given, home, agent, settings, limit), seconds or _EVIDENCE_SECONDS, _WALL_SECONDS)
    if found is None:
        found = _in_time(lambda: answer(given, home, agent, settings, limit, most=_END_BYTES), seconds or _CPU_SECONDS, _END_WALL_SECONDS)
    return found or HookAnswer()


def _in_time(work: Callable[[], HookAnswer], cpu_seconds: float, wall_seconds: float) -> HookAnswer | None:
    """Return what the work returns; `None` if it takes too long."""

    def stop(_number: int, _frame: object) -> None:
        raise _OutOfTimeError

    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, stop)
    signal.setitimer(signal.ITIMER_REAL, wall_seconds)
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    try:
        return work()
    except _OutOfTimeError:
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)


def _print_answer(said: HookAnswer, given: HookInput) -> None:
    path = transcript_of(given) if said.background else None
    # A hook reads a short transcript whole, so that nothing of it has to be kept.
    if path is not None and (said.background == "import" or path.stat().st_size > HOOK_BYTES):
        command = [sys.executable, "-m", "pal.cli", "hook", "--background", said.background, "--transcript", str(path)]
        nothing = subprocess.DEVNULL
        # In a session of its own, so that it outlives the agent, which does not wait for it.
        subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True, cwd="/")  # noqa: S603 - this program
    sys.stdout.write(said.text)
    sys.stdout.flush()


def _keep_up(home: FolderHome, transcript: Path, *, imports: bool) -> None:
    """Bring the digest of a transcript up to date, and import the session if that is wanted; one process does it at a time."""
    from pal.plugin.evidence import (
        digest_slot,  # a hook in the foreground may not need it
        refresh,
    )
    from palimpsest.stores.files import Lock

    os.nice(10)
    lock = Lock(home.folder / "hooks" / "background.lock")
    lock.acquire()
    try:
        refresh(digest_slot(home.folder, transcript), transcript, always=imports)
        if imports:
            _import(home, transcript)
    finally:
        lock.release()


def _import(home: FolderHome, transcript: Path) -> None:
    from pal.cli.imports import ImportRun  # only in the background
    from palimpsest.exchange.finding import find_sources
    from palimpsest.exchange.formats import FORMATS, format_named

    run = ImportRun(home)
    with run.stoppable():
        for source in find_sources(FORMATS, [transcript]).sources:
            run.take(format_named(source.format), source)
