"""The comparison as tables: what each profile did and what it came to, all sessions together and each on its own."""

from collections.abc import Callable, Mapping, Sequence

from palimpsest.lab.outcome import CardRun, Comparison, Figures, Outcome, Replayed, figures, ratio
from palimpsest.lab.report.markup import amount, colour, mean_of, money, percent, said, scrolled, times

_COLUMNS = ("cost", "calls", "tokens in", "peak", "mean", "cached", "folds", "masks", "re-reads", "kept", "invalid")
# Told only where there are some.
_BAD: Mapping[str, Callable[[Figures], int]] = {"too long": lambda one: one.too_long, "failed": lambda one: one.failed}


def by_profile(run: CardRun) -> dict[str, list[Outcome]]:
    """The outcomes of each profile, over all sessions."""
    found: dict[str, list[Outcome]] = {}
    for session in run.sessions:
        for name, outcome in session.profiles.items():
            found.setdefault(name, []).append(outcome)
    return found


def colours_of(profiles: Sequence[str]) -> dict[str, str]:
    """A colour for each profile, the same all over the page."""
    return {name: colour(number) for number, name in enumerate(profiles)}


def compared(outcomes: Mapping[str, Sequence[Outcome]], against: str) -> str:
    """One row for each profile."""
    found = {name: figures(many) for name, many in outcomes.items()}
    yardstick = found[against].usd if against in found else 0.0
    ratios = f'<th title="cost against {said(against, 40)}">ratio</th>' if yardstick else ""
    bad = {word: count for word, count in _BAD.items() if any(count(one) for one in found.values())}
    heads = "".join(f"<th>{word}</th>" for word in (*_COLUMNS, *bad))
    rows = "".join(_row(name, one, yardstick, [count(one) for count in bad.values()]) for name, one in found.items())
    table = scrolled(f"<thead><tr><th>profile</th>{ratios}{heads}</tr></thead><tbody>\n{rows}</tbody>", "compared")
    return table + "".join(_failed(name, one) for name, one in found.items() if one.failed)


def _failed(name: str, one: Figures) -> str:
    failed = f"{one.failed:,} of {one.asked:,} requests to the model failed, and it went on without"
    return f'<p class="bad">{said(name, 40)}: {failed}; the first: {said(one.failure, 300)}</p>\n'


def _row(name: str, one: Figures, yardstick: float, bad: Sequence[int]) -> str:
    cached = percent(one.cache_read / one.tokens_in) if one.tokens_in else "–"
    invalid = f'<b class="bad">{one.invalid}</b>' if one.invalid else "0"
    survives = percent(mean_of(one.survival)) if one.folds else "–"
    cells = (
        *((times(ratio(one.usd, yardstick)),) if yardstick else ()),
        money(one.usd),
        f"{one.calls:,}",
        amount(one.tokens_in),
        amount(one.peak),
        amount(one.mean),
        cached,
        f"{one.folds:,}",
        f"{one.masks:,}",
        f"{one.rereads:,}",
        survives,
        invalid,
        *(f'<b class="bad">{count:,}</b>' if count else "0" for count in bad),
    )
    return f'<tr><th scope="row">{said(name, 40)}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>\n'


def sessions_table(run: CardRun, profiles: Sequence[str], against: str, places: Mapping[int, str]) -> str:
    """What each session costs under each profile; `places` are the anchors of those, by number, that have a part of their own."""
    heads = "".join(f"<th>{said(name, 24)}</th>" for name in profiles)
    rows = "".join(_session(session, profiles, against, places.get(number, "")) for number, session in enumerate(run.sessions))
    return scrolled(f"<thead><tr><th>session</th><th>tokens</th>{heads}</tr></thead><tbody>\n{rows}</tbody>", "compared each")


def cards_table(comparison: Comparison) -> str:
    """What all sessions cost under each profile, card by card."""
    heads = "".join(f"<th>{said(name, 24)}</th>" for name in comparison.profiles)
    rows = []
    for run in comparison.runs:
        costs = {name: sum(one.cost.total for one in found) for name, found in by_profile(run).items()}
        cells = _costs(costs, comparison.profiles, comparison.against)
        rows.append(f'<tr><th scope="row">{said(run.card, 60)}</th><td>{said(run.ttl, 10)}</td>{cells}</tr>\n')
    return scrolled(f"<thead><tr><th>card</th><th>cache</th>{heads}</tr></thead><tbody>\n{''.join(rows)}</tbody>", "compared")


def _costs(costs: Mapping[str, float], profiles: Sequence[str], against: str) -> str:
    yardstick = costs.get(against, 0.0)
    return "".join(f"<td>{_cell(costs.get(profile), yardstick, own=profile == against)}</td>" for profile in profiles)


def _session(session: Replayed, profiles: Sequence[str], against: str, place: str) -> str:
    name = said(session.title or session.id, 60)
    linked = f'<a href="#{place}">{name}</a>' if place else name
    costs = {profile: session.profiles[profile].cost.total for profile in profiles if profile in session.profiles}
    cells = _costs(costs, profiles, against)
    return f'<tr><th scope="row" dir="auto">{linked}</th><td>{amount(session.tokens)}</td>{cells}</tr>\n'


def _cell(usd: float | None, yardstick: float, *, own: bool) -> str:
    if usd is None:
        return "–"
    return money(usd) if own or not yardstick else f"{money(usd)}<small>{times(usd / yardstick)}</small>"
