"""The drawing of dollars against re-reads: a line for each program, a dot for each of its settings, and nothing off the edge."""

from xml.etree import ElementTree as ET

from pal.replay.curve import CurvePoint, curve_chart
from pal.replay.outcome import CardRun
from pal_lab.cost.curve import curve_picture

RIVAL = "claude-code-2.1.325"
POINTS = (
    CurvePoint("palimpsest", 8.0, 10, 1.5, 80_000),
    CurvePoint("palimpsest@PAL_THRIFT=careful", 9.0, 4, 0.8, 99_000),
    CurvePoint("palimpsest@PAL_RESULTS=<0>", 9.5, 12, 1.0, 90_000),
    CurvePoint(f"{RIVAL}@CLAUDE_CODE_AUTO_COMPACT_WINDOW=113000", 8.5, 20, 4.0, 60_000),
    CurvePoint(RIVAL, 10.0, 12, 0.9, 105_000),
    CurvePoint("context-editing", 45.0, 30, 0.0, 80_000),
)

SVG = "{http://www.w3.org/2000/svg}"


def drawn(*points: CurvePoint) -> ET.Element:
    picture = curve_picture(CardRun("c", "5m", 0), points, "one card")
    return ET.fromstring(picture)  # noqa: S314 - made right here, so that no entity in it can be a trap


def test_a_line_joins_the_settings_of_a_program_that_no_other_beats() -> None:
    chart = curve_chart(POINTS)

    assert chart.count('class="line"') == 2
    assert chart.count("<circle") == len(POINTS)
    assert "palimpsest@PAL_THRIFT=careful: $9.00, 4 re-reads, 0.8 folds per 100 calls, mean context 99k" in chart
    assert ">80k</text>" in chart
    assert "palimpsest@PAL_RESULTS=&lt;0&gt;: $9.50" in chart
    assert ">PAL_RESULTS=&lt;0&gt;</text>" not in chart
    assert curve_chart(()) == ""


def test_what_costs_many_times_as_much_is_drawn_at_the_edge_with_its_dollars() -> None:
    root = drawn(*POINTS)
    heights = [float(each.get("cy", "")) for each in root.iter(f"{SVG}circle") if each.get("cx", "").endswith("%")]
    texts = [each.text for each in root.iter(f"{SVG}text")]

    assert len(heights) == len(POINTS)
    assert min(heights) == heights[-1] == 10.0
    assert "default ($45.00)" in texts
    assert texts[-1] == "Dollars against re-reads of 0 sessions under 6 profiles, one card"


def test_equal_points_are_drawn_too() -> None:
    root = drawn(CurvePoint("none", 0.0, 0, 0.0, 0), CurvePoint("none@a=1", 0.0, 0, 0.0, 0))
    assert len([each for each in root.iter(f"{SVG}circle") if each.get("cx", "").endswith("%")]) == 2
