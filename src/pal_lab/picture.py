"""Overview as one SVG with the figures of a replay: the data flow, context sizes, costs, and a fold that was undone."""

from typing import NamedTuple

from pal.replay.drawing import Plot, dollars, downsampled, ratio_text, short_number, snippet
from pal.replay.outcome import CardRun, Outcome, ReplayedSession, ratio

_WIDTH, _HEIGHT = 960, 396
_PLOT = (272, 96)
_BAR_AT, _BAR_WIDE = 464, 330


class RequestBytes(NamedTuple):
    """A request: a label for its time, its digest, and its size in bytes."""

    words: str
    digest: str
    size: int


def picture(run: CardRun, against: str, requests: tuple[RequestBytes, ...]) -> str:
    """Return a self-contained SVG; `requests` are those before a fold, after it, and after its undo."""
    session = run.sessions[0]
    shown = [name for name in (next(iter(session.profiles)), against) if name in session.profiles]
    plots = "".join(_context_chart(session.profiles[name], run, 20, 124 + number * 130, number) for number, name in enumerate(shown))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="t d" '
        'font-family="ui-sans-serif, system-ui, sans-serif" font-size="13">\n'
        f'<title id="t">Log, view, wire, model</title>\n<desc id="d">{_description(run, session, against)}</desc>\n'
        f"<style>{_STYLE}</style>\n{_FLOW}{plots}{_cost_bars(session, against)}{_undo_rows(requests)}"
        f'<text class="soft small" x="20" y="{_HEIGHT - 6}">{_caption(run, session)}</text>\n</svg>\n'
    )


def _caption(run: CardRun, session: ReplayedSession) -> str:
    calls = max(len(outcome.calls) for outcome in session.profiles.values())
    card = f"{snippet(run.card, 40)}, window {short_number(run.window)}, cache {snippet(run.ttl, 10)}"
    return f"One synthetic session, {session.events:,} events, up to {calls:,} requests, {card}. Made by: pal demo --picture OUT"


def _description(run: CardRun, session: ReplayedSession, against: str) -> str:
    costs = ", ".join(f"{snippet(name, 40)} {dollars(outcome.cost.total)}" for name, outcome in session.profiles.items())
    return (
        "Events are appended to a log, the log is projected to a view, the view is encoded and reaches a model; edits and undos are events "
        f"too. Below: the context of two profiles call by call, and what one session costs under each with "
        f"{snippet(run.card, 40)}: {costs}; "
        f"ratios are against {snippet(against, 40)}. After an undo the request has the same bytes as before the fold."
    )


def _context_chart(outcome: Outcome, run: CardRun, x: int, y: int, number: int) -> str:
    width, height = _PLOT
    turns = [call for call in outcome.calls if call.purpose == "turn"]
    plot = Plot(turns[-1].step, run.window * 1.02, height, head=8, foot=2)
    points = [(float(call.step), float(call.tokens)) for call in turns]
    folds = [plot.dot(edit.step, edit.billed_before, "fold", "fold", 3.5) for edit in outcome.edits if edit.kind == "fold"]
    masks = [plot.dot(edit.step, edit.billed_after, "mask", "mask", 2) for edit in outcome.edits if edit.kind == "mask"][:60]
    window = plot.y(run.window)
    pieces = (
        f'<line class="window" x1="0" x2="100%" y1="{window}" y2="{window}"/>',
        plot.line(downsampled(points, 300), f"trace trace-{number}", filled=True),
        *masks,
        *folds,
        f'<line class="axis" x1="0" x2="100%" y1="{plot.y(0)}" y2="{plot.y(0)}"/>',
    )
    sizes = f"mean {short_number(sum(size for _, size in points) / len(points))} tokens"
    head = f'<text class="strong" x="{x}" y="{y}">{snippet(outcome.profile, 24)}</text>'
    side = f'<text class="soft small" x="{x + width}" y="{y}" text-anchor="end">{sizes}</text>'
    return f'{head}{side}\n<svg x="{x}" y="{y + 6}" width="{width}" height="{height}">{"".join(pieces)}</svg>\n'


def _cost_bars(session: ReplayedSession, against: str) -> str:
    costs = {name: outcome.cost.total for name, outcome in session.profiles.items()}
    highest_usd, baseline = max(costs.values()) or 1.0, costs.get(against, 0.0)
    rows = []
    for number, (name, usd) in enumerate(costs.items()):
        y = 146 + number * 23
        width = usd * _BAR_WIDE / highest_usd
        css_class = "ours" if number == 0 else "theirs"
        rows.append(
            f'<text class="ink" x="{_BAR_AT - 10}" y="{y}" text-anchor="end">{snippet(name, 24)}</text>'
            f'<rect class="{css_class}" x="{_BAR_AT}" y="{y - 12}" width="{width:.1f}" height="16" rx="2"/>'
            f'<text class="soft small" x="{_BAR_AT + width + 6:.1f}" y="{y}">{dollars(usd)}, {ratio_text(ratio(usd, baseline))}</text>\n'
        )
    return f'<text class="strong" x="324" y="124">What the same session costs</text>\n{"".join(rows)}'


def _undo_rows(requests: tuple[RequestBytes, ...]) -> str:
    rows = []
    for number, one in enumerate(requests):
        y = 310 + number * 20
        css_class = "word-edit" if number == 1 else "word-undo" if number == 2 else "ink"
        rows.append(
            f'<text class="{css_class}" x="324" y="{y}">{one.words}</text>'
            f'<text class="code {css_class}" x="444" y="{y}">sha256 {one.digest[:24]}…</text>'
            f'<text class="code soft" x="{_WIDTH - 20}" y="{y}" text-anchor="end">{one.size:,} bytes</text>\n'
        )
    same = "the same bytes: an edit is an event, and so is its undo" if requests[0].digest == requests[-1].digest else "not the same bytes"
    verdict = f'<text class="word-undo small" x="444" y="368">{same}</text>\n'
    return f'<text class="strong" x="324" y="286">A fold, and its undo</text>\n{"".join(rows)}{verdict}'


_STYLE = """
:root{--ink:#1f2933;--soft:#52606d;--line:#9aa5b1;--paper:#fff;--edit:#b44d12;--undo:#14746f;--ours:#12805c;--theirs:#9aa5b1}
@media (prefers-color-scheme:dark){:root{--ink:#e4e7eb;--soft:#9aa5b1;--line:#616e7c;--paper:#1b232c;--edit:#f7a072;--undo:#63d2c6;
--ours:#57c99b;--theirs:#616e7c}}
.ink{fill:var(--ink)}.soft{fill:var(--soft)}.small{font-size:11.5px}.strong{fill:var(--ink);font-weight:600}
.box{fill:var(--paper);stroke:var(--line)}.arrow{stroke:var(--line);stroke-width:1.6;fill:none}.head{fill:var(--line)}
.code{font-family:ui-monospace,monospace;font-size:11.5px}.word-edit{fill:var(--edit)}.word-undo{fill:var(--undo)}
.ours{fill:var(--ours)}.theirs{fill:var(--theirs)}
.trace{color:var(--ours)}.trace-1{color:var(--soft)}
.trace .line{fill:none;stroke:currentColor;vector-effect:non-scaling-stroke}.trace .area{fill:currentColor;fill-opacity:.15}
.window{stroke:var(--edit);stroke-dasharray:5 4}.axis{stroke:var(--line)}
.fold{fill:var(--edit)}.mask{fill:none;stroke:var(--edit)}
"""


def _box(x: int, width: int, name: str, words: str) -> str:
    return (
        f'<rect class="box" x="{x}" y="16" width="{width}" height="44" rx="5"/>'
        f'<text class="strong" x="{x + width / 2}" y="34" text-anchor="middle">{name}</text>'
        f'<text class="soft small" x="{x + width / 2}" y="51" text-anchor="middle">{words}</text>\n'
    )


def _arrow(x: int, width: int, words: str) -> str:
    tip = x + width
    return (
        f'<path class="arrow" d="M{x} 38H{tip - 6}"/><path class="head" d="M{tip - 8} 34l8 4-8 4z"/>'
        f'<text class="soft small" x="{x + width / 2 - 2}" y="31" text-anchor="middle">{words}</text>\n'
    )


_FLOW = (
    _box(20, 190, "log", "only ever appended to")
    + _arrow(214, 72, "project")
    + _box(290, 190, "view", "what the model sees")
    + _arrow(484, 72, "encode")
    + _box(560, 170, "wire", "the exact bytes")
    + _arrow(734, 72, "send")
    + _box(810, 130, "model", "of any provider")
    + '<path class="arrow" d="M875 60V76H115V68"/><path class="head" d="M111 70l4-8 4 8z"/>'
    '<text class="soft small" x="495" y="89" text-anchor="middle">replies, results, edits and undos become events of the same log</text>\n'
)
