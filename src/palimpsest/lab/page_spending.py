"""The bill as it grows, call by call: one line for each profile, so that one sees when an edit begins to pay."""

from itertools import accumulate

from palimpsest.lab.outcome import Outcome, Replayed
from palimpsest.lab.page_plot import Plane, Point, steps_to, thinned
from palimpsest.lab.page_words import legend, money, said


def spending(session: Replayed, colours: dict[str, str]) -> str:
    """All profiles of a session in one drawing."""
    bills = {name: _grown(outcome) for name, outcome in session.profiles.items() if outcome.calls}
    if not bills:
        return ""
    most = max(bill[-1][1] for bill in bills.values())
    last = max(bill[-1][0] for bill in bills.values())
    plane = Plane(last, most, 220)
    pieces = [*plane.grid([(0.0, ""), *((level, money(level)) for level in steps_to(most, 5) if level)])]
    for name, bill in bills.items():
        pieces.append(plane.line(thinned(bill), f"trace {colours[name]}", width=2))
        pieces.append(plane.dot(*bill[-1], colours[name], f"{said(name, 40)}: {money(bill[-1][1])}", 4))
    pieces += plane.feet([(0, "call 1"), (last, f"call {last + 1:,.0f}")])
    ends = ", ".join(f"{said(name, 40)} {money(bill[-1][1])}" for name, bill in bills.items())
    return legend([(colours[name], said(name, 40)) for name in bills]) + plane.drawn(f"The bill after the last call: {ends}", pieces)


def _grown(outcome: Outcome) -> list[Point]:
    """Steps and what had been spent by then; summaries and re-reads belong to the step that asked for them."""
    calls = sorted(outcome.calls, key=lambda call: call.step)
    spent = accumulate(call.cost.total for call in calls)
    return [(float(call.step), usd) for call, usd in zip(calls, spent, strict=True)]
