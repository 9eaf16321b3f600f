"""The report of a replay as one HTML file without scripts, with charts of the context and tables of losses and re-reads."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import pairwise

from msgspec.structs import replace

from pal.replay.curve import cards_table, curve_chart, curve_points, has_curve, profile_colours, profiles_table, sessions_table
from pal.replay.drawing import (
    PAGE_STYLE,
    PALETTE,
    Plot,
    axis_steps,
    colour_class,
    cost_bars,
    cost_parts,
    dollars,
    downsampled,
    mean_survival,
    panels,
    percent,
    probe_charts,
    profile_legend,
    profile_title,
    ratio_text,
    scrollable_table,
    short_number,
    snippet,
    spending_chart,
    survival_charts,
    treemaps,
)
from pal.replay.outcome import (
    OWN_CARDS,
    RECORDED,
    SURVIVALS,
    CardRun,
    Comparison,
    HiddenEvent,
    Outcome,
    ReplayedEdit,
    ReplayedSession,
    Reread,
    SurvivalShares,
    figures,
    ratio,
)
from pal.replay.recording import RecordedSession
from palimpsest.core.events import Body, ContextStated, ModelReplied, Recalled, ToolReturned, items_of
from palimpsest.core.items import Loss, ReasoningLost, ToolCall, text_of
from palimpsest.core.text import counted
from palimpsest.core.tokens import palimpsest_size
from palimpsest.exchange.html import STYLE
from palimpsest.exchange.pages import gist_of, headline

_CACHE_LIFETIME_MS = {"5m": 300_000, "1h": 3_600_000}
_MOST_MARKS, _CROWDED = 400, 60
_AFTER_CALL_MOMENTS = frozenset({"after_call", "turn_ends"})
_DOT_RADIUS = {"fold": 4.5, "mask": 2.5}
_MARKS = (
    ("fold", "fold"),
    ("mask", "mask or other edit"),
    ("reread", "re-read: hidden content was needed"),
    ("pause", "pause in which the cache expired"),
)


def context_charts(run: CardRun, session: ReplayedSession, colours: dict[str, str]) -> str:
    """Return the charts of one session."""
    most = max((call.tokens for outcome in session.profiles.values() for call in outcome.calls if call.purpose == "turn"), default=0)
    last = max((call.step for outcome in session.profiles.values() for call in outcome.calls), default=0)
    # A recording far below the window gets its own scale, else its curve would be flat; values far above the window are cut off
    # for the same reason.
    top = min(max(most, run.window * 1.02), run.window * 1.15) if most > run.window / 3 else most
    drawings = (
        (
            f"{profile_title(name, colours)} {_size_summary(outcome)}{_stop_note(outcome)}",
            _context_chart(outcome, run, (top, last), colours.get(name, colour_class(0))),
        )
        for name, outcome in session.profiles.items()
    )
    marks = "".join(f"<li>{_legend_mark(css_class)}{words}</li>" for css_class, words in _MARKS)
    return f'<ul class="legend">{marks}</ul>\n{panels(drawings)}'


def _legend_mark(css_class: str) -> str:
    shape = (
        '<line x1="6" x2="6" y1="1" y2="11"/>'
        if css_class in {"reread", "pause"}
        else f'<circle cx="6" cy="6" r="{_DOT_RADIUS[css_class]}"/>'
    )
    return f'<svg class="mark {css_class}" width="12" height="12" aria-hidden="true">{shape}</svg>'


def _size_summary(outcome: Outcome) -> str:
    sizes = [call.tokens for call in outcome.calls if call.purpose == "turn"]
    if not sizes:
        return "no call"
    return f"peak {short_number(max(sizes))}, mean {short_number(sum(sizes) / len(sizes))}"


def _stop_note(outcome: Outcome) -> str:
    return f', <span class="bad">stopped: {snippet(outcome.stopped)}</span>' if outcome.stopped else ""


def _context_chart(outcome: Outcome, run: CardRun, ends: tuple[float, int], css_class: str) -> str:
    top, last = ends
    plot = Plot(last, top)
    turns = [call for call in outcome.calls if call.purpose == "turn"]
    points = [(float(call.step), float(call.tokens)) for call in turns]
    levels = [(level, short_number(level)) for level in axis_steps(top, 4) if level]
    pieces = [*plot.grid([(0, ""), *levels]), *_pause_marks(outcome, plot, run.ttl)]
    if run.window <= top:
        at = plot.y(run.window)
        pieces.append(f'<line class="window" x1="0" x2="100%" y1="{at}" y2="{at}"><title>the window: {run.window:,} tokens</title></line>')
    pieces.append(plot.line(downsampled(points), f"trace {css_class}", filled=True))
    pieces += _edit_marks(outcome, plot)
    for reread in outcome.rereads[:_MOST_MARKS]:
        title = f"call {reread.step + 1}: {short_number(reread.tokens)} tokens read again for {snippet(', '.join(reread.names), 120)}"
        pieces.append(_tick_mark(plot.x(reread.step), "reread", (plot.height - 26, plot.height - 18), title))
    pieces += plot.axis_labels([(0, "call 1"), (last, f"call {last + 1:,}")])
    edits = f"{counted(len(outcome.edits), 'edit')}, {counted(len(outcome.rereads), 're-read')}"
    return plot.svg(f"Context of {snippet(outcome.profile, 40)}, call by call: {_size_summary(outcome)}; {edits}", pieces)


def _edit_marks(outcome: Outcome, plot: Plot) -> Iterator[str]:
    """Yield the marks of edits; folds come last, so that they are drawn on top, each with a line from the old to the new size."""
    masks = [edit for edit in outcome.edits if edit.kind != "fold"]
    # Many large marks would hide the curve.
    size = _DOT_RADIUS["mask"] if len(masks) <= _CROWDED else 1.4
    for edit in masks[:: max(1, -(-len(masks) // _MOST_MARKS))]:
        yield plot.dot(
            _step_of(edit, outcome), edit.billed_after, "mask" if len(masks) <= _CROWDED else "mask small", _edit_title(edit), size
        )
    for edit in [edit for edit in outcome.edits if edit.kind == "fold"][:_MOST_MARKS]:
        place, title = _step_of(edit, outcome), _edit_title(edit)
        x, ends = plot.x(place), f'y1="{plot.y(edit.billed_before)}" y2="{plot.y(edit.billed_after)}"'
        yield f'<line class="fall" x1="{x}" x2="{x}" {ends}/>'
        yield plot.dot(place, edit.billed_before, "fold", title, _DOT_RADIUS["fold"])


def _step_of(edit: ReplayedEdit, outcome: Outcome) -> int:
    """Return the first step whose request shows the effect of an edit."""
    return min(edit.step + (edit.moment in _AFTER_CALL_MOMENTS), outcome.calls[-1].step)


def _edit_title(edit: ReplayedEdit) -> str:
    price = "" if edit.price_usd is None else f", price {dollars(edit.price_usd)}"
    sizes = f"{short_number(edit.billed_before)} → {short_number(edit.billed_after)} tokens"
    return f"call {edit.step + 1}: {edit.kind} by {snippet(edit.by, 40)}, {sizes}{price}: {snippet(edit.why)}"


def _pause_marks(outcome: Outcome, plot: Plot, ttl: str) -> Iterator[str]:
    """Yield ticks at the top for pauses longer than the lifetime of a cache entry."""
    life = _CACHE_LIFETIME_MS.get(ttl, _CACHE_LIFETIME_MS["5m"])
    turns = [call for call in outcome.calls if call.purpose == "turn"]
    cold = [(after.step, after.at - before.at) for before, after in pairwise(turns) if after.at - before.at > life]
    for step, gap in cold[:_MOST_MARKS]:
        yield _tick_mark(plot.x(step), "pause", (0, 7), f"call {step + 1}: {gap // 60_000:,} minutes after the one before")


def _tick_mark(x: str, css_class: str, ends: tuple[int, int], title: str) -> str:
    return f'<line class="mark {css_class}" x1="{x}" x2="{x}" y1="{ends[0]}" y2="{ends[1]}"><title>{title}</title></line>'


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


OURS = "palimpsest"
GENERATOR = "pal replay"
_MOST_SESSIONS = 8
# If a mistake ever lets markup through, the browser still loads and runs nothing.
_CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'"
_METHOD = """Every session was fed call by call through each profile, with its recorded replies in place of a model, and every request was
billed by a simulated prompt cache at the real times of the session. Something hidden that a later recorded call used is a re-read: one more
call and its tokens, billed. Profiles that imitate another program are billed for their summaries as if a model had written them."""
_CREDIT = "Made by Palimpsest, as <code>pal replay --html</code> and <code>pal demo</code> do it. This page loads nothing and runs nothing."


def write_page(comparison: Comparison) -> Iterator[str]:
    """Yield the page in pieces; the same comparison gives the same bytes."""
    yield _page_head(comparison)
    for number, run in enumerate(comparison.runs):
        yield from _card_section(run, f"card-{number}", comparison, many=len(comparison.runs) > 1)
    yield f"</main>\n<footer><p>{_METHOD}</p><p>{_CREDIT}</p></footer>\n</body>\n</html>\n"


def _page_head(comparison: Comparison) -> str:
    sessions = comparison.runs[0].sessions if comparison.runs else ()
    title = snippet(sessions[0].title or sessions[0].id, 80) if len(sessions) == 1 else counted(len(sessions), "session")
    cards = "".join(f'<li><a href="#card-{number}">{_card_title(run)}</a></li>' for number, run in enumerate(comparison.runs))
    nav = f"<nav><ul>{cards}</ul></nav>\n{cards_table(comparison)}" if len(comparison.runs) > 1 else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_CONTENT_SECURITY_POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="referrer" content="no-referrer">\n'
        f'<meta name="generator" content="{GENERATOR}">\n<title>Replay: {title}</title>\n'
        f"<style>{STYLE}{PAGE_STYLE}</style>\n</head>\n<body>\n"
        f'<header><p class="kicker">What would it have cost?</p><h1 dir="auto">{title}</h1></header>\n{nav}<main>\n'
    )


def _card_title(run: CardRun) -> str:
    card = "each session by the card of its own model" if run.card == OWN_CARDS else snippet(run.card, 60)
    window = f", window {short_number(run.window)}" if run.window else ""
    return f"{card}{window}{f', cache {snippet(run.ttl, 10)}' if run.ttl else ''}"


def _card_section(run: CardRun, anchor: str, comparison: Comparison, *, many: bool) -> Iterator[str]:
    billed = run.outcomes
    if len(billed.get(RECORDED, ())) < len(run.sessions):
        # A total of some sessions beside totals of all would be compared by mistake.
        billed.pop(RECORDED, None)
    outcomes = {name: found for name, found in billed.items() if name != RECORDED}
    heading = (
        f'<h2 id="{anchor}">{_card_title(run)}</h2>\n'
        if many
        else f'<p class="facts" id="{anchor}">{_card_title(run)} · {_recording_size(run)}</p>\n'
    )
    yield f"{heading}{_headline(outcomes, comparison.against)}"
    yield f"<section>\n{profiles_table(billed, comparison.against)}{_recorded_note(run)}{_settings_note(comparison)}</section>\n"
    if has_curve(outcomes):
        yield _section("Dollars against re-reads", curve_chart(curve_points(run.sessions)))
    shown = _told_apart(comparison.profiles)
    charted = replace(run, sessions=tuple(_with_profiles(session, shown) for session in run.sessions))
    yield from _charts(
        charted, anchor, replace(comparison, profiles=shown), {name: billed[name] for name in billed if name in (*shown, RECORDED)}
    )


def _told_apart(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the profiles that charts can show apart, which is at most one for each colour; those without settings come first."""
    return names if len(names) <= PALETTE else tuple(sorted(names, key=lambda name: "@" in name)[:PALETTE])


def _with_profiles(session: ReplayedSession, names: tuple[str, ...]) -> ReplayedSession:
    return replace(session, profiles={name: found for name, found in session.profiles.items() if name in names})


def _charts(run: CardRun, anchor: str, comparison: Comparison, billed: dict[str, list[Outcome]]) -> Iterator[str]:
    outcomes = {name: found for name, found in billed.items() if name != RECORDED}
    colours = profile_colours(comparison.profiles)
    yield _section("Cost by part", cost_bars({name: cost_parts(found) for name, found in billed.items()}, comparison.against))
    survival_sections = _section("What survives, fold after fold", survival_charts(outcomes, colours))
    probes = probe_charts({name: figures(found).probes.get("cycles", {}) for name, found in outcomes.items()}, colours)
    survival_sections += _section("Probes, compaction after compaction", probes) if probes else ""
    if len(run.sessions) == 1:
        yield _session_charts(run, run.sessions[0], colours)
        yield survival_sections
        yield _losses_section(run.sessions[0], anchor, colours)
        return
    charted = _most_expensive(run.sessions)
    anchors = {number: f"{anchor}-session-{number}" for number in charted}
    rest = f'<p class="note">The {len(charted)} that cost most are drawn below.</p>\n' if len(charted) < len(run.sessions) else ""
    table = sessions_table(run, tuple(run.outcomes), comparison.against, anchors)
    yield _section("Each session", rest + table) + survival_sections
    most_expensive = max(charted, key=lambda number: _cost(run.sessions[number]), default=-1)
    for number, name in anchors.items():
        session = run.sessions[number]
        opening = f'<details class="session" id="{name}"{" open" if number == most_expensive else ""}>'
        title = snippet(session.title or session.id, 100)
        yield f'{opening}<summary dir="auto"><b>{title}</b></summary>\n{_session_charts(run, session, colours)}'
        yield f"{_losses_section(session, name, colours)}</details>\n"


def _most_expensive(sessions: Sequence[ReplayedSession]) -> list[int]:
    """Return the indexes of the most expensive sessions, in input order."""
    return sorted(sorted(range(len(sessions)), key=lambda number: -_cost(sessions[number]))[:_MOST_SESSIONS])


def _cost(session: ReplayedSession) -> float:
    return sum(outcome.cost.total for outcome in session.profiles.values())


def _session_charts(whole_run: CardRun, session: ReplayedSession, colours: dict[str, str]) -> str:
    run = whole_run.with_session_terms(session)
    parts = (
        ("Context, call by call", context_charts(run, session, colours)),
        ("The bill, call by call", spending_chart(session, colours)),
        ("Who filled the window when it was fullest", treemaps(run, session, colours)),
    )
    return "".join(_section(title, inner) for title, inner in parts if inner)


def _losses_section(session: ReplayedSession, anchor: str, colours: dict[str, str]) -> str:
    return _section("Edits, and what they hid", losses_tables(session, anchor, colours))


def _section(title: str, inner: str) -> str:
    return f"<section><h3>{title}</h3>\n{inner}</section>\n"


def _recording_size(run: CardRun) -> str:
    events = sum(session.events for session in run.sessions)
    tokens = sum(session.tokens for session in run.sessions)
    return f"{counted(events, 'event')}, {short_number(tokens)} tokens recorded"


def _recorded_note(run: CardRun) -> str:
    """Return what the row of the recording means, and the models that are billed by another card; empty if there is nothing to say."""
    told = sum(session.recorded is not None for session in run.sessions)
    notes = [f"{RECORDED}: what really happened, by the usage in the files of {counted(told, 'session')}"] if told else []
    stand_ins = {(session.stand_in_for, session.card) for session in run.sessions if session.stand_in_for}
    notes += [f"no price is known for {snippet(name, 60)}, so it is billed as {snippet(card, 60)}" for name, card in sorted(stand_ins)]
    return f'<p class="note">{"; ".join(notes)}.</p>\n' if notes else ""


def _settings_note(comparison: Comparison) -> str:
    """Return a note about environment settings that changed profiles; empty if there are none."""
    settings = [
        f"{snippet(name, 40)} ({snippet(', '.join(f'{setting}={value}' for setting, value in found.items()), 200)})"
        for name, found in comparison.settings.items()
    ]
    return f'<p class="note">Changed by settings of the environment: {"; ".join(settings)}.</p>\n' if settings else ""


def _headline(outcomes: dict[str, list[Outcome]], against: str) -> str:
    """Return the main result in one sentence; empty unless our profile and the baseline were both replayed."""
    if OURS not in outcomes or against not in outcomes or against == OURS:
        return ""
    ours, theirs = figures(outcomes[OURS]), figures(outcomes[against])
    look = ' class="worse"' if ours.usd > theirs.usd else ""
    costs = f"{dollars(ours.usd)} against {dollars(theirs.usd)}"
    cost = f"<b{look}>{ratio_text(ratio(ours.usd, theirs.usd))}</b> of what <i>{snippet(against, 40)}</i> costs ({costs})"
    meaning = "of content that was hidden when a later call needed it"
    rereads = f"<span>{counted(ours.rereads, 're-read')}</span> {meaning}"
    return f'<p class="answer"><i>{OURS}</i> costs {cost}, with {rereads}.</p>\n'
