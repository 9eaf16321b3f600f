"""What is left after the first, second and nth fold, and how many probes can still be answered: curves, one colour for each profile."""

from collections.abc import Mapping, Sequence

from palimpsest.lab.outcome import Outcome, Probed, Survival
from palimpsest.lab.page_plot import Plane
from palimpsest.lab.page_words import SURVIVAL_WORDS, figure, legend, percent, said

Curve = Sequence[tuple[int, float]]

_LEVELS = ((0.0, "0 %"), (0.5, "50 %"), (1.0, "100 %"))
_FOLDS = 20


def survivals(by_profile: Mapping[str, Sequence[Outcome]], colours: Mapping[str, str]) -> str:
    """Curves of each kind of thing over folds: the mean over the sessions that had so many."""
    after = {name: _after_folds(outcomes) for name, outcomes in by_profile.items()}
    folded = {name: found for name, found in after.items() if found}
    unfolded = [said(name, 40) for name, found in after.items() if not found]
    rest = f'<p class="note">Without a fold, so that nothing was lost by one: {", ".join(unfolded)}.</p>\n' if unfolded else ""
    if not folded:
        return rest
    panels = "".join(
        figure(
            words,
            _curves({name: [(nth, getattr(mean, kind)) for nth, mean in found] for name, found in folded.items()}, colours, words, "fold"),
        )
        for kind, words in SURVIVAL_WORDS.items()
    )
    keys = legend([(colours[name], said(name, 40)) for name in folded])
    return f'{keys}<div class="panels three">\n{panels}</div>\n{rest}'


def probes(by_profile: Mapping[str, Mapping[str, Probed]], colours: Mapping[str, str]) -> str:
    """Curves of answered probes over forced compactions; nothing when no probes were asked for."""
    asked = {name: sorted((int(cycles), probed) for cycles, probed in found.items()) for name, found in by_profile.items() if found}
    if not asked:
        return ""
    kinds = (("visible", "answered from what shows"), ("with_recall", "answered with one recall"))
    panels = "".join(
        figure(
            words,
            _curves(
                {name: [(cycle, getattr(one, kind)) for cycle, one in found] for name, found in asked.items()}, colours, words, "cycle"
            ),
        )
        for kind, words in kinds
    )
    made = [f"{said(name, 40)} {last.folds:,} of {last.forced:,}" for name, found in asked.items() if (last := found[-1][1]).forced]
    note = f'<p class="note">Folds that were made in the last of these, of all that were forced: {", ".join(made)}.</p>\n' if made else ""
    return f'{legend([(colours[name], said(name, 40)) for name in asked])}<div class="panels">\n{panels}</div>\n{note}'


def _after_folds(outcomes: Sequence[Outcome]) -> list[tuple[int, Survival]]:
    """The mean survival after the nth fold, of the sessions that had an nth."""
    of_each = [[edit.survival for edit in outcome.edits if edit.survival is not None] for outcome in outcomes]
    found = []
    for nth in range(min(_FOLDS, max(map(len, of_each), default=0))):
        there = [folds[nth] for folds in of_each if nth < len(folds)]
        mean = Survival(**{kind: sum(float(getattr(one, kind)) for one in there) / len(there) for kind in SURVIVAL_WORDS})
        found.append((nth + 1, mean))
    return found


def _curves(by_profile: Mapping[str, Curve], colours: Mapping[str, str], words: str, unit: str) -> str:
    last = max((nth for curve in by_profile.values() for nth, _ in curve), default=1)
    # Room before the first fold, so that no curve runs through the words of the axis; a single fold stands in the middle.
    plane = Plane(last, 1.0, 130, first=1 - (last - 1) * 0.22) if last > 1 else Plane(2.0, 1.0, 130)
    pieces = [*plane.grid(_LEVELS)]
    for number, (name, curve) in enumerate(by_profile.items()):
        # Where curves lie upon each other the later ones are thinner, so that all of them can be seen.
        width = max(1.4, 5.4 - number * 0.9)
        pieces.append(plane.line(curve, f"trace {colours[name]}", width=width) if len(curve) > 1 else "")
        pieces += [
            plane.dot(nth, share, colours[name], f"{said(name, 40)}, {unit} {nth}: {percent(share)}", width / 2 + 1.6)
            for nth, share in curve
        ]
    marks = sorted({nth for curve in by_profile.values() for nth, _ in curve})
    pieces.append(f'<text class="tick" x="0" y="{plane.height - 4}">{unit}</text>')
    pieces += plane.feet([(nth, str(nth)) for nth in (marks if len(marks) <= 10 else (1, last))], inside=False)
    ends = "; ".join(f"{said(name, 40)} {percent(curve[-1][1])}" for name, curve in by_profile.items() if curve)
    return plane.drawn(f"{words} after the last {unit}: {ends}", pieces)
