"""Report of a replay as one HTML file that loads nothing and runs no script: tables, bars, curves, treemaps and losses."""

from collections.abc import Iterator, Sequence
from html import escape

from msgspec.structs import replace

from palimpsest.core.format.texts import counted
from palimpsest.foreign.exporting.html import STYLE
from palimpsest.lab.curve import curve_points, has_curve
from palimpsest.lab.outcome import OWN_CARDS, RECORDED, CardRun, Comparison, Outcome, ReplayedSession, figures, ratio
from palimpsest.lab.report.context import context_charts
from palimpsest.lab.report.curve_plot import curve_chart
from palimpsest.lab.report.losses import losses_tables
from palimpsest.lab.report.markup import PAGE_STYLE, PALETTE, dollars, ratio_text, short_number, snippet
from palimpsest.lab.report.plot import cost_bars, cost_parts, probe_charts, spending_chart, survival_charts
from palimpsest.lab.report.tables import cards_table, profile_colours, profiles_table, sessions_table
from palimpsest.lab.report.treemap import treemaps

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
