"""Tables of edits with what they hid and cost, of re-reads, and of the hidden recorded events that both link to."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from palimpsest.core.edits import Loss
from palimpsest.core.events import Body, ContextStated, ModelReplied, Recalled, ToolReturned, UserSaid
from palimpsest.core.items import Content, Text, ToolCall, text_of
from palimpsest.core.tokens.sizes import palimpsest_size
from palimpsest.foreign.exporting.formatting import counted, gist_of, headline
from palimpsest.lab.outcome import HiddenEvent, Outcome, ReplayedEdit, ReplayedSession, Reread
from palimpsest.lab.report.markup import dollars, legend, mean_survival, percent, scrollable_table, short_number, snippet
from palimpsest.lab.simulation.recording import RecordedSession

_TEXT_WIDTH = 200


def with_hidden_events(replayed: ReplayedSession, recording: RecordedSession) -> ReplayedSession:
    """Return the session with `lines` for all recorded events that an edit hid or a re-read needed."""
    return replace(replayed, lines=tuple(hidden_events(recording, replayed.profiles.values())))


def hidden_events(recording: RecordedSession, outcomes: Iterable[Outcome]) -> Iterator[HiddenEvent]:
    """Yield every recorded event that an edit hid or a re-read needed, in log order."""
    wanted: set[int] = set()
    for outcome in outcomes:
        wanted |= {event for edit in outcome.edits for event in edit.hides}
        wanted |= {reread.event for reread in outcome.rereads}
    calls: dict[str, ToolCall] = {}
    for step in recording.steps:
        for arrived in step.inputs:
            if arrived.seq in wanted:
                yield _hidden_event(arrived.seq, arrived.body, calls, recording)
        calls |= {part.call_id: part for part in step.reply.parts if isinstance(part, ToolCall)}
        if step.seq in wanted:
            yield _hidden_event(step.seq, step.reply, calls, recording)


def _hidden_event(seq: int, body: Body, calls: dict[str, ToolCall], recording: RecordedSession) -> HiddenEvent:
    contents, label = _contents_of(body, calls)
    text = " ".join(text_of(content) for content in contents if not isinstance(content, ToolCall))
    tokens = recording.calibration.scaled(sum(map(palimpsest_size, contents)))
    return HiddenEvent(seq, str(body.__struct_config__.tag), headline(label, 60), headline(text, _TEXT_WIDTH), tokens)


def _contents_of(body: Body, calls: dict[str, ToolCall]) -> tuple[tuple[Content, ...], str]:
    """Return the contents that an event brought into the view, and a label: tool, source or query."""
    match body:
        case ToolReturned():
            call = calls.get(body.result.call_id)
            return (body.result,), f"{body.tool} {gist_of(call)}" if call is not None else body.tool
        case ModelReplied():
            return body.parts, ", ".join(f"{part.tool} {gist_of(part)}" for part in body.parts if isinstance(part, ToolCall))
        case UserSaid():
            return body.parts, ""
        case ContextStated():
            stated = (*(body.head or ()), *body.items)
            return tuple(Text(one.text) for one in stated), ", ".join(one.source for one in stated)
        case Recalled():
            return body.parts, body.query
        case _:
            return (), ""


_MOST_EDITS, _MOST_REREADS, _MOST_NAMES, _MOST_LINKS, _MOST_EVENTS = 300, 200, 40, 200, 2_000


def losses_tables(session: ReplayedSession, anchor: str, colours: dict[str, str]) -> str:
    """Return the edits of every profile, then the hidden events; `anchor` is the prefix of all anchors of this session."""
    linked_events = frozenset(line.event for line in session.lines[:_MOST_EVENTS])
    blocks = "".join(
        f'<details class="loss"><summary><b class="{colours[name]}">{snippet(name, 40)}</b> {_edit_counts(outcome)}</summary>\n'
        f"{_edits_table(outcome, anchor, linked_events)}{_rereads_table(outcome, anchor, linked_events)}</details>\n"
        for name, outcome in session.profiles.items()
        if outcome.edits or outcome.rereads
    )
    if not blocks:
        return '<p class="note">No profile edited the view, so everything stayed visible.</p>\n'
    return blocks + _events_table(session, anchor, colours)


def _edit_counts(outcome: Outcome) -> str:
    hidden = {event for edit in outcome.edits for event in edit.hides}
    refused = f", {outcome.refused} refused" if outcome.refused else ""
    edits, rereads = counted(len(outcome.edits), "edit"), counted(len(outcome.rereads), "re-read")
    return f"{edits}{refused}, {counted(len(hidden), 'event')} hidden, {rereads}"


def _edits_table(outcome: Outcome, anchor: str, linked_events: frozenset[int]) -> str:
    if not outcome.edits:
        return ""
    words = ("call", "edit", "tokens", "price", "saves a call", "kept", "what it hid, and why")
    heads = f"<tr>{''.join(f'<th>{word}</th>' for word in words)}</tr>"
    # If there are too many, folds and the largest edits are shown instead of the first.
    ranked = sorted(outcome.edits, key=lambda edit: (edit.kind != "fold", edit.tokens_after - edit.tokens_before))[:_MOST_EDITS]
    rows = "".join(_edit_row(edit, anchor, linked_events) for edit in sorted(ranked, key=lambda edit: (edit.step, edit.event)))
    omitted = len(outcome.edits) - len(ranked)
    rest = f'<p class="note">{counted(omitted, "smaller edit")} are left out here.</p>\n' if omitted else ""
    return scrollable_table(f"<thead>{heads}</thead><tbody>\n{rows}</tbody>", "losses") + rest


def _edit_row(edit: ReplayedEdit, anchor: str, linked_events: frozenset[int]) -> str:
    survives = "" if edit.survival is None else f'<span title="{_survival_by_kind(edit)}">{percent(mean_survival(edit.survival))}</span>'
    named = "".join(_name_list(word, values) for word, values in (("paths", edit.loss.paths), ("commands", edit.loss.commands)))
    links = _event_links(edit.hides, anchor, linked_events)
    inner = f"{named}{f'<p>events {links}</p>' if links else ''}"
    loss_cell = (
        f"<details><summary>{_loss_summary(edit.loss, len(edit.hides))}</summary>{inner}</details>"
        if inner
        else _loss_summary(edit.loss, len(edit.hides))
    )
    moment = f" · {snippet(edit.moment.replace('_', ' '), 40)}" if edit.moment else ""
    kind_cell = f"{edit.kind}<small>{snippet(edit.by, 40)}{moment}</small>"
    return (
        f'<tr class="{edit.kind}"><td class="number" data-word="call">{edit.step + 1:,}</td><td>{kind_cell}</td>'
        f'<td class="number" data-word="tokens">{short_number(edit.tokens_before)} → {short_number(edit.tokens_after)}</td>'
        f'<td class="number" data-word="price">{dollars(edit.price_usd)}</td>'
        f'<td class="number" data-word="saves a call">{dollars(edit.saved_usd_per_call)}</td>'
        f'<td class="number" data-word="kept">{survives}</td><td>{loss_cell}<small>{snippet(edit.why, 240)}</small></td></tr>\n'
    )


def _survival_by_kind(edit: ReplayedEdit) -> str:
    found = edit.survival
    return (
        "" if found is None else ", ".join(f"{name.replace('_', ' ')} {percent(getattr(found, name))}" for name in found.__struct_fields__)
    )


def _loss_summary(loss: Loss, events: int) -> str:
    counts = ((events, "event"), (len(loss.paths), "path"), (len(loss.commands), "command"), (loss.numbers, "number"))
    words = [counted(number, word) for number, word in counts if number]
    if loss.user_messages:
        words.append(f'<b class="bad">{counted(loss.user_messages, "user message")}</b>')
    return ", ".join(words) or "nothing"


def _name_list(word: str, values: Sequence[str]) -> str:
    if not values:
        return ""
    more = f" … and {len(values) - _MOST_NAMES:,} more" if len(values) > _MOST_NAMES else ""
    return f"<p>{word} <code>{'</code> <code>'.join(snippet(value, 120) for value in values[:_MOST_NAMES])}</code>{more}</p>"


def _event_links(events: Sequence[int], anchor: str, linked_events: frozenset[int]) -> str:
    shown = [f'<a href="#{anchor}-event-{seq}">{seq}</a>' if seq in linked_events else str(seq) for seq in events[:_MOST_LINKS]]
    more = f" … and {len(events) - _MOST_LINKS:,} more" if len(events) > _MOST_LINKS else ""
    return " ".join(shown) + more


def _rereads_table(outcome: Outcome, anchor: str, linked_events: frozenset[int]) -> str:
    if not outcome.rereads:
        return ""
    heads = "<tr><th>call</th><th>tokens</th><th>event</th><th>names it needed again</th></tr>"
    rows = "".join(_reread_row(one, anchor, linked_events) for one in outcome.rereads[:_MOST_REREADS])
    omitted = len(outcome.rereads) - _MOST_REREADS
    rest = f'<p class="note">{counted(omitted, "later re-read")} are left out here.</p>\n' if omitted > 0 else ""
    return f"<h4>Re-reads</h4>\n{scrollable_table(f'<thead>{heads}</thead><tbody>{rows}</tbody>', 'losses')}{rest}"


def _reread_row(one: Reread, anchor: str, linked_events: frozenset[int]) -> str:
    names = " ".join(f"<code>{snippet(name, 120)}</code>" for name in one.names[:_MOST_NAMES])
    links = _event_links((one.event,), anchor, linked_events)
    cells = (
        f'<td class="number" data-word="call">{one.step + 1:,}</td><td class="number" data-word="tokens">{short_number(one.tokens)}</td>'
    )
    return f'<tr>{cells}<td data-word="event">{links}</td><td>{names}</td></tr>\n'


def _events_table(session: ReplayedSession, anchor: str, colours: dict[str, str]) -> str:
    """Return a table of all hidden events, each with the profiles that hid it."""
    if not session.lines:
        return ""
    profiles_by_event: dict[int, list[str]] = {}
    for name, outcome in session.profiles.items():
        for event in {event for edit in outcome.edits for event in edit.hides}:
            profiles_by_event.setdefault(event, []).append(name)
    needed = {one.event for outcome in session.profiles.values() for one in outcome.rereads}
    rows = "".join(_event_rows(session, anchor, profiles_by_event, needed, colours))
    omitted = len(session.lines) - _MOST_EVENTS
    rest = f'<p class="note">{counted(omitted, "later event")} are left out here.</p>\n' if omitted > 0 else ""
    heads = "<tr><th>event</th><th>what</th><th>tokens</th><th>hidden by</th><th>how it begins</th></tr>"
    keys = legend(
        [(colours[name], snippet(name, 40)) for name in dict.fromkeys(name for names in profiles_by_event.values() for name in names)]
    )
    inner = keys + scrollable_table(f"<thead>{heads}</thead><tbody>\n{rows}</tbody>", "losses events")
    return f"<details><summary><b>The hidden events</b> {counted(len(session.lines), 'event')}</summary>\n{inner}{rest}</details>\n"


def _event_rows(
    session: ReplayedSession, anchor: str, profiles_by_event: dict[int, list[str]], needed: set[int], colours: dict[str, str]
) -> Iterator[str]:
    for line in session.lines[:_MOST_EVENTS]:
        markers = "".join(f'<b class="{colours[name]}" title="{snippet(name, 40)}">■</b>' for name in profiles_by_event.get(line.event, ()))
        note = '<small class="bad">needed again</small>' if line.event in needed else ""
        kind_cell = f"{snippet(line.kind.replace('_', ' '), 40)}<small>{snippet(line.name, 60)}</small>"
        yield (
            f'<tr id="{anchor}-event-{line.event}"><td class="number" data-word="event">{line.event}</td><td>{kind_cell}</td>'
            f'<td class="number" data-word="tokens">{short_number(line.tokens)}</td><td data-word="hidden by">{markers}{note}</td>'
            f'<td dir="auto">{snippet(line.text, 200)}</td></tr>\n'
        )
