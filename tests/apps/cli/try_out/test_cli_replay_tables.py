from pathlib import Path

import msgspec
import pytest
from corpus import golden
from pal_runs import LONG, SMALL, Pal, long, small


@pytest.fixture(scope="module")
def pal(tmp_path_factory: pytest.TempPathFactory) -> Pal:
    pal = Pal(tmp_path_factory.mktemp("home"))
    small(pal.home)
    long(pal.home, events=200)
    return pal


def test_requests_over_the_window_have_a_column_of_their_own(pal: Pal) -> None:
    words = ("replay", LONG, "--profiles", "palimpsest,none")
    roomy, tight = (pal(*words, "--window", window) for window in ("2000000", "20000"))
    reported = pal.json(*words, "--window", "20000")["total"]

    assert "long" not in next(line for line in roomy.stdout.splitlines() if line.startswith("profile")).split()
    head, *rows = (line.split() for line in tight.stdout.splitlines() if line.startswith(("profile", "palimpsest", "none")))
    assert head[-1] == "long"
    assert [int(row[-1].replace(",", "")) for row in rows] == [reported["palimpsest"]["too_long"], reported["none"]["too_long"]]
    assert reported["none"]["too_long"] > 0 == reported["none"]["invalid"]
    assert (reported["none"]["faults"], reported["none"]["stopped"], reported["none"]["refused"]) == ([], [], 0)
    assert tight.exit_code == 0


def test_probes_are_printed_for_people_too(pal: Pal) -> None:
    words = ("replay", LONG, "--profiles", "palimpsest,none", "--cycles", "1,2")
    reported, lines = pal.json(*words)["total"], pal(*words).stdout.splitlines()
    title = lines.index("probes answered after forced folds: from the view / with one recall")

    assert lines[title + 1].split() == ["profile", "1", "fold", "2", "folds"]
    for name, line in zip(("palimpsest", "none"), lines[title + 2 : title + 4], strict=True):
        probed = reported[name]["probes"]["cycles"]
        shares = [f"{one['visible'] * 100:.0f} / {one['with_recall'] * 100:.0f} %" for one in probed.values()]
        assert " ".join(line.split()) == " ".join([name, *shares])


@pytest.mark.parametrize("columns", ["24", "40", "60", "80"])
def test_no_number_is_cut_however_narrow_the_screen_is(pal: Pal, columns: str) -> None:
    usd = pal.json("replay", LONG, SMALL, "--cycles", "1")["total"]
    shown = pal("replay", LONG, SMALL, "--cycles", "1", COLUMNS=columns).stdout
    agreed = pal("replay", LONG, "--agreement", COLUMNS=columns).stdout
    (session,) = pal.json("replay", LONG, "--agreement")["sessions"]

    assert {f"${found['usd']:,.2f}" for found in usd.values()} <= set(shown.split())
    assert {f"{session['reported']:,}", f"{session['simulated']:,}", f"{session['error']:.2%}"} <= set(agreed.split())
    assert all(len(line) <= int(columns) for line in agreed.splitlines())


def test_agreement_tells_what_cannot_be_read(pal: Pal, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("no json\n")
    (tmp_path / "good.jsonl").write_bytes(golden("claude/2.1.325/projects/*/*.jsonl")[0].read_bytes())

    result = pal("replay", str(tmp_path), LONG, "--agreement", "--json")
    assert (result.exit_code, "bad.jsonl" in result.stderr) == (1, True)
    assert LONG in [session["session"] for session in msgspec.json.decode(result.stdout)["sessions"]]


def test_the_table_of_agreement_goes_between_its_marks(pal: Pal, tmp_path: Path) -> None:
    document = tmp_path / "document.md"
    document.write_text("Before.\n<!-- agreement begins -->\nold\n<!-- agreement ends -->\nAfter.\n")
    (session,) = pal.json("replay", LONG, "--agreement", "--into", str(document))["sessions"]

    numbers = (f"{session[name]:,}" for name in ("calls", "reported", "simulated"))
    errors = (f"{session[name]:.2%}" for name in ("error", "call_error"))
    assert document.read_text().splitlines() == [
        "Before.",
        "<!-- agreement begins -->",
        "| session | format | calls | reported | simulated | error of the sums | median error of a call |",
        "|---|---|---:|---:|---:|---:|---:|",
        f"| {' | '.join((f'`{LONG}`', 'palimpsest', *numbers, *errors))} |",
        "",
        f"Median error of the sessions of a format: palimpsest {session['error']:.2%} of 1.",
        "<!-- agreement ends -->",
        "After.",
    ]


@pytest.mark.parametrize(
    "words", [("replay", LONG, "--agreement"), ("bench", "--only", "turn"), ("bench", "--fit", "."), ("bench", "--choose", ".")]
)
def test_a_document_without_a_place_for_the_table_is_refused_before_any_work(pal: Pal, tmp_path: Path, words: tuple[str, ...]) -> None:
    document = tmp_path / "document.md"
    document.write_text("<!-- cost begins --><!-- cost ends -->")

    result = pal(*words, "--into", str(document))
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"pal: {document}: the document has no placeholder for the table, which is two lines <!-- ")
