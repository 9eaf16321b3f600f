"""Charts of the context size call by call, one for each profile on the same axes, with marks for edits, re-reads and pauses."""

from collections.abc import Iterator
from itertools import pairwise

from palimpsest.core.format.texts import counted
from palimpsest.lab.outcome import CardRun, Outcome, ReplayedEdit, ReplayedSession
from palimpsest.lab.report.markup import colour_class, dollars, panels, profile_title, short_number, snippet
from palimpsest.lab.report.plot import Plot, axis_steps, downsampled

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
