"""What a replay found as one HTML file that needs no network and runs nothing: tables, bars, curves, maps and losses."""

from collections.abc import Iterator, Sequence
from html import escape

from palimpsest.foreign.exporting.formatting import counted
from palimpsest.foreign.exporting.html import STYLE
from palimpsest.lab.outcome import CardRun, Comparison, Outcome, Replayed, figures, ratio
from palimpsest.lab.report.context import context
from palimpsest.lab.report.figures import by_profile, cards_table, colours_of, compared, sessions_table
from palimpsest.lab.report.losses import losses
from palimpsest.lab.report.markup import PAGE_STYLE, amount, money, said, times
from palimpsest.lab.report.plot import bars, parts_of, probes, spending, survivals
from palimpsest.lab.report.treemap import treemaps

OURS = "palimpsest"
GENERATOR = "pal replay"
_SHOWN = 8
# Should a mistake ever let markup through, the browser still loads and runs nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'"
_BILLED = """Every session was fed call by call through each profile, with its recorded replies in place of a model, and every request was
billed by a simulated prompt cache at the real times of the session. Something hidden that a later recorded call used is a re-read: one more
call and its tokens, billed. Profiles that imitate another program are billed for their summaries as if a model had written them."""
_MADE = "Made by Palimpsest, as <code>pal replay --html</code> and <code>pal demo</code> do it. This page loads nothing and runs nothing."


def write_page(comparison: Comparison) -> Iterator[str]:
    """The page, piece by piece; the same comparison gives the same bytes."""
    yield _opening(comparison)
    for number, run in enumerate(comparison.runs):
        yield from _run(run, f"card-{number}", comparison, many=len(comparison.runs) > 1)
    yield f"</main>\n<footer><p>{_BILLED}</p><p>{_MADE}</p></footer>\n</body>\n</html>\n"


def _opening(comparison: Comparison) -> str:
    sessions = comparison.runs[0].sessions if comparison.runs else ()
    title = said(sessions[0].title or sessions[0].id, 80) if len(sessions) == 1 else counted(len(sessions), "session")
    cards = "".join(f'<li><a href="#card-{number}">{_card(run)}</a></li>' for number, run in enumerate(comparison.runs))
    nav = f"<nav><ul>{cards}</ul></nav>\n{cards_table(comparison)}" if len(comparison.runs) > 1 else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="referrer" content="no-referrer">\n'
        f'<meta name="generator" content="{GENERATOR}">\n<title>Replay: {title}</title>\n'
        f"<style>{STYLE}{PAGE_STYLE}</style>\n</head>\n<body>\n"
        f'<header><p class="kicker">What would it have cost?</p><h1 dir="auto">{title}</h1></header>\n{nav}<main>\n'
    )


def _card(run: CardRun) -> str:
    return f"{said(run.card, 60)}, window {amount(run.window)}{f', cache {said(run.ttl, 10)}' if run.ttl else ''}"


def _run(run: CardRun, place: str, comparison: Comparison, *, many: bool) -> Iterator[str]:
    outcomes = by_profile(run)
    colours = colours_of(comparison.profiles) | {name: "c0" for name in outcomes if name not in comparison.profiles}
    heading = f'<h2 id="{place}">{_card(run)}</h2>\n' if many else f'<p class="facts" id="{place}">{_card(run)} · {_recorded(run)}</p>\n'
    yield f"{heading}{_answer(outcomes, comparison.against)}"
    yield f"<section>\n{compared(outcomes, comparison.against)}{_settings(comparison)}</section>\n"
    costs = bars({name: parts_of(found) for name, found in outcomes.items()}, comparison.against)
    yield f"<section><h3>Cost by part</h3>\n{costs}</section>\n"
    lasting = f"<section><h3>What survives, fold after fold</h3>\n{survivals(outcomes, colours)}</section>\n"
    asked = probes({name: figures(found).probes.get("cycles", {}) for name, found in outcomes.items()}, colours)
    lasting += f"<section><h3>Probes, compaction after compaction</h3>\n{asked}</section>\n" if asked else ""
    if len(run.sessions) == 1:
        yield _drawn(run, run.sessions[0], colours)
        yield lasting
        yield _lost(run.sessions[0], place, colours)
        return
    shown = _dearest(run.sessions)
    places = {number: f"{place}-session-{number}" for number in shown}
    rest = f'<p class="note">The {len(shown)} that cost most are drawn below.</p>\n' if len(shown) < len(run.sessions) else ""
    table = sessions_table(run, comparison.profiles, comparison.against, places)
    yield f"<section><h3>Each session</h3>\n{rest}{table}</section>\n{lasting}"
    dearest = max(shown, key=lambda number: _cost(run.sessions[number]), default=-1)
    for number, name in places.items():
        session = run.sessions[number]
        opening = f'<details class="session" id="{name}"{" open" if number == dearest else ""}>'
        yield f'{opening}<summary dir="auto"><b>{said(session.title or session.id, 100)}</b></summary>\n{_drawn(run, session, colours)}'
        yield f"{_lost(session, name, colours)}</details>\n"


def _dearest(sessions: Sequence[Replayed]) -> list[int]:
    """Which cost most, in the order they came in."""
    return sorted(sorted(range(len(sessions)), key=lambda number: -_cost(sessions[number]))[:_SHOWN])


def _cost(session: Replayed) -> float:
    return sum(outcome.cost.total for outcome in session.profiles.values())


def _drawn(run: CardRun, session: Replayed, colours: dict[str, str]) -> str:
    maps = treemaps(run, session, colours)
    parts = (
        ("Context, call by call", context(run, session, colours)),
        ("The bill, call by call", spending(session, colours)),
        ("Who filled the window when it was fullest", maps),
    )
    return "".join(f"<section><h3>{title}</h3>\n{inner}</section>\n" for title, inner in parts if inner)


def _lost(session: Replayed, place: str, colours: dict[str, str]) -> str:
    return f"<section><h3>Edits, and what they hid</h3>\n{losses(session, place, colours)}</section>\n"


def _recorded(run: CardRun) -> str:
    events = sum(session.events for session in run.sessions)
    tokens = sum(session.tokens for session in run.sessions)
    return f"{counted(events, 'event')}, {amount(tokens)} tokens recorded"


def _settings(comparison: Comparison) -> str:
    """What the environment of whoever replayed told profiles to do otherwise than usual."""
    told = [
        f"{said(name, 40)} ({said(', '.join(f'{setting}={value}' for setting, value in found.items()), 200)})"
        for name, found in comparison.settings.items()
    ]
    return f'<p class="note">By settings of the environment, and not as usual: {"; ".join(told)}.</p>\n' if told else ""


def _answer(outcomes: dict[str, list[Outcome]], against: str) -> str:
    """What one wants to know first, in a sentence."""
    if OURS not in outcomes or against not in outcomes or against == OURS:
        return ""
    ours, theirs = figures(outcomes[OURS]), figures(outcomes[against])
    look = ' class="worse"' if ours.usd > theirs.usd else ""
    dollars = f"{money(ours.usd)} against {money(theirs.usd)}"
    cost = f"<b{look}>{times(ratio(ours.usd, theirs.usd))}</b> of what <i>{said(against, 40)}</i> costs ({dollars})"
    rereads = f"<span>{counted(ours.rereads, 're-read')}</span> against <span>{theirs.rereads:,}</span>"
    return f'<p class="answer"><i>{OURS}</i> costs {cost}, with {rereads}.</p>\n'
