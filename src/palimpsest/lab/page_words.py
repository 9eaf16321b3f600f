"""Numbers and texts as the page of a replay shows them, and the few shapes of markup that all of its parts share."""

from html import escape

from palimpsest.foreign.showing import headline
from palimpsest.lab.outcome import Survival

PALETTE = 9
"""How many profiles have a colour of their own; more begin again."""

SURVIVAL_WORDS = {
    "user_messages": "what the user said",
    "edited_paths": "files that were edited",
    "read_paths": "files that were read",
    "commands": "commands",
    "numbers": "numbers",
}
"""The kinds of things that can survive a fold, in the order of what hurts most."""


def said(text: str, width: int = 160) -> str:
    """The beginning of a text from a session on one line, as markup that shows it and does nothing else.

    Addresses in it read as they are, but are none to whoever looks for some in the file.
    """
    return escape(headline(text, width)).replace("//", "&#47;&#47;")


def amount(number: float) -> str:
    """A count of tokens in a few characters: 950, 9.5k, 163k, 1.2M."""
    if number < 1_000:
        return f"{number:.0f}"
    if number < 9_950:
        return f"{number / 1_000:.1f}k".replace(".0k", "k")
    return f"{number / 1_000:.0f}k" if number < 999_500 else f"{number / 1_000_000:.1f}M"


def money(usd: float | None) -> str:
    """Dollars, with more places where there are few of them."""
    if usd is None:
        return "?"
    sign, size = "−" if usd < 0 else "", abs(usd)
    return f"{sign}${size:,.2f}" if size >= 0.095 or size < 0.00005 else f"{sign}${size:.4f}"


def percent(share: float) -> str:
    """A share of one, with a decimal near its ends: what is not all is never told as all, and what is something never as nothing."""
    if 0 < share < 0.0005:
        return "&lt;0.1 %"
    if 0.9995 <= share < 1:
        return "99.9 %"
    return f"{share * 100:.1f} %" if 0 < share < 0.0095 or 0.995 <= share < 1 else f"{share * 100:.0f} %"


def times(ratio: float | None) -> str:
    """A ratio."""
    return "–" if ratio is None else f"{ratio:.2f}×"


def mean_of(survival: Survival) -> float:
    """All kinds together, each with the same weight, but for numbers: most of them nobody needs twice."""
    kinds = [name for name in SURVIVAL_WORDS if name != "numbers"]
    return sum(float(getattr(survival, name)) for name in kinds) / len(kinds)


def colour(number: int) -> str:
    """The class that gives a profile its colour, by its place."""
    return f"c{number % PALETTE}"


def figure(title: str, inner: str, look: str = "") -> str:
    """A drawing with its title above it; both are markup already."""
    return f'<figure class="{look or "panel"}"><figcaption>{title}</figcaption>\n{inner}</figure>\n'


def legend(entries: list[tuple[str, str]]) -> str:
    """Colours and what they mean: pairs of a class and of words that are markup already."""
    keys = "".join(
        f'<li><svg class="key {look}" width="12" height="12" aria-hidden="true"><rect width="12" height="12" rx="2"/></svg>{words}</li>'
        for look, words in entries
    )
    return f'<ul class="legend">{keys}</ul>\n'


def scrolled(rows: str, look: str = "") -> str:
    """A table that may be wider than the screen, in a box that can be moved with the keyboard too."""
    return f'<div class="wide" tabindex="0" role="region" aria-label="table"><table class="{look or "plain"}">\n{rows}</table></div>\n'
