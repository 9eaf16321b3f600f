"""Tables of edits with what they hid and cost, of re-reads, and of the hidden recorded events that both link to."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from palimpsest.core.edits import Loss, ReasoningLost
from palimpsest.core.events import Body, ContextStated, ModelReplied, Recalled, ToolReturned
from palimpsest.core.events.event_items import items_of
from palimpsest.core.format.texts import counted
from palimpsest.core.items import ToolCall, text_of
from palimpsest.core.tokens.sizes import palimpsest_size
from palimpsest.foreign.exporting.formatting import gist_of, headline
from palimpsest.lab.outcome import SURVIVALS, HiddenEvent, Outcome, ReplayedEdit, ReplayedSession, Reread, SurvivalShares
from palimpsest.lab.report.markup import (
    dollars,
    mean_survival,
    percent,
    profile_legend,
    profile_title,
    scrollable_table,
    short_number,
    snippet,
)
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
    contents = [item.content for item in items_of(seq, body)]
    text = " ".join(text_of(content) for content in contents if not isinstance(content, ToolCall))
    tokens = recording.calibration.scaled(sum(map(palimpsest_size, contents)))
    return HiddenEvent(seq, str(body.__struct_config__.tag), headline(_label_of(body, calls), 60), headline(text, _TEXT_WIDTH), tokens)


def _label_of(body: Body, calls: dict[str, ToolCall]) -> str:
    """Return the tools, sources or query that brought the contents of an event into the view."""
    match body:
        case ToolReturned():
            call = calls.get(body.result.call_id)
            return body.tool if call is None else f"{body.tool} {gist_of(call)}"
        case ModelReplied():
            return ", ".join(f"{part.tool} {gist_of(part)}" for part in body.parts if isinstance(part, ToolCall))
        case ContextStated():
            return ", ".join(one.source for one in (*(body.head or ()), *body.items))
        case Recalled():
            return body.query
        case _:
            return ""


_MOST_EDITS, _MOST_REREADS, _MOST_NAMES, _MOST_LINKS, _MOST_EVENTS = 300, 200, 40, 200, 2_000


_HIDDEN_NOTE = """<p class="note">hidden: recorded events with an item that the model saw before the edit and no longer sees after it</p>
"""


def losses_tables(session: ReplayedSession, anchor: str, colours: dict[str, str]) -> str:
    """Return the edits of every profile, then the hidden events; `anchor` is the prefix of all anchors of this session."""
    linked_events = frozenset(line.event for line in session.lines[:_MOST_EVENTS])
    blocks = "".join(
        f'<details class="loss"><summary>{profile_title(name, colours)} {_edit_counts(outcome)}</summary>\n'
        f"{_edits_table(outcome, anchor, linked_events)}{_rereads_table(outcome, anchor, linked_events)}</details>\n"
        for name, outcome in session.profiles.items()
        if outcome.edits or outcome.rereads
    )
    if not blocks:
        return '<p class="note">No profile edited the view, so everything stayed visible.</p>\n'
    return blocks + _HIDDEN_NOTE + _events_table(session, anchor, colours)


def _edit_counts(outcome: Outcome) -> str:
    hidden = {event for edit in outcome.edits for event in edit.hides}
    refused = f", {outcome.refused} refused" if outcome.refused else ""
    edits, rereads = counted(len(outcome.edits), "edit"), counted(len(outcome.rereads), "re-read")
    return f"{edits}{refused}, {counted(len(hidden), 'event')} hidden, {rereads}"


def _edits_table(outcome: Outcome, anchor: str, linked_events: frozenset[int]) -> str:
    if not outcome.edits:
        return ""
    heads = ("call", "edit", "tokens", "price", "saves a call", "kept", "what it hid, and why")
    # If there are too many, folds and the largest edits are shown instead of the first.
    ranked = sorted(outcome.edits, key=lambda edit: (edit.kind != "fold", edit.tokens_after - edit.tokens_before))[:_MOST_EDITS]
    rows = (_edit_row(edit, anchor, linked_events) for edit in sorted(ranked, key=lambda edit: (edit.step, edit.event)))
    return scrollable_table(heads, rows, "losses") + _left_out(len(outcome.edits) - len(ranked), "smaller edit")


def _left_out(number: int, word: str) -> str:
    return f'<p class="note">{counted(number, word)} are left out here.</p>\n' if number > 0 else ""


def _edit_row(edit: ReplayedEdit, anchor: str, linked_events: frozenset[int]) -> str:
    survives = "" if edit.survival is None else _survival_cell(edit.survival)
    named = "".join(_name_list(word, values) for word, values in (("paths", edit.loss.paths), ("commands", edit.loss.commands)))
    links = _event_links(edit.hides, anchor, linked_events)
    inner = f"{named}{f'<p>events {links}</p>' if links else ''}"
    summary = _loss_summary(edit.loss, len(edit.hides), edit.reasoning_lost)
    loss_cell = f"<details><summary>{summary}</summary>{inner}</details>" if inner else summary
    moment = f" · {snippet(edit.moment.replace('_', ' '), 40)}" if edit.moment else ""
    kind_cell = f"{edit.kind}<small>{snippet(edit.by, 40)}{moment}</small>"
    return (
        f'<tr class="{edit.kind}"><td class="number" data-word="call">{edit.step + 1:,}</td><td>{kind_cell}</td>'
        f'<td class="number" data-word="tokens">{short_number(edit.tokens_before)} → {short_number(edit.tokens_after)}</td>'
        f'<td class="number" data-word="price">{dollars(edit.price_usd)}</td>'
        f'<td class="number" data-word="saves a call">{dollars(edit.saved_usd_per_call)}</td>'
        f'<td class="number" data-word="kept">{survives}</td><td>{loss_cell}<small>{snippet(edit.why, 240)}</small></td></tr>\n'
    )


def _survival_cell(survival: SurvivalShares) -> str:
    by_kind = ", ".join(f"{name.replace('_', ' ')} {percent(getattr(survival, name))}" for name in SURVIVALS)
    return f'<span title="{by_kind}">{percent(mean_survival(survival))}</span>'


def _loss_summary(loss: Loss, events: int, thinking: ReasoningLost | None) -> str:
    blocks = 0 if thinking is None else thinking.blocks
    counts = ((events, "event"), (len(loss.paths), "path"), (len(loss.commands), "command"), (loss.numbers, "number"))
    words = [counted(number, word) for number, word in (*counts, (blocks, "thinking block")) if number]
    if loss.user_messages:
        words.append(f'<b class="bad">{counted(loss.user_messages, "user message")}</b>')
    return ", ".join(words) or "nothing"


def _name_list(word: str, values: Sequence[str]) -> str:
    if not values:
        return ""
    names = "</code> <code>".join(snippet(value, 120) for value in values[:_MOST_NAMES])
    return f"<p>{word} <code>{names}</code>{_more(len(values) - _MOST_NAMES)}</p>"


def _more(number: int) -> str:
    return f" … and {number:,} more" if number > 0 else ""


def _event_links(events: Sequence[int], anchor: str, linked_events: frozenset[int]) -> str:
    shown = [f'<a href="#{anchor}-event-{seq}">{seq}</a>' if seq in linked_events else str(seq) for seq in events[:_MOST_LINKS]]
    return " ".join(shown) + _more(len(events) - _MOST_LINKS)


def _rereads_table(outcome: Outcome, anchor: str, linked_events: frozenset[int]) -> str:
    if not outcome.rereads:
        return ""
    rows = (_reread_row(one, anchor, linked_events) for one in outcome.rereads[:_MOST_REREADS])
    table = scrollable_table(("call", "tokens", "event", "names it needed again"), rows, "losses")
    return f"<h4>Re-reads</h4>\n{table}{_left_out(len(outcome.rereads) - _MOST_REREADS, 'later re-read')}"


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
    rows = _event_rows(session, anchor, profiles_by_event, needed, colours)
    rest = _left_out(len(session.lines) - _MOST_EVENTS, "later event")
    keys = profile_legend(dict.fromkeys(name for names in profiles_by_event.values() for name in names), colours)
    inner = keys + scrollable_table(("event", "what", "tokens", "hidden by", "how it begins"), rows, "losses events")
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
