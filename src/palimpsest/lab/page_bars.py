"""What each profile costs: one bar each, stacked by part, all on one scale."""

from collections.abc import Iterable, Mapping

from palimpsest.lab.outcome import Outcome, ratio
from palimpsest.lab.page_words import legend, money, percent, said, times
from palimpsest.wire.prices import FREE

PARTS = {
    "cache_read": "cache reads",
    "cache_write": "cache writes",
    "input": "uncached input",
    "output": "output",
    "summaries": "summaries",
    "rereads": "re-reads",
}
"""What a bar is made of: the calls of the conversation by part, then what was asked for summaries, then what had to be fetched again."""


def parts_of(outcomes: Iterable[Outcome]) -> dict[str, float]:
    """Dollars by the parts of a bar; together they are the whole bill."""
    calls = [call for outcome in outcomes for call in outcome.calls]
    own = sum((call.cost for call in calls if call.purpose == "turn"), FREE)
    return {
        "cache_read": own.cache_read,
        "cache_write": own.cache_write + own.cache_write_long,
        "input": own.input,
        "output": own.output,
        "summaries": sum(call.cost.total for call in calls if call.purpose == "summary"),
        "rereads": sum(call.cost.total for call in calls if call.purpose == "reread"),
    }


def bars(by_profile: Mapping[str, dict[str, float]], against: str = "") -> str:
    """The bars, the cheapest scale being the dearest profile; `against` is the profile whose end is marked in every bar."""
    dearest = max((sum(parts.values()) for parts in by_profile.values()), default=0.0)
    yardstick = sum(by_profile.get(against, {}).values())
    used = {name for parts in by_profile.values() for name, usd in parts.items() if usd > 0}
    keys = legend([(f"part-{name}", words) for name, words in PARTS.items() if name in used])
    if yardstick:
        line = '<svg class="key yardstick" width="12" height="12" aria-hidden="true"><line x1="6" x2="6" y1="0" y2="12"/></svg>'
        keys = keys.replace("</ul>", f"<li>{line}what {said(against, 40)} costs</li></ul>")
    rows = "".join(_row(name, parts, dearest, yardstick) for name, parts in by_profile.items())
    return f'{keys}<div class="bars" role="table">\n{rows}</div>\n'


def _row(profile: str, parts: dict[str, float], dearest: float, yardstick: float) -> str:
    total = sum(parts.values())
    drawn, at = [], 0.0
    for name, words in PARTS.items():
        usd = parts[name]
        if usd <= 0:
            continue
        title = f"<title>{words}: {money(usd)}, {percent(usd / total)}</title>"
        place = f'x="{_share(at, dearest)}" width="{_share(usd, dearest)}"'
        drawn.append(f'<rect class="part-{name}" {place} height="100%">{title}</rect>')
        at += usd
    if yardstick:
        place = _share(yardstick, dearest)
        drawn.append(f'<line class="yardstick" x1="{place}" x2="{place}" y1="0" y2="100%"/>')
    words = ", ".join(f"{PARTS[name]} {money(usd)}" for name, usd in parts.items() if usd > 0)
    compared = f'<span class="times" role="cell">{times(ratio(total, yardstick))}</span>' if yardstick else ""
    return (
        f'<div class="bar" role="row"><span class="who" role="rowheader">{said(profile, 40)}</span>'
        f'<span class="drawn" role="cell"><svg width="100%" height="22" role="img" aria-label="{words}">{"".join(drawn)}</svg></span>'
        f'<span class="sum" role="cell">{money(total)}</span>{compared}</div>\n'
    )


def _share(usd: float, dearest: float) -> str:
    return f"{usd * 100 / dearest:.3f}%" if dearest else "0%"
