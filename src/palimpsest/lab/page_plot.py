"""Lines on axes, drawn so that letters keep their size on any screen: shapes stretch, words and dots do not."""

from collections.abc import Iterable, Iterator, Sequence
from math import floor, log10

Point = tuple[float, float]

WIDE = 1000
"""How many units a stretched shape is wide."""


def steps_to(top: float, most: int = 4) -> list[float]:
    """Round numbers from nothing up to `top`, at most so many above nothing."""
    if top <= 0:
        return [0.0]
    rough = top / most
    size = 10.0 ** floor(log10(rough))
    step = next(size * by for by in (1, 2, 2.5, 5, 10) if size * by >= rough * 0.999)
    return [step * number for number in range(int(top / step + 1e-9) + 1)]


def thinned(points: Sequence[Point], most: int = 600) -> list[Point]:
    """As many points as a screen can show: of each stretch the lowest and the highest, so that no peak is lost."""
    if len(points) <= most:
        return list(points)
    stretch = len(points) * 2 / most
    found: list[Point] = [points[0]]
    for number in range(most // 2):
        part = points[int(number * stretch) : max(int((number + 1) * stretch), int(number * stretch) + 1)]
        found += sorted({min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])})
    return [*found, points[-1]]


class Plane:
    """A drawing of some height: `across` and `up` are the largest values of its axes, `head` and `foot` the room left for words."""

    def __init__(self, across: float, up: float, height: int = 170, *, first: float = 0.0, head: int = 14, foot: int = 18) -> None:
        self.height = height
        self._first = first
        self._across = max(across - first, 1e-9)
        self._up = max(up, 1e-9)
        self._head = head
        self._room = height - head - foot

    def x(self, value: float) -> str:
        """A place across, as a share of the width."""
        return f"{(value - self._first) * 100 / self._across:.2f}%"

    def y(self, value: float) -> str:
        """A place up, in pixels from the top."""
        return f"{self._head + self._room * (1 - value / self._up):.1f}"

    def grid(self, levels: Iterable[tuple[float, str]]) -> Iterator[str]:
        """Level lines, each with its words above its beginning."""
        for level, words in levels:
            at = self.y(level)
            yield f'<line class="grid" x1="0" x2="100%" y1="{at}" y2="{at}"/>'
            if words:
                yield f'<text class="tick" x="0" y="{float(at) - 3:.1f}">{words}</text>'

    def feet(self, words: Sequence[tuple[float, str]], *, inside: bool = True) -> Iterator[str]:
        """Words below the axis; the last, and the first unless there is room before it, stay within the drawing."""
        for number, (value, text) in enumerate(words):
            last = number == len(words) - 1 and number > 0
            anchor = "start" if number == 0 and inside else "end" if last else "middle"
            yield f'<text class="tick" x="{self.x(value)}" y="{self.height - 4}" text-anchor="{anchor}">{text}</text>'

    def line(self, points: Sequence[Point], look: str, *, filled: bool = False, width: float = 1.6) -> str:
        """A line through points, stretched to the width; with the area under it if it is filled."""
        places = [f"{(x - self._first) * WIDE / self._across:.1f} {self.y(y)}" for x, y in points]
        if not places:
            return ""
        path = "M" + "L".join(places)
        ends = (places[-1].split()[0], self.y(0), places[0].split()[0], self.y(0))
        area = f'<path class="area" d="{path}L{ends[0]} {ends[1]}L{ends[2]} {ends[3]}Z"/>' if filled else ""
        return (
            f'<svg class="{look}" width="100%" height="{self.height}" viewBox="0 0 {WIDE} {self.height}" preserveAspectRatio="none">'
            f'{area}<path class="line" stroke-width="{width:.1f}" d="{path}"/></svg>'
        )

    def dot(self, x: float, y: float, look: str, title: str, size: float = 3.5) -> str:
        """A dot with the words that show when one points at it; the words are markup already."""
        return f'<circle class="{look}" cx="{self.x(x)}" cy="{self.y(y)}" r="{size}"><title>{title}</title></circle>'

    def drawn(self, label: str, pieces: Iterable[str]) -> str:
        """The whole drawing; the label is markup already."""
        return f'<svg class="plot" width="100%" height="{self.height}" role="img" aria-label="{label}">\n{"".join(pieces)}\n</svg>\n'
