"""How full the window was, call by call: one drawing for each profile on the same axes, with its edits marked."""

from collections.abc import Iterator
from itertools import pairwise

from palimpsest.lab.outcome import CardRun, Edited, Outcome, Replayed
from palimpsest.lab.report.markup import amount, colour, figure, money, said
from palimpsest.lab.report.plot import Plane, steps_to, thinned

_LIVES = {"5m": 300_000, "1h": 3_600_000}
_MARKED, _CROWDED = 400, 60
_AFTERWARDS = frozenset({"after_call", "turn_ends"})
_MARKS = (
    ("fold", "fold"),
    ("mask", "mask or other edit"),
    ("reread", "re-read: something hidden was needed"),
    ("pause", "pause in which the cache grew cold"),
)


def context(run: CardRun, session: Replayed, colours: dict[str, str]) -> str:
    """The drawings of one session."""
    most = max((call.tokens for outcome in session.profiles.values() for call in outcome.calls if call.purpose == "turn"), default=0)
    last = max((call.step for outcome in session.profiles.values() for call in outcome.calls), default=0)
    # A recording that never came near the window is drawn in its own size, for the window would press it flat; and what runs far over
    # the window is cut off above it, for it would press flat the others.
    top = min(max(most, run.window * 1.02), run.window * 1.15) if most > run.window / 3 else most
    panels = "".join(
        figure(
            f'<b class="{colours.get(name, colour(0))}">{said(name, 40)}</b> {_summary(outcome)}{_stopped(outcome)}',
            _drawn(outcome, run, (top, last), colours.get(name, colour(0))),
        )
        for name, outcome in session.profiles.items()
    )
    marks = "".join(f"<li>{_key(look)}{words}</li>" for look, words in _MARKS)
    return f'<ul class="legend">{marks}</ul>\n<div class="panels">\n{panels}</div>\n'


def _key(look: str) -> str:
    shape = '<line x1="6" x2="6" y1="1" y2="11"/>' if look in {"reread", "pause"} else f'<circle cx="6" cy="6" r="{_size(look)}"/>'
    return f'<svg class="mark {look}" width="12" height="12" aria-hidden="true">{shape}</svg>'


def _size(look: str) -> float:
    return 4.5 if look == "fold" else 2.5


def _summary(outcome: Outcome) -> str:
    sizes = [call.tokens for call in outcome.calls if call.purpose == "turn"]
    if not sizes:
        return "no call"
    return f"peak {amount(max(sizes))}, mean {amount(sum(sizes) / len(sizes))}"


def _stopped(outcome: Outcome) -> str:
    return f', <span class="bad">stopped: {said(outcome.stopped)}</span>' if outcome.stopped else ""


def _drawn(outcome: Outcome, run: CardRun, ends: tuple[float, int], look: str) -> str:
    top, last = ends
    plane = Plane(last, top)
    turns = [call for call in outcome.calls if call.purpose == "turn"]
    points = [(float(call.step), float(call.tokens)) for call in turns]
    levels = [(level, amount(level)) for level in steps_to(top, 4) if level]
    pieces = [*plane.grid([(0, ""), *levels]), *_pauses(outcome, plane, run.ttl)]
    if run.window <= top:
        at = plane.y(run.window)
        pieces.append(f'<line class="window" x1="0" x2="100%" y1="{at}" y2="{at}"><title>the window: {run.window:,} tokens</title></line>')
    pieces.append(plane.line(thinned(points), f"trace {look}", filled=True))
    pieces += _edits(outcome, plane)
    for reread in outcome.rereads[:_MARKED]:
        title = f"call {reread.step + 1}: {amount(reread.tokens)} tokens read again for {said(', '.join(reread.names), 120)}"
        pieces.append(_tick(plane.x(reread.step), "reread", (plane.height - 26, plane.height - 18), title))
    pieces += plane.feet([(0, "call 1"), (last, f"call {last + 1:,}")])
    edits = f"{len(outcome.edits)} edits, {len(outcome.rereads)} re-reads"
    return plane.drawn(f"Context of {said(outcome.profile, 40)}, call by call: {_summary(outcome)}; {edits}", pieces)


def _edits(outcome: Outcome, plane: Plane) -> Iterator[str]:
    """Folds above all else, for they matter most; a fold falls from what was there to what is left."""
    masks = [edit for edit in outcome.edits if edit.kind != "fold"]
    # Marks that stand side by side all along would hide the line they are on.
    size = _size("mask") if len(masks) <= _CROWDED else 1.4
    for edit in masks[:: max(1, -(-len(masks) // _MARKED))]:
        yield plane.dot(_place(edit, outcome), edit.billed_after, "mask" if len(masks) <= _CROWDED else "mask small", _words(edit), size)
    for edit in [edit for edit in outcome.edits if edit.kind == "fold"][:_MARKED]:
        place, title = _place(edit, outcome), _words(edit)
        x, ends = plane.x(place), f'y1="{plane.y(edit.billed_before)}" y2="{plane.y(edit.billed_after)}"'
        yield f'<line class="fall" x1="{x}" x2="{x}" {ends}/>'
        yield plane.dot(place, edit.billed_before, "fold", title, _size("fold"))


def _place(edit: Edited, outcome: Outcome) -> int:
    """The first call that shows what an edit did."""
    return min(edit.step + (edit.moment in _AFTERWARDS), outcome.calls[-1].step)


def _words(edit: Edited) -> str:
    price = "" if edit.price_usd is None else f", price {money(edit.price_usd)}"
    sizes = f"{amount(edit.billed_before)} → {amount(edit.billed_after)} tokens"
    return f"call {edit.step + 1}: {edit.kind} by {said(edit.by, 40)}, {sizes}{price}: {said(edit.why)}"


def _pauses(outcome: Outcome, plane: Plane, ttl: str) -> Iterator[str]:
    """Ticks at the top where nobody called for longer than a cache entry lives."""
    life = _LIVES.get(ttl, _LIVES["5m"])
    turns = [call for call in outcome.calls if call.purpose == "turn"]
    cold = [(after.step, after.at - before.at) for before, after in pairwise(turns) if after.at - before.at > life]
    for step, gap in cold[:_MARKED]:
        yield _tick(plane.x(step), "pause", (0, 7), f"call {step + 1}: {gap // 60_000:,} minutes after the one before")


def _tick(x: str, look: str, ends: tuple[int, int], title: str) -> str:
    return f'<line class="mark {look}" x1="{x}" x2="{x}" y1="{ends[0]}" y2="{ends[1]}"><title>{title}</title></line>'
