"""What each edit hid and cost, what was needed again, and the recorded events behind both, linked in one report."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from palimpsest.core.edits import Loss
from palimpsest.core.events import Body, ContextStated, ModelReplied, Recalled, ToolReturned, UserSaid
from palimpsest.core.items import Content, Text, ToolCall, text_of
from palimpsest.core.tokens.sizes import palimpsest_size
from palimpsest.foreign.exporting.formatting import counted, gist_of, headline
from palimpsest.lab.outcome import Edited, Line, Outcome, Replayed, Reread
from palimpsest.lab.report.markup import amount, legend, mean_of, money, percent, said, scrolled
from palimpsest.lab.simulation.recording import Recording

_WIDTH = 200


def with_lines(replayed: Replayed, recording: Recording) -> Replayed:
    """The same, with a line for every recorded event that an edit hid or a re-read needed."""
    return replace(replayed, lines=tuple(lines_of(recording, replayed.profiles.values())))


def lines_of(recording: Recording, outcomes: Iterable[Outcome]) -> Iterator[Line]:
    """A line for every recorded event that is named by an edit or a re-read, in their order."""
    wanted: set[int] = set()
    for outcome in outcomes:
        wanted |= {event for edit in outcome.edits for event in edit.hides}
        wanted |= {reread.event for reread in outcome.rereads}
    calls: dict[str, ToolCall] = {}
    for step in recording.steps:
        for arrived in step.arrived:
            if arrived.seq in wanted:
                yield _line(arrived.seq, arrived.body, calls, recording)
        calls |= {part.call_id: part for part in step.reply.parts if isinstance(part, ToolCall)}
        if step.seq in wanted:
            yield _line(step.seq, step.reply, calls, recording)


def _line(seq: int, body: Body, calls: dict[str, ToolCall], recording: Recording) -> Line:
    contents, about = _shown(body, calls)
    text = " ".join(text_of(content) for content in contents if not isinstance(content, ToolCall))
    tokens = recording.measure.scaled(sum(map(palimpsest_size, contents)))
    return Line(seq, str(body.__struct_config__.tag), headline(about, 60), headline(text, _WIDTH), tokens)


def _shown(body: Body, calls: dict[str, ToolCall]) -> tuple[tuple[Content, ...], str]:
    """What an event brought into the view, and what it is about."""
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


_EDITS, _REREADS, _NAMED, _LINKED, _LINES = 300, 200, 40, 200, 2_000


def losses(session: Replayed, place: str, colours: dict[str, str]) -> str:
    """The edits of every profile, then the events they hid; `place` begins the names of all anchors of this session."""
    known = frozenset(line.event for line in session.lines[:_LINES])
    blocks = "".join(
        f'<details class="loss"><summary><b class="{colours[name]}">{said(name, 40)}</b> {_sum(outcome)}</summary>\n'
        f"{_edits(outcome, place, known)}{_rereads(outcome, place, known)}</details>\n"
        for name, outcome in session.profiles.items()
        if outcome.edits or outcome.rereads
    )
    if not blocks:
        return '<p class="note">No profile edited the view: everything that was said stayed in sight.</p>\n'
    return blocks + _events(session, place, colours)


def _sum(outcome: Outcome) -> str:
    hidden = {event for edit in outcome.edits for event in edit.hides}
    refused = f", {outcome.refused} refused" if outcome.refused else ""
    edits, again = counted(len(outcome.edits), "edit"), counted(len(outcome.rereads), "re-read")
    return f"{edits}{refused}, {counted(len(hidden), 'event')} hidden, {again}"


def _edits(outcome: Outcome, place: str, known: frozenset[int]) -> str:
    if not outcome.edits:
        return ""
    words = ("call", "edit", "tokens", "price", "saves a call", "kept", "what it hid, and why")
    heads = f"<tr>{''.join(f'<th>{word}</th>' for word in words)}</tr>"
    # Where there are too many, folds and the largest are worth more than the first.
    ranked = sorted(outcome.edits, key=lambda edit: (edit.kind != "fold", edit.tokens_after - edit.tokens_before))[:_EDITS]
    rows = "".join(_edit(edit, place, known) for edit in sorted(ranked, key=lambda edit: (edit.step, edit.event)))
    left = len(outcome.edits) - len(ranked)
    rest = f'<p class="note">{counted(left, "smaller edit")} are left out here.</p>\n' if left else ""
    return scrolled(f"<thead>{heads}</thead><tbody>\n{rows}</tbody>", "losses") + rest


def _edit(edit: Edited, place: str, known: frozenset[int]) -> str:
    survives = "" if edit.survival is None else f'<span title="{_by_kind(edit)}">{percent(mean_of(edit.survival))}</span>'
    named = "".join(_named(word, values) for word, values in (("paths", edit.loss.paths), ("commands", edit.loss.commands)))
    links = _links(edit.hides, place, known)
    inner = f"{named}{f'<p>events {links}</p>' if links else ''}"
    hid = f"<details><summary>{_hid(edit.loss, len(edit.hides))}</summary>{inner}</details>" if inner else _hid(edit.loss, len(edit.hides))
    moment = f" · {said(edit.moment.replace('_', ' '), 40)}" if edit.moment else ""
    what = f"{edit.kind}<small>{said(edit.by, 40)}{moment}</small>"
    return (
        f'<tr class="{edit.kind}"><td class="number" data-word="call">{edit.step + 1:,}</td><td>{what}</td>'
        f'<td class="number" data-word="tokens">{amount(edit.tokens_before)} → {amount(edit.tokens_after)}</td>'
        f'<td class="number" data-word="price">{money(edit.price_usd)}</td>'
        f'<td class="number" data-word="saves a call">{money(edit.saved_usd_per_call)}</td>'
        f'<td class="number" data-word="kept">{survives}</td><td>{hid}<small>{said(edit.why, 240)}</small></td></tr>\n'
    )


def _by_kind(edit: Edited) -> str:
    found = edit.survival
    return (
        "" if found is None else ", ".join(f"{name.replace('_', ' ')} {percent(getattr(found, name))}" for name in found.__struct_fields__)
    )


def _hid(loss: Loss, events: int) -> str:
    counts = ((events, "event"), (len(loss.paths), "path"), (len(loss.commands), "command"), (loss.numbers, "number"))
    words = [counted(number, word) for number, word in counts if number]
    if loss.user_messages:
        words.append(f'<b class="bad">{counted(loss.user_messages, "user message")}</b>')
    return ", ".join(words) or "nothing"


def _named(word: str, values: Sequence[str]) -> str:
    if not values:
        return ""
    more = f" … and {len(values) - _NAMED:,} more" if len(values) > _NAMED else ""
    return f"<p>{word} <code>{'</code> <code>'.join(said(value, 120) for value in values[:_NAMED])}</code>{more}</p>"


def _links(events: Sequence[int], place: str, known: frozenset[int]) -> str:
    shown = [f'<a href="#{place}-event-{seq}">{seq}</a>' if seq in known else str(seq) for seq in events[:_LINKED]]
    more = f" … and {len(events) - _LINKED:,} more" if len(events) > _LINKED else ""
    return " ".join(shown) + more


def _rereads(outcome: Outcome, place: str, known: frozenset[int]) -> str:
    if not outcome.rereads:
        return ""
    heads = "<tr><th>call</th><th>tokens</th><th>event</th><th>names it needed again</th></tr>"
    rows = "".join(_reread(one, place, known) for one in outcome.rereads[:_REREADS])
    left = len(outcome.rereads) - _REREADS
    rest = f'<p class="note">{counted(left, "later re-read")} are left out here.</p>\n' if left > 0 else ""
    return f"<h4>Re-reads</h4>\n{scrolled(f'<thead>{heads}</thead><tbody>{rows}</tbody>', 'losses')}{rest}"


def _reread(one: Reread, place: str, known: frozenset[int]) -> str:
    names = " ".join(f"<code>{said(name, 120)}</code>" for name in one.names[:_NAMED])
    links = _links((one.event,), place, known)
    cells = f'<td class="number" data-word="call">{one.step + 1:,}</td><td class="number" data-word="tokens">{amount(one.tokens)}</td>'
    return f'<tr>{cells}<td data-word="event">{links}</td><td>{names}</td></tr>\n'


def _events(session: Replayed, place: str, colours: dict[str, str]) -> str:
    """Every event that somebody hid, with who did."""
    if not session.lines:
        return ""
    hiders: dict[int, list[str]] = {}
    for name, outcome in session.profiles.items():
        for event in {event for edit in outcome.edits for event in edit.hides}:
            hiders.setdefault(event, []).append(name)
    needed = {one.event for outcome in session.profiles.values() for one in outcome.rereads}
    rows = "".join(_lines(session, place, hiders, needed, colours))
    left = len(session.lines) - _LINES
    rest = f'<p class="note">{counted(left, "later event")} are left out here.</p>\n' if left > 0 else ""
    heads = "<tr><th>event</th><th>what</th><th>tokens</th><th>hidden by</th><th>how it begins</th></tr>"
    keys = legend([(colours[name], said(name, 40)) for name in dict.fromkeys(name for names in hiders.values() for name in names)])
    inner = keys + scrolled(f"<thead>{heads}</thead><tbody>\n{rows}</tbody>", "losses events")
    return f"<details><summary><b>The hidden events</b> {counted(len(session.lines), 'event')}</summary>\n{inner}{rest}</details>\n"


def _lines(session: Replayed, place: str, hiders: dict[int, list[str]], needed: set[int], colours: dict[str, str]) -> Iterator[str]:
    for line in session.lines[:_LINES]:
        who = "".join(f'<b class="{colours[name]}" title="{said(name, 40)}">■</b>' for name in hiders.get(line.event, ()))
        again = '<small class="bad">needed again</small>' if line.event in needed else ""
        what = f"{said(line.kind.replace('_', ' '), 40)}<small>{said(line.name, 60)}</small>"
        yield (
            f'<tr id="{place}-event-{line.event}"><td class="number" data-word="event">{line.event}</td><td>{what}</td>'
            f'<td class="number" data-word="tokens">{amount(line.tokens)}</td><td data-word="hidden by">{who}{again}</td>'
            f'<td dir="auto">{said(line.text, 200)}</td></tr>\n'
        )
