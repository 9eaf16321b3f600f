"""A session of any origin as a rollout that Codex goes on from; one that came from Codex keeps its lines as they were."""

from collections.abc import Iterator
from functools import partial

import msgspec

from palimpsest.core.events import Event, ForeignNoted, ModelReplied, SessionOpened, TurnEnded, Usage, UserSaid
from palimpsest.core.items import Content, Item
from palimpsest.core.log.log import Log
from palimpsest.core.pairs import pairs_of
from palimpsest.core.ports import Blobs
from palimpsest.foreign.codex.fresh import Fresh, Variant, stamp, thread_of
from palimpsest.foreign.codex.lines import contents_of, lines_back
from palimpsest.foreign.codex.meta import NAME, envelope
from palimpsest.foreign.file_ids import FileIds, halves_of
from palimpsest.foreign.reading.importing import foreign_of
from palimpsest.wire.encoding.repair import valid_call_id
from palimpsest.wire.json_reading import table_at


def rollout_name(log: Log) -> str:
    """The file name, with its folders, that Codex looks for a session under, below `sessions`."""
    at = stamp(log.reader.opened.at)
    day, _, clock = at.partition("T")
    return f"{day.replace('-', '/')}/rollout-{day}T{clock[:8].replace(':', '-')}-{thread_id(log)}.jsonl"


def thread_id(log: Log) -> str:
    """The id that the session has, or would have, in Codex."""
    opened = log.opened
    if opened.origin == NAME and opened.base is None and opened.meta.get("id"):
        return opened.meta["id"]
    return thread_of(log.session, log.reader.opened.at)


def write_codex(log: Log, blobs: Blobs, variant: Variant = "codex", *, alone: bool = False, cwd: str = "") -> Iterator[bytes]:
    """The lines of a rollout, each with its newline; `alone` leaves no other rollout to be read before it.

    `cwd` is the folder to go on in, which then stands on every line that names one; without it each keeps its own.
    """
    if log.opened.origin == NAME and log.opened.base is None and not alone:
        yield from _returned(log, blobs, variant, cwd)
        return
    ids = FileIds(halves_of(log.reader.along(log.path)), _call_id)
    fresh = Fresh(log, blobs, variant, ids, thread=thread_id(log), ordinal=0 if variant == "codex-0.166" else None, cwd=cwd)
    yield fresh.opening(log.reader.opened, log.opened)
    for event in log.reader.along(log.path):
        if not isinstance(event.body, SessionOpened):
            yield from fresh.take(event)
    yield from fresh.ending(log.tip)


def _returned(log: Log, blobs: Blobs, variant: Variant, cwd: str) -> Iterator[bytes]:
    """A session that came from Codex: its own lines in their order, then what happened here since."""
    kept: dict[int, bytes] = {}
    since: list[Event] = []
    halves: list[Item] = []
    in_turn, said, paid = False, UserSaid(()), list[Usage]()
    for event in log.reader.run(log.reader.first, log.tip):
        found = foreign_of(event.body)
        if found is None:
            since.append(event)
            continue
        if isinstance(event.body, UserSaid):
            in_turn, said = True, event.body
        elif isinstance(event.body, ModelReplied):
            paid.append(event.body.usage)
        halves += halves_of((event,))
        in_turn = in_turn and not isinstance(event.body, TurnEnded)
        # Lines that mean nothing to a model repeat the newest words of the user.
        body = said if isinstance(event.body, ForeignNoted) else event.body
        kept.update(lines_back(found.line, partial(contents_of, body, partial(_content, log)), blobs))
    for number in sorted(kept):
        yield (_moved(kept[number], cwd) if cwd else kept[number]) + b"\n"
    last = msgspec.json.decode(kept[max(kept)]) if kept else {}
    ordinal = last.get("ordinal") if isinstance(last, dict) else None
    dialect: Variant = "codex-0.166" if isinstance(ordinal, int) else variant
    ordinal = ordinal + 1 if isinstance(ordinal, int) else None
    # A call that is still open has a line that its result must fit; what a fold repeats of the others may have other ids.
    answered = {call.id for call, _ in pairs_of(halves)}
    waiting = frozenset(item.id for item in halves if item.id not in answered)
    ids = FileIds((*halves, *halves_of(since)), _call_id, waiting, log.path)
    fresh = Fresh(log, blobs, dialect, ids, thread=thread_id(log), ordinal=ordinal, turn=in_turn, cwd=cwd)
    for usage in paid:
        fresh.paid(usage)
    path = log.path
    for event in since:
        if event.seq in path:
            yield from fresh.take(event)
    if since:
        yield from fresh.ending(log.tip)


def _call_id(call_id: str) -> str:
    return valid_call_id(call_id, "any")


def _moved(line: bytes, cwd: str) -> bytes:
    """A line with another folder, if it is one that names the folder of the session, of a turn or of the settings."""
    if b'"cwd"' not in line:
        return line
    kind, payload = envelope(table := msgspec.json.decode(line, type=dict[str, object]))
    named = payload if kind in {"session_meta", "turn_context"} else table_at(payload, "thread_settings") if kind == "event_msg" else {}
    if "cwd" not in named:
        return line
    old, named["cwd"] = named["cwd"], cwd
    roots = named.get("runtime_workspace_roots")
    if isinstance(roots, list):
        named["runtime_workspace_roots"] = [cwd if root == old else root for root in roots]
    return msgspec.json.encode(table)


def _content(log: Log, item_id: str) -> Content | None:
    item = log.reader.item(item_id)
    return None if item is None else item.content
