"""Markup, number formats and CSS that all parts of a report share."""

from collections.abc import Iterable, Mapping
from html import escape

from palimpsest.foreign.exporting.formatting import headline
from palimpsest.lab.outcome import SurvivalShares

PALETTE = 9
"""Number of distinct profile colours; further profiles reuse them."""

SURVIVAL_WORDS = {
    "user_messages": "what the user said",
    "edited_paths": "files that were edited",
    "read_paths": "files that were read",
    "commands": "commands",
    "numbers": "numbers",
}
"""Kinds of entities that can survive a fold, most important first."""

PARTS = {
    "cache_read": "cache reads",
    "cache_write": "cache writes",
    "input": "uncached input",
    "output": "output",
    "summaries": "summaries",
    "rereads": "re-reads",
    "keep_alive": "keep-alive",
}
"""Parts of a cost bar: turn calls by part of the bill, then summaries, re-reads, and requests that keep the cache alive."""

WINDOW_GROUPS = {
    "head": ("head and tools", "c5"),
    "user": ("the user", "c0"),
    "assistant": ("replies and calls", "c2"),
    "result": ("results of tools", "c4"),
    "summary": ("summaries", "c3"),
    "context": ("context and reminders", "c7"),
    "other": ("other", "c8"),
}
"""Groups of items in a window, with their titles and colours."""


def snippet(text: str, width: int = 160) -> str:
    """Return the beginning of a text on one line, escaped for HTML.

    Slashes of URLs are escaped too, so that a search of the file finds no URL.
    """
    return escape(headline(text, width)).replace("//", "&#47;&#47;")


def short_number(number: float) -> str:
    """Format a count in a few characters: 950, 9.5k, 163k, 1.2M."""
    if number < 1_000:
        return f"{number:.0f}"
    if number < 9_950:
        return f"{number / 1_000:.1f}k".replace(".0k", "k")
    return f"{number / 1_000:.0f}k" if number < 999_500 else f"{number / 1_000_000:.1f}M"


def dollars(usd: float | None) -> str:
    """Format dollars, with four decimals for small amounts; `unknown` for `None`."""
    if usd is None:
        return "unknown"
    sign, size = "−" if usd < 0 else "", abs(usd)
    return f"{sign}${size:,.2f}" if size >= 0.095 or size < 0.00005 else f"{sign}${size:.4f}"


def percent(share: float) -> str:
    """Format a share from 0 to 1, with a decimal near its ends, so that only 0 and 1 read as 0 % and 100 %."""
    if 0 < share < 0.0005:
        return "&lt;0.1 %"
    if 0.9995 <= share < 1:
        return "99.9 %"
    return f"{share * 100:.1f} %" if 0 < share < 0.0095 or 0.995 <= share < 1 else f"{share * 100:.0f} %"


def ratio_text(ratio: float | None) -> str:
    """Format a ratio; a dash for None."""
    return "–" if ratio is None else f"{ratio:.2f}×"


def mean_survival(survival: SurvivalShares) -> float:
    """Return the mean over all kinds except numbers, most of which are never needed again."""
    kinds = [name for name in SURVIVAL_WORDS if name != "numbers"]
    return sum(float(getattr(survival, name)) for name in kinds) / len(kinds)


def colour_class(number: int) -> str:
    """Return the CSS class of the profile with this number."""
    return f"c{number % PALETTE}"


def profile_title(name: str, colours: Mapping[str, str]) -> str:
    """Return the name of a profile in its colour."""
    return f'<b class="{colours.get(name, colour_class(0))}">{snippet(name, 40)}</b>'


def panels(drawings: Iterable[tuple[str, str]], style: str = "panels") -> str:
    """Return drawings beside each other, from pairs of a title and a drawing; both are markup."""
    figures = "".join(f'<figure class="panel"><figcaption>{title}</figcaption>\n{inner}</figure>\n' for title, inner in drawings)
    return f'<div class="{style}">\n{figures}</div>\n'


def profile_legend(names: Iterable[str], colours: Mapping[str, str]) -> str:
    """Return the legend of some profiles."""
    return legend((colours[name], snippet(name, 40)) for name in names)


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """Return a legend from pairs of a CSS class and a label, which is markup."""
    keys = "".join(
        f'<li><svg class="key {style}" width="12" height="12" aria-hidden="true"><rect width="12" height="12" rx="2"/></svg>{words}</li>'
        for style, words in entries
    )
    return f'<ul class="legend">{keys}</ul>\n'


def scrollable_table(heads: Iterable[str], rows: Iterable[str], style: str) -> str:
    """Return a table in a box that scrolls, also by keyboard, if it is wider than the screen; a head is a label or a whole cell."""
    head = "".join(cell if cell.startswith("<th") else f"<th>{cell}</th>" for cell in heads)
    table = f'<table class="{style}">\n<thead><tr>{head}</tr></thead><tbody>\n{"".join(rows)}</tbody></table>'
    return f'<div class="wide" tabindex="0" role="region" aria-label="table">{table}</div>\n'


PAGE_STYLE = """
:root{--c0:#12805c;--c1:#c24e16;--c2:#2f6fd0;--c3:#8a4fc7;--c4:#8f6a00;--c5:#6b7280;--c6:#c4326f;--c7:#0b7a8c;--c8:#8b5e3c;
--cache-read:#4c83d6;--cache-write:#e0a32e;--input:#8f8a80;--output:#3c9a73;--summaries:#8a4fc7;--rereads:#cf3f36;--keep-alive:#2f9fb3}
@media (prefers-color-scheme:dark){:root{--c0:#57c99b;--c1:#f08a57;--c2:#78a9f5;--c3:#bf94ee;--c4:#dcb340;--c5:#a3aab5;--c6:#f07fae;
--c7:#4fc3d6;--c8:#c79b77;--cache-read:#6d9fe8;--cache-write:#d9a440;--input:#8a857a;--output:#55b78d;--summaries:#b387e6;--rereads:#f0746b;--keep-alive:#4fc3d6}}
body{max-width:76rem}
.kicker{margin:0;color:var(--faint);font-size:.85rem}
header h1{margin-bottom:.25rem}
.facts{margin:0 0 1rem;color:var(--faint);font-size:.9rem}
.answer{font-size:1.15rem;line-height:1.45;margin:1rem 0;max-width:52rem}
.answer b{font-size:1.5rem;color:var(--user)}.answer .worse{color:var(--bad)}.answer span{white-space:nowrap}
h3{font-size:1.05rem;margin:2.25rem 0 .6rem}
h4{font-size:.9rem;margin:1rem 0 .3rem}
.bad{color:var(--bad)}
.note{color:var(--faint);font-size:.85rem}
figcaption{overflow-wrap:anywhere}
svg{display:block;overflow:visible}
.wide{overflow-x:auto;margin:.5rem 0}
table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums;width:100%}
th,td{padding:.3rem .6rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
thead th{font-weight:500;color:var(--faint);white-space:nowrap}
.compared td,.compared thead th:not(:first-child){text-align:right;white-space:nowrap}
.compared tbody th{font-weight:600;white-space:nowrap;position:sticky;left:0;background:var(--page)}
.each tbody th{white-space:normal;overflow-wrap:anywhere;min-width:9rem}
.compared tr:last-child>*{border-bottom:0}
td small{display:block;color:var(--faint);font-size:.92em;overflow-wrap:anywhere}
.compared td small{display:inline;margin-left:.35rem}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1rem;padding:0;margin:.3rem 0 .7rem;font-size:.82rem;color:var(--faint)}
.legend li{display:flex;align-items:center;gap:.35rem}
.key{display:inline-block;flex:none}
.bars{display:grid;gap:.35rem}
.bar{display:grid;grid-template-columns:11rem 1fr 4.5rem 3.5rem;gap:.75rem;align-items:center;font-size:.88rem}
.bar .who{overflow-wrap:anywhere;font-weight:600}
.bar .sum,.bar .times{text-align:right;font-variant-numeric:tabular-nums}
.bar .sum{margin:0;color:var(--ink);font-size:inherit}
.bar .times{color:var(--faint)}
.yardstick,.key.yardstick{stroke:var(--ink);stroke-width:1.5;stroke-dasharray:3 2}
.panels{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,26rem),1fr));gap:1.25rem 1.75rem}
.three{grid-template-columns:repeat(auto-fill,minmax(min(100%,19rem),1fr))}
.panel{margin:0;min-width:0}
.panel figcaption{font-size:.82rem;color:var(--faint);margin-bottom:.25rem}
.panel figcaption b{font-size:.9rem}
.plot .grid{stroke:var(--line);stroke-width:1}
.tick{fill:var(--faint);font-size:11px}
.trace .line{fill:none;stroke:currentColor;vector-effect:non-scaling-stroke;stroke-linejoin:round}
.plot .trace{overflow:hidden}
.trace .area{fill:currentColor;fill-opacity:.14;stroke:none}
.window{stroke:var(--bad);stroke-width:1;stroke-dasharray:5 4;opacity:.8}
.fold{fill:var(--edit);stroke:var(--page);stroke-width:1}
.fall{stroke:var(--edit);stroke-width:1.2;stroke-dasharray:2 2}
.mask{fill:var(--page);stroke:var(--edit);stroke-width:1.2}
.mask.small{fill:var(--edit);stroke:none}
.mark.reread,.mark.reread line{stroke:var(--rereads);stroke-width:2}
.mark.pause,.mark.pause line{stroke:var(--faint);stroke-width:1.2}
svg.mark.fold,svg.mark.mask{stroke:none;fill:none}
svg.mark.fold circle{fill:var(--edit)}
svg.mark.mask circle{fill:var(--page);stroke:var(--edit);stroke-width:1.2}
.map{border-radius:4px;overflow:hidden}
.map svg{overflow:hidden}
.map rect{fill-opacity:.28;stroke:var(--page);stroke-width:2}
.map .free{fill:none;stroke:var(--line);stroke-width:1;stroke-dasharray:4 3}
.map .name{font-size:12px;font-weight:600;fill:var(--ink)}
.map .tight{display:none}
.map .size{font-size:11px;fill:var(--ink);opacity:.8}
.losses .number{white-space:nowrap;text-align:right;width:1%}
.losses .number[data-word=event],.losses .number[data-word=call]{text-align:left}
.losses td:last-child{width:60%}
.losses details{margin:0;padding:0;border:0;background:none;font-size:inherit}
.losses p{margin:.3rem 0}
.losses code,footer code{font:12px/1.4 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;
background:var(--code);border-radius:3px;padding:0 .25rem;overflow-wrap:anywhere}
.events tr{scroll-margin-top:3rem}.events td:last-child{width:50%}
.events td b{margin-right:.15rem;cursor:default}
.session{background:none;border:0;border-top:1px solid var(--line);border-radius:0;padding:.75rem 0;margin:1.5rem 0 0;font-size:inherit}
.session>summary{font-size:1.1rem}
.events tr:target>*{background:color-mix(in srgb,var(--edit) 18%,transparent)}
footer p{max-width:52rem}
"""
PAGE_STYLE += "".join(f".part-{name}{{fill:var(--{name.replace('_', '-')})}}" for name in PARTS)
PAGE_STYLE += "".join(f".kind-{name}{{fill:var(--{colour})}}" for name, (_, colour) in WINDOW_GROUPS.items())
PAGE_STYLE += "".join(
    f".c{number}{{color:var(--c{number})}}circle.c{number},.key.c{number}{{fill:var(--c{number})}}" for number in range(PALETTE)
)
PAGE_STYLE += """
@media (max-width:40rem){main{overflow-x:clip}.compared tbody th{white-space:normal;min-width:6.5rem}
.map .tight{display:inline}.map .roomy{display:none}
.bar{grid-template-columns:1fr auto auto;gap:.1rem .75rem}.bar .drawn{grid-row:2;grid-column:1/-1}
.three{grid-template-columns:1fr 1fr;gap:.9rem}
.losses thead{display:none}.losses tr{display:flex;flex-wrap:wrap;gap:0 .9rem;padding:.5rem 0;border-bottom:1px solid var(--line)}
.losses td{display:block;border:0;padding:0}.losses td:empty{display:none}.losses td:last-child{flex-basis:100%}
.losses td small{display:inline;margin-left:.4rem}
.losses td:last-child small{display:block;margin:0}.losses td[data-word]::before{content:attr(data-word) " ";color:var(--faint)}}
@media print{.map .tight{display:inline}.map .roomy{display:none}.panels{padding-right:6px}
.wide{overflow:visible}figure,tr,.bar{break-inside:avoid}h3,h4,figcaption,.legend{break-after:avoid}
.compared tbody th{position:static}
.panels{grid-template-columns:1fr 1fr}.three{grid-template-columns:1fr 1fr 1fr}table{font-size:7.5pt}th,td{padding:.15rem .3rem}
details{border:0;padding:0}footer{margin-top:.6rem;font-size:7.5pt}footer p{margin:.2rem 0;max-width:none}
details:not([open])::details-content{content-visibility:hidden;block-size:0}}
@page{margin:14mm}
"""
