"""Tables of the comparison: figures of each profile over all sessions, costs by session, and costs by card."""

import re
from collections.abc import Callable, Mapping, Sequence

from palimpsest.lab.outcome import RECORDED, CardRun, Comparison, Figures, Outcome, ReplayedSession, figures, ratio
from palimpsest.lab.report.markup import (
    PALETTE,
    colour_class,
    dollars,
    mean_survival,
    percent,
    ratio_text,
    scrollable_table,
    short_number,
    snippet,
)

_COLUMNS = ("cost", "folds/100", "mean", "re-reads", "calls", "tokens in", "peak", "cached", "folds", "masks", "kept", "invalid")
_KEPT_NOTE = """<p class="note">kept: of the user messages, edited files, read files and commands in what was folded, the mean share that
still shows</p>
"""
# Programs in the order of their colours, which no choice of profiles changes.
_PROGRAMS = ("palimpsest", "claude-code", "codex", "opencode", "classroom", "none", "context-editing")
_VERSION = re.compile(r"-\d[\d.]*$")
# Columns that appear only if a value is not zero.
_FAILURE_COLUMNS: Mapping[str, Callable[[Figures], int]] = {"too long": lambda total: total.too_long, "failed": lambda total: total.failed}


def profile_colours(profiles: Sequence[str]) -> dict[str, str]:
    """Return the CSS colour class of each profile: that of its program on every page, or the next free one if another profile has it."""
    found: dict[str, str] = {}
    for name in profiles:
        program = _VERSION.sub("", name.partition("@")[0])
        first = _PROGRAMS.index(program) if program in _PROGRAMS else len(_PROGRAMS)
        wanted = [colour_class(first + step) for step in range(PALETTE)]
        found[name] = next((each for each in wanted if each not in found.values()), wanted[0])
    return found


def profiles_table(outcomes: Mapping[str, Sequence[Outcome]], against: str) -> str:
    """Return a table with one row for each profile."""
    figures_by_profile = {name: figures(many) for name, many in outcomes.items()}
    baseline_usd = figures_by_profile[against].usd if against in figures_by_profile else 0.0
    ratios = (f'<th title="cost against {snippet(against, 40)}">ratio</th>',) if baseline_usd else ()
    failures = {word: count for word, count in _FAILURE_COLUMNS.items() if any(count(total) for total in figures_by_profile.values())}
    rows = (
        _profile_row(name, total, baseline_usd, [count(total) for count in failures.values()]) for name, total in figures_by_profile.items()
    )
    table = scrollable_table(("profile", *ratios, *_COLUMNS, *failures), rows, "compared") + _KEPT_NOTE
    return table + "".join(_failure_note(name, total) for name, total in figures_by_profile.items() if total.failed)


def _failure_note(name: str, total: Figures) -> str:
    failed = f"{total.failed:,} of {total.asked:,} requests to the model failed, and the profile continued without it"
    return f'<p class="bad">{snippet(name, 40)}: {failed}; the first: {snippet(total.failure, 300)}</p>\n'


def _profile_row(name: str, total: Figures, baseline_usd: float, failures: Sequence[int]) -> str:
    cached = percent(total.cache_read / total.tokens_in) if total.tokens_in else "–"
    invalid = f'<b class="bad">{total.invalid}</b>' if total.invalid else "0"
    survives = percent(mean_survival(total.survival)) if total.folds else "–"
    cells = (
        *((ratio_text(ratio(total.usd, baseline_usd)),) if baseline_usd else ()),
        dollars(total.usd),
        f"{total.folds_per_100:.1f}",
        short_number(total.mean),
        "–" if name == RECORDED else f"{total.rereads:,}",
        f"{total.calls:,}",
        short_number(total.tokens_in),
        short_number(total.peak),
        cached,
        f"{total.folds:,}",
        f"{total.masks:,}",
        survives,
        invalid,
        *(f'<b class="bad">{count:,}</b>' if count else "0" for count in failures),
    )
    return f'<tr><th scope="row">{snippet(name, 90)}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>\n'


def sessions_table(run: CardRun, profiles: Sequence[str], against: str, anchors: Mapping[int, str]) -> str:
    """Return a table of the cost of each session under each profile; `anchors` link sessions, by number, to their sections."""
    rows = (_session_row(session, profiles, against, anchors.get(number, "")) for number, session in enumerate(run.sessions))
    return scrollable_table(("session", "tokens", *(snippet(name, 24) for name in profiles)), rows, "compared each")


def cards_table(comparison: Comparison) -> str:
    """Return a table of the cost of all sessions under each profile, card by card."""
    rows = []
    for run in comparison.runs:
        costs = {name: sum(outcome.cost.total for outcome in outcomes) for name, outcomes in run.outcomes.items()}
        cells = _cost_cells(costs, comparison.profiles, comparison.against)
        rows.append(f'<tr><th scope="row">{snippet(run.card, 60)}</th><td>{snippet(run.ttl, 10)}</td>{cells}</tr>\n')
    return scrollable_table(("card", "cache", *(snippet(name, 24) for name in comparison.profiles)), rows, "compared")


def _cost_cells(costs: Mapping[str, float], profiles: Sequence[str], against: str) -> str:
    baseline_usd = costs.get(against, 0.0)
    return "".join(f"<td>{_cost_cell(costs.get(profile), baseline_usd, own=profile == against)}</td>" for profile in profiles)


def _session_row(session: ReplayedSession, profiles: Sequence[str], against: str, anchor: str) -> str:
    name = snippet(session.title or session.id, 60)
    linked = f'<a href="#{anchor}">{name}</a>' if anchor else name
    costs = {profile: session.outcomes[profile].cost.total for profile in profiles if profile in session.outcomes}
    cells = _cost_cells(costs, profiles, against)
    return f'<tr><th scope="row" dir="auto">{linked}</th><td>{short_number(session.tokens)}</td>{cells}</tr>\n'


def _cost_cell(usd: float | None, baseline_usd: float, *, own: bool) -> str:
    if usd is None:
        return "–"
    return dollars(usd) if own or not baseline_usd else f"{dollars(usd)}<small>{ratio_text(usd / baseline_usd)}</small>"
