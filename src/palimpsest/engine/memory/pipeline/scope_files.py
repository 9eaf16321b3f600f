"""The files of a scope that phase two compares, replaces and deletes: the state by digests, summaries of sessions, and generated files."""

import os
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from palimpsest.core.errors import StoreError
from palimpsest.engine.memory.pipeline.places import PipelinePlaces
from palimpsest.memory.changes import Tombstone
from palimpsest.memory.note import time_of
from palimpsest.memory.pipeline.phase_two import SkillFile
from palimpsest.memory.pipeline.rollout_file import RolloutFile, decode_rollout
from palimpsest.memory.pipeline.selection import RolloutUse, pruned, selected
from palimpsest.stores.files import store_errors, write_private
from palimpsest.stores.notes.folder import INDEX_FILE, SUMMARY_FILE, TOMBSTONES
from palimpsest.stores.notes.rollouts import RolloutRow

_SKILLS: Final = "skills"
_INPUT_FOLDERS: Final = ("notes", "rollouts")
_INPUT_FILES: Final = (TOMBSTONES, SUMMARY_FILE, INDEX_FILE)
_DAY_MS: Final = 86_400_000
_MOST_SKILLS: Final = 50


def state_of(folder: Path) -> Mapping[str, str]:
    """Return the digests of what a consolidation reads and writes, by path in the folder; logs, past versions and indexes do not count."""
    found: dict[str, str] = {}
    for path in (*(folder / name for name in _INPUT_FILES), *_files(folder, _INPUT_FOLDERS), *(folder / _SKILLS).glob("*/SKILL.md")):
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        with os.fdopen(handle, "rb") as file:
            found[str(path.relative_to(folder))] = sha256(file.read()).hexdigest()[:16]
    return found


def with_generated(read: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Return the state that was read, with the generated files as they are now; what is gone now is left out."""
    generated = {path: digest for path, digest in now.items() if path in (SUMMARY_FILE, INDEX_FILE) or path.startswith(_SKILLS)}
    return {path: digest for path, digest in read.items() if path in now} | generated


def encode_state(state: Mapping[str, str]) -> str:
    """Return a state as text, equal for equal states."""
    return msgspec.json.encode(dict(sorted(state.items()))).decode()


def decode_state(text: str) -> dict[str, str]:
    """Return the state that a text states; an empty one if it states none."""
    try:
        return msgspec.json.decode(text, type=dict[str, str]) if text else {}
    except msgspec.DecodeError:
        return {}


def changed_paths(baseline: str, state: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths that were added, changed or deleted since a baseline, sorted; all of them if it is none."""
    before = decode_state(baseline)
    return tuple(sorted(path for path in {*before, *state} if before.get(path) != state.get(path)))


def refuse_links(folder: Path) -> None:
    """Raise `StoreError` if there is a link in the folder of a scope: what is written through it would land elsewhere."""
    for place in (folder, folder / _SKILLS, folder / "rollouts", folder / "notes"):
        if place.is_symlink():
            raise StoreError("this is a link, so that nothing is written here; replace it by a folder", where=str(place))
    for path in (folder / SUMMARY_FILE, folder / INDEX_FILE, *_files(folder, ("rollouts",)), *(folder / _SKILLS).glob("*")):
        if path.is_symlink():
            raise StoreError("this is a link, so that it is not replaced; delete it", where=str(path))


class ScopeRollouts:
    """The summaries of a scope: brought in line with their sessions, rows and uses, and selected for a consolidation."""

    def __init__(self, places: PipelinePlaces, scope: str) -> None:
        self._places = places
        self._scope = scope
        self._files = places.rollouts(scope)

    def synchronise(self) -> int:
        """Bring files and rows in line, and delete what is stale. Returns how many files went.

        A file without a row is deleted, unless its session is being read right now.
        """
        places, texts = self._places, self._files.read()
        rows = {row.stem: row for row in places.rows.all(self._scope)}
        self._adopt(texts, rows)
        stale = {each.session for each in pruned(map(_use, rows.values()), places.home.clock.now(), self._unused_ms)}
        gone = [row for row in rows.values() if row.stem not in texts or row.session in stale]
        places.rows.drop(row.session for row in gone)
        kept = set(rows) - {row.stem for row in gone}
        orphans = [stem for stem, text in texts.items() if stem not in kept and not self._is_being_read(text)]
        for stem in orphans:
            self._files.delete(stem)
        return len(orphans)

    def selected(self) -> dict[str, RolloutFile]:
        """Return the summaries that a consolidation reads, by stem, in the order of their sessions; the others are deleted."""
        places, texts = self._places, self._files.read()
        rows = places.rows.all(self._scope)
        uses = [_use(row) for row in rows if row.stem in texts]
        chosen = selected(uses, places.home.clock.now(), self._unused_ms, places.config.most_sessions)
        decoded = {each.stem: decode_rollout(texts[each.stem]) for each in chosen}
        return {stem: file for stem, file in decoded.items() if file is not None}

    def drop_unselected(self, chosen: Mapping[str, RolloutFile]) -> None:
        """Delete the summaries beyond the most that a scope keeps; their sessions stay, and are not summarised again."""
        over = [row for row in self._places.rows.all(self._scope) if row.stem not in chosen]
        if len(over) + len(chosen) > self._places.config.most_sessions:
            self._places.rows.drop(row.session for row in over)
            for row in over:
                self._files.delete(row.stem)

    @property
    def _unused_ms(self) -> int:
        return int(self._places.config.unused_days * _DAY_MS)

    def _adopt(self, texts: Mapping[str, str], rows: dict[str, RolloutRow]) -> None:
        """Make rows for files that have none although no job made them, as after the database was deleted."""
        found: list[RolloutRow] = []
        for stem, text in texts.items():
            file = decode_rollout(text) if stem not in rows else None
            if file is not None and self._places.claims.row("session", file.session) is None:
                found.append(RolloutRow(file.session, self._scope, stem, file.updated, self._places.home.clock.now()))
        if found:
            self._places.rows.adopt(found)
            rows.update((row.stem, row) for row in self._places.rows.all(self._scope))

    def _is_being_read(self, text: str) -> bool:
        file = decode_rollout(text)
        row = None if file is None else self._places.claims.row("session", file.session)
        return row is not None and row.status == "running" and row.lease_until > self._places.home.clock.now()


class LostSessions(Struct, frozen=True):
    """What is kept of sessions that were deleted, and summaries that were made before something in them was forgotten.

    `facts` are the sessions with facts that no longer exist, and `scopes` all scopes that lose something.
    """

    deleted: tuple[RolloutRow, ...]
    outdated: tuple[RolloutRow, ...]
    facts: tuple[str, ...]
    scopes: frozenset[str]


def lost_sessions(places: PipelinePlaces) -> LostSessions:
    """Return what must be deleted before sessions are read."""
    rows, facts = places.rows.all(), places.rows.fact_sessions()
    sessions = {stat.session for stat in places.home.store.stats()} if rows or facts else set[str]()
    forgotten = _forgotten_sessions(places.all_tombstones())
    outdated = tuple(row for row in rows if row.session in sessions and row.made_at <= forgotten.get(row.session, -1))
    deleted = tuple(row for row in rows if row.session not in sessions)
    gone = tuple(session for session in facts if session not in sessions)
    scopes = frozenset(row.scope for row in (*deleted, *outdated)) | {facts[session] for session in gone}
    return LostSessions(deleted, outdated, gone, scopes)


def drop_lost(places: PipelinePlaces) -> None:
    """Delete what `lost_sessions` names. Sessions that still exist are read once more."""
    lost = lost_sessions(places)
    for row in (*lost.deleted, *lost.outdated):
        places.rollouts(row.scope).delete(row.stem)
    if lost.scopes:
        places.claims.reset("session", (*lost.facts, *(row.session for row in (*lost.deleted, *lost.outdated))))
        places.rows.drop(row.session for row in (*lost.deleted, *lost.outdated))
        places.rows.drop_facts(lost.facts)


def _forgotten_sessions(stones: Iterable[Tombstone]) -> dict[str, int]:
    """The last time at which something of a session was forgotten, in milliseconds, by session."""
    newest: dict[str, int] = {}
    for stone in stones:
        # Tombstones state whole seconds.
        at = int(time_of(stone.at).timestamp() * 1_000) + 999
        for session in {each.rpartition(":")[0] for each in stone.evidence}:
            newest[session] = max(at, newest.get(session, 0))
    return newest


def write_skills(folder: Path, skills: tuple[SkillFile, ...], known: Mapping[str, str]) -> None:
    """Replace the proposed skills of a scope. One that a person changed since the last consolidation (`known` digests) is left alone."""
    place = folder / _SKILLS
    wanted = {skill.name: skill.text for skill in skills}
    for name in _skill_names(folder):
        path = place / name / "SKILL.md"
        is_ours = known.get(f"{_SKILLS}/{name}/SKILL.md") == sha256(path.read_bytes()).hexdigest()[:16]
        if is_ours and name not in wanted:
            with store_errors(path, "delete"):
                path.unlink()
                path.parent.rmdir()
        elif not is_ours:
            wanted.pop(name, None)
    for name, text in wanted.items():
        with store_errors(place / name, "create"):
            (place / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        path = place / name / "SKILL.md"
        if not path.is_file() or path.read_bytes() != text.encode():
            write_private(path, text.encode())


def skill_names(folder: Path) -> tuple[str, ...]:
    """Return the names of the proposed skills of a scope."""
    return tuple(_skill_names(folder))


def delete_generated(folder: Path, known: Mapping[str, str]) -> None:
    """Delete what was generated, because nothing is left that it could be made of."""
    write_skills(folder, (), known)
    for name in (SUMMARY_FILE, INDEX_FILE):
        with store_errors(folder / name, "delete"):
            (folder / name).unlink(missing_ok=True)


def _skill_names(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in (folder / _SKILLS).glob("*/SKILL.md") if path.is_file())[:_MOST_SKILLS]


def _files(folder: Path, names: tuple[str, ...]) -> Iterator[Path]:
    for name in names:
        yield from sorted((folder / name).glob("*.md"))


def _use(row: RolloutRow) -> RolloutUse:
    return RolloutUse(
        row.session, row.stem, row.source_at, row.made_at, row.uses, row.last_used, is_selected=row.selected_at == row.source_at
    )
