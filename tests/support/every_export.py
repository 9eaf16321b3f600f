"""Exports sessions to Claude Code and Codex, reads the files back, and says where a model would be shown something else; run as a program."""

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from corpus import CORPUS
from msgspec import Struct
from readings import Home

from palimpsest.core.log import Log
from palimpsest.core.policy import run_steps
from palimpsest.core.view import View
from palimpsest.engine.flow import answer_without_model
from palimpsest.engine.moments import look
from palimpsest.engine.session import Environment, Session
from palimpsest.foreign.claude import ClaudeFormat
from palimpsest.foreign.claude_writer import claude_session, write_claude
from palimpsest.foreign.codex import CodexFormat, write_codex
from palimpsest.foreign.finding import find_sources
from palimpsest.foreign.formats import FORMATS, format_named
from palimpsest.foreign.importing import import_session
from palimpsest.foreign.parts import wire_of
from palimpsest.foreign.transcript import Source
from palimpsest.profiles.named import profile
from palimpsest.stores.ephemeral import FixedClock
from palimpsest.wire.cards import ModelCard, recorded_card
from palimpsest.wire.encode import encode
from palimpsest.wire.request import Params

Target = Literal["claude", "codex"]
TARGETS: tuple[Target, ...] = ("claude", "codex")
_USUAL = {"anthropic": "claude-sonnet-4-5", "responses": "gpt-5.5"}
_WIRES = {"claude": "anthropic", "codex": "responses"}
# Cache breakpoints belong to a request and not to a session.
_PARAMS = Params(mark_rule="none")
_AT = 1_800_000_000_000
_SHOWN = 12


class Trip(Struct, frozen=True):
    """A session on its way to another program and back: whether it was folded before, and where the two requests differ."""

    session: str
    target: Target
    folded: bool
    items: int
    differences: tuple[str, ...]


def sessions_below(path: Path) -> list[Source]:
    """The sessions at a path, without those of sub-agents: no program goes on from them."""
    return [source for source in find_sources(FORMATS, [path]).sources if not source.parent]


def trips(source: Source) -> Iterator[Trip]:
    """Every way of a session: to each program, as it is and folded without a model, if there is anything to fold."""
    home = Home()
    done = import_session(format_named(source.format), source, home.store, home.blobs, FixedClock(_AT))
    with Log.open(home.store, done.session, FixedClock(_AT), write=True) as log:
        yield from (_trip(log, home, target, folded=False) for target in TARGETS)
        if _fold(log, home):
            yield from (_trip(log, home, target, folded=True) for target in TARGETS)


def _fold(log: Log, home: Home) -> bool:
    """Fold as `pal compact --no-model` does; whether there was anything to fold."""
    environment = Environment(home.store, home.blobs, FixedClock(_AT, 1_000))
    session = Session(log, profile("palimpsest", {}), recorded_card(log.view.model or _USUAL["anthropic"]), environment)
    return bool(run_steps(look(session, "asked"), lambda want: answer_without_model(session, want)).edited)


def _trip(log: Log, home: Home, target: Target, *, folded: bool) -> Trip:
    model = _model(log.view.model, target)
    ours = shown(log.view, model, home)
    theirs = _read_back(log, home, target, model)
    return Trip(log.session, target, folded, len(ours), tuple(differences(ours, theirs)))


def _model(name: str, target: Target) -> ModelCard:
    """The model of the session if the program can ask it, so that what it sealed is compared too."""
    wire = _WIRES[target]
    found = recorded_card(name) if wire_of(name) == wire else None
    return found if found is not None and found.wire == wire else recorded_card(_USUAL[wire])


def _read_back(log: Log, home: Home, target: Target, model: ModelCard) -> list[Any]:
    lines = write_claude(log, home.blobs) if target == "claude" else write_codex(log, home.blobs)
    name = f"{claude_session(log)}.jsonl" if target == "claude" else "rollout-written.jsonl"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, Path(name).name)
        path.write_bytes(b"".join(lines))
        # A file that was written a moment ago is taken to grow.
        os.utime(path, (1, 1))
        other = Home()
        done = other.take(ClaudeFormat() if target == "claude" else CodexFormat(), path)[0]
    if done.bad:
        return [f"not read: {each.where}: {each.why}" for each in done.bad]
    with Log.open(other.store, done.session, FixedClock(_AT)) as back:
        return shown(back.view, model, other)


def shown(view: View, model: ModelCard, home: Home) -> list[Any]:
    """What a model is shown of a view, parsed and in order."""
    body = msgspec.json.decode(encode(view, model, (), _PARAMS, home.blobs.get).body)
    if model.wire == "responses":
        return list(body["input"])
    return [{"role": message["role"], **block} for message in body["messages"] for block in message["content"]]


def differences(ours: Sequence[Any], theirs: Sequence[Any]) -> Iterator[str]:
    """Where two requests differ, one line a place; nothing if they say the same."""
    if list(ours) == list(theirs):
        return
    for place in range(max(len(ours), len(theirs))):
        one = ours[place] if place < len(ours) else None
        two = theirs[place] if place < len(theirs) else None
        if one != two:
            yield f"{place}: {_short(one)} became {_short(two)}"


def _short(value: object) -> str:
    return msgspec.json.encode(value).decode()[:160]


def main(words: Sequence[str]) -> int:
    """Send the sessions below some paths, or the whole corpus, there and back."""
    began = time.monotonic()
    found = [source for path in [Path(word) for word in words] or [CORPUS] for source in sessions_below(path)]
    count = wrong = 0
    for number, source in enumerate(found, 1):
        for trip in trips(source):
            count += 1
            wrong += bool(trip.differences)
            how = "folded" if trip.folded else "whole"
            print(f"{number}/{len(found)} {trip.session} {how} to {trip.target}: {trip.items} items, {len(trip.differences)} differences", flush=True)
            for line in trip.differences[:_SHOWN]:
                print(f"    {line}", flush=True)
    print(f"{len(found)} sessions, {count} exports, {wrong} of them different, {time.monotonic() - began:.0f} seconds")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
