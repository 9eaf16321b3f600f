"""Writes a session of any origin as a rollout that Codex can resume; imported lines are written unchanged."""

from collections.abc import Iterator
from functools import partial

import msgspec

from palimpsest.core.events import Event, ForeignNoted, ModelReplied, SessionOpened, TurnEnded, Usage, UserSaid
from palimpsest.core.items import Content, Item
from palimpsest.core.log.log import Log
from palimpsest.core.pairs import pairs_of
from palimpsest.core.ports import Blobs
from palimpsest.foreign.codex.line_writer import LineWriter, Variant, stamp, thread_of
from palimpsest.foreign.codex.opening import NAME, envelope
from palimpsest.foreign.codex.stored_lines import contents_of, restore_lines
from palimpsest.foreign.file_ids import FileIds, paired_items
from palimpsest.foreign.reading.importing import provenance_of
from palimpsest.foreign.reading.transcript import ExportOrigin
from palimpsest.wire.encoding.repair import valid_call_id
from palimpsest.wire.json_reading import table_at


def rollout_name(log: Log) -> str:
    """The path below `sessions` where Codex looks for a session."""
    at = stamp(log.reader.opened.at)
    day, _, clock = at.partition("T")
    return f"{day.replace('-', '/')}/rollout-{day}T{clock[:8].replace(':', '-')}-{thread_id(log)}.jsonl"


def thread_id(log: Log) -> str:
    """The id of the session in Codex: its own if it was imported from there and not forked since, else one derived from ours."""
    opened = log.opened
    if opened.origin == NAME and opened.base is None and opened.meta.get("id"):
        return opened.meta["id"]
    return thread_of(log.session, log.reader.opened.at)


def write_codex(
    log: Log, blobs: Blobs, variant: Variant = "codex", *, alone: bool = False, cwd: str = "", origin: ExportOrigin | None = None
) -> Iterator[bytes]:
    """The lines of a rollout, each with its newline. With `alone` the file refers to no other rollout.

    `cwd` replaces the working directory on all lines; if empty, each imported line keeps its own. `origin` is what new lines are marked
    with, if not the log itself.
    """
    if log.opened.origin == NAME and log.opened.base is None and not alone:
        yield from _continued_rollout(log, blobs, variant, cwd, origin)
        return
    ids = FileIds(paired_items(log.reader.along(log.path)), _call_id)
    ordinal = 0 if variant == "codex-0.166" else None
    line_writer = LineWriter(log, blobs, variant, ids, thread=thread_id(log), ordinal=ordinal, cwd=cwd, origin=origin)
    yield line_writer.opening(log.reader.opened, log.opened)
    for event in log.reader.along(log.path):
        if not isinstance(event.body, SessionOpened):
            yield from line_writer.lines_of(event)
    yield from line_writer.ending(log.tip)


def _continued_rollout(log: Log, blobs: Blobs, variant: Variant, cwd: str, origin: ExportOrigin | None) -> Iterator[bytes]:
    """A session imported from Codex: its lines in file order, then the events that were recorded here since."""
    lines: dict[int, bytes] = {}
    new_events: list[Event] = []
    paired: list[Item] = []
    in_turn, user_message, usages = False, UserSaid(()), list[Usage]()
    for event in log.reader.run(log.reader.first, log.tip):
        provenance = provenance_of(event.body)
        if provenance is None or provenance.form:
            new_events.append(event)
            continue
        if isinstance(event.body, UserSaid):
            in_turn, user_message = True, event.body
        elif isinstance(event.body, ModelReplied):
            usages.append(event.body.usage)
        paired += paired_items((event,))
        in_turn = in_turn and not isinstance(event.body, TurnEnded)
        # Lines that the model does not see repeat the newest message of the user.
        body = user_message if isinstance(event.body, ForeignNoted) else event.body
        lines.update(restore_lines(provenance.line, partial(contents_of, body, partial(_content, log)), blobs))
    for number in sorted(lines):
        yield (_with_cwd(lines[number], cwd) if cwd else lines[number]) + b"\n"
    last = msgspec.json.decode(lines[max(lines)]) if lines else {}
    ordinal = last.get("ordinal") if isinstance(last, dict) else None
    line_variant: Variant = "codex-0.166" if isinstance(ordinal, int) else variant
    ordinal = ordinal + 1 if isinstance(ordinal, int) else None
    # A pending call keeps the id on its line, which its result must match; other calls may get new ids.
    answered = {call.id for call, _ in pairs_of(paired)}
    pending = frozenset(item.id for item in paired if item.id not in answered)
    ids = FileIds((*paired, *paired_items(new_events)), _call_id, pending, log.path)
    line_writer = LineWriter(log, blobs, line_variant, ids, thread=thread_id(log), ordinal=ordinal, turn=in_turn, cwd=cwd, origin=origin)
    for usage in usages:
        line_writer.add_usage(usage)
    path = log.path
    for event in new_events:
        if event.seq in path:
            yield from line_writer.lines_of(event)
    if new_events:
        yield from line_writer.ending(log.tip)


def _call_id(call_id: str) -> str:
    return valid_call_id(call_id, "any")


def _with_cwd(line: bytes, cwd: str) -> bytes:
    """The line with another working directory, if it names that of the session, of a turn or of the settings."""
    if b'"cwd"' not in line:
        return line
    kind, payload = envelope(table := msgspec.json.decode(line, type=dict[str, object]))
    settings = payload if kind in {"session_meta", "turn_context"} else table_at(payload, "thread_settings") if kind == "event_msg" else {}
    if "cwd" not in settings:
        return line
    old, settings["cwd"] = settings["cwd"], cwd
    roots = settings.get("runtime_workspace_roots")
    if isinstance(roots, list):
        settings["runtime_workspace_roots"] = [cwd if root == old else root for root in roots]
    return msgspec.json.encode(table)


def _content(log: Log, item_id: str) -> Content | None:
    item = log.reader.item(item_id)
    return None if item is None else item.content
