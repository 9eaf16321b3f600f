from pathlib import Path

import msgspec
import pytest
from corpus import GOLDEN, golden
from pal_runs import LONG, MODEL, SMALL, Pal, long, small

from pal_lab.cost.curve import curve_names
from palimpsest.core.events import CallStarted, ModelReplied, SessionOpened, Usage, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.log import Log
from palimpsest.stores.in_memory import FixedClock
from palimpsest.stores.sessions import JsonlSessions

CLAUDE = "claude/2.1.325/projects/*/*.jsonl"


@pytest.fixture(scope="module")
def pal(tmp_path_factory: pytest.TempPathFactory) -> Pal:
    pal = Pal(tmp_path_factory.mktemp("home"))
    small(pal.home)
    long(pal.home, events=300)
    return pal


def test_a_session_of_our_own_is_replayed_under_all_profiles(pal: Pal) -> None:
    reported = pal.json("replay", LONG)

    (session,) = reported["sessions"]
    assert (session["id"], session["format"]) == (LONG, "palimpsest")
    assert list(session["profiles"]) == [
        "palimpsest",
        "claude-code-2.1.325",
        "codex-0.166",
        "opencode-1.18",
        "classroom",
        "none",
        "recorded",
    ]
    assert reported["total"] == session["profiles"]
    assert all(found["invalid"] == 0 and found["usd"] > 0 for found in reported["total"].values())


def test_the_same_input_gives_the_same_json(pal: Pal) -> None:
    assert pal("replay", LONG, "--json").stdout == pal("replay", LONG, "--json").stdout


def test_a_replay_changes_nothing(pal: Pal) -> None:
    before = {path: path.read_bytes() for path in pal.home.folder.rglob("*.jsonl")}
    pal.json("replay", LONG, SMALL)

    assert {path: path.read_bytes() for path in pal.home.folder.rglob("*.jsonl")} == before


def test_files_and_folders_of_other_programs_are_read_into_memory(pal: Pal) -> None:
    files = golden(CLAUDE)
    reported = pal.json("replay", str(files[0].parent), "--profiles", "none,palimpsest")

    assert {session["format"] for session in reported["sessions"]} == {"claude"}
    assert {session["source"] for session in reported["sessions"]} <= {str(path) for path in files[0].parent.rglob("*")}
    assert [row["id"] for row in pal.json("sessions")] == [LONG, SMALL]


def test_a_file_of_ours_is_named_by_its_path(pal: Pal) -> None:
    path = pal.home.store.path_of(LONG)

    (session,) = pal.json("replay", str(path), "--profiles", "none")["sessions"]
    assert (session["id"], session["source"]) == (LONG, str(path))


def test_several_cards_and_a_longer_lifetime(pal: Pal) -> None:
    reported = pal.json("replay", LONG, "--profiles", "none", "--card", MODEL, "--card", "gpt-5.5", "--ttl", "1h")

    assert list(reported["cards"]) == [MODEL, "gpt-5.5"]
    assert reported["cards"][MODEL]["total"]["none"]["usd_parts"]["cache_write"] == 0.0


def test_people_get_a_table_with_ratios(pal: Pal) -> None:
    result = pal("replay", LONG, SMALL)

    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[0] == "claude-sonnet-4-5, window 200,000, cache entries last 5m"
    assert next(line for line in lines if line.startswith("claude-code-2.1.325")).split()[2] == "1.00x"
    assert all(len(line) <= 80 for line in lines)


def _session_without_card(pal: Pal, model: str) -> None:
    log = Log.create(pal.home.store, SessionOpened("strange", model=model), FixedClock(1_000))
    log.append(UserSaid((Text("hello"),)))
    log.append(CallStarted(model, "chat"))
    log.append(ModelReplied((Text("hi", "assistant"),), usage=Usage(input=1_000_000, output=100_000), stop="end_turn", model=model))
    log.close()


def test_a_model_without_a_card_is_billed_by_a_stand_in_that_a_footnote_names(tmp_path: Path) -> None:
    pal = Pal(tmp_path)
    _session_without_card(pal, "mimo-v2.5-free")

    result = pal("replay", "strange", "--profiles", "none")
    lines = result.stdout.splitlines()
    assert (result.exit_code, lines[0]) == (0, "claude-sonnet-4-5[1m], window 1,000,000, cache entries last 5m")
    assert lines[3].split() == ["recorded", "$4.50", "[1]", "0.0", "1.0M"]
    assert lines[4] == "[1] no price is known for mimo-v2.5-free, so it is billed as claude-sonnet-4-5[1m]; --card names another"


def test_each_session_is_billed_by_its_own_model_and_beside_what_its_file_reports(pal: Pal, tmp_path: Path) -> None:
    other = Pal(tmp_path)
    _session_without_card(other, "gpt-5.5")

    reported = pal.json("replay", LONG, str(other.home.store.path_of("strange")), "--profiles", "none")
    own, gpt = reported["sessions"]
    assert (reported["card"], reported["window"], reported["ttl"]) == ("own", 0, "")
    assert [(each["card"], each["window"], each["ttl"]) for each in (own, gpt)] == [(MODEL, 200_000, "5m"), ("gpt-5.5", 1_050_000, "")]
    # A million tokens in and a tenth of it out, above the step of the price: 10 + 0.1 x 45 dollars.
    assert gpt["profiles"]["recorded"]["usd"] == 14.5
    assert reported["total"]["recorded"]["usd"] == round(own["profiles"]["recorded"]["usd"] + 14.5, 6)


def test_time_and_probes_are_reported_on_request(pal: Pal) -> None:
    found = pal.json("replay", SMALL, "--profiles", "palimpsest", "--timing", "--cycles", "1,2")["total"]["palimpsest"]

    assert found["plan_ms"] > 0
    assert list(found["probes"]["cycles"]) == ["1", "2"]
    assert "plan ms" in pal("replay", SMALL, "--profiles", "palimpsest", "--timing").stdout


def test_a_report_is_written_beside_the_table(pal: Pal, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    result = pal("replay", LONG, "--html", str(page))

    assert result.exit_code == 0
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_the_simulated_cache_is_compared_with_what_was_recorded(pal: Pal) -> None:
    reported = pal.json("replay", LONG, "--agreement")

    assert list(reported) == ["sessions", "median", "silent"]
    assert list(reported["sessions"][0]) == ["session", "format", "calls", "reported", "simulated", "error", "call_error"]
    assert "median error of palimpsest" in pal("replay", LONG, "--agreement").stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nobody",), "there is no session 'nobody'"),
        ((LONG, "--profiles", "best"), "there is no profile 'best'; known are palimpsest, claude-code"),
        ((LONG, "--card", "gpt-99"), "no card is known for the model 'gpt-99'; known are"),
        ((LONG, "--cycles", "1,x"), "--cycles takes numbers from 1 to 100"),
        ((LONG, "--cycles", "9" * 5_000), "--cycles takes numbers from 1 to 100"),
        ((LONG, "--ttl", "2h"), "'2h' is not one of '5m', '1h'"),
        ((LONG, "--card", ""), "--card names no card"),
        ((LONG, "--card", " , "), "--card names no card"),
        ((LONG, "--profiles", ""), "--profiles names no profile"),
        ((LONG, "--profiles", ","), "--profiles names no profile"),
        ((LONG, "--into", __file__), "--into works only with --agreement, --calibrate and --curve"),
        ((LONG, "--agreement", "--calibrate"), "--agreement and --calibrate exclude each other"),
        ((LONG, "--calibrate", "--curve"), "--calibrate compares what was recorded, so that --curve has no use there"),
        ((LONG, "--agreement", "--rereads", "text"), "--agreement compares what was recorded, so that --rereads has no use there"),
        ((LONG, "--calibrate"), "none of these sessions has a compaction with 20 calls behind it"),
        ((LONG, "--rereads", "lines"), "'lines' is not one of 'text', 'strings', 'names'"),
        ((), "Missing argument"),
    ],
)
def test_what_is_wrong_is_one_line(pal: Pal, words: tuple[str, ...], says: str) -> None:
    result = pal("replay", *words)

    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert says in line
    error = msgspec.json.decode(pal("replay", *words, "--json").stdout)
    assert says in error["error"]["message"]


def test_a_file_that_is_no_session_is_named(pal: Pal, tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text('{"a": 1}\n')

    result = pal("replay", str(path))
    assert (result.exit_code, result.stderr) == (2, f"pal: {path}: not a session of a known program\n")


def test_what_cannot_be_read_does_not_keep_the_others_out(pal: Pal, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("no json\n")
    (tmp_path / "good.jsonl").write_bytes(golden(CLAUDE)[0].read_bytes())

    result = pal("replay", str(tmp_path), "--profiles", "none", "--json")
    assert result.exit_code == 1
    assert len(msgspec.json.decode(result.stdout)["sessions"]) == 1
    assert "bad.jsonl" in result.stderr


def test_a_model_that_cannot_be_asked_is_an_error_before_anything_is_replayed(pal: Pal) -> None:
    result = pal("replay", LONG, "--model", MODEL, PAL_OFFLINE="1")

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"pal: {MODEL}: this model cannot be called; set its key, unset PAL_OFFLINE, or omit --model\n"


def test_a_folder_of_our_own_sessions_is_replayed_like_any_other(pal: Pal) -> None:
    for folder in (pal.home.store.folder, pal.home.folder):
        reported = pal.json("replay", str(folder), "--profiles", "none")

        assert [(session["id"], session["format"]) for session in reported["sessions"]] == [(SMALL, "palimpsest"), (LONG, "palimpsest")]
        assert [session["source"] for session in reported["sessions"]] == [str(pal.home.store.path_of(name)) for name in (SMALL, LONG)]


def test_a_session_without_a_reply_has_nothing_to_replay(pal: Pal, tmp_path: Path) -> None:
    with Log.create(JsonlSessions(tmp_path), SessionOpened("silent", model=MODEL), FixedClock(1)) as log:
        log.extend((UserSaid((Text("Is somebody there?"),)), CallStarted(MODEL, "anthropic")))

    result = pal("replay", str(tmp_path / "silent.jsonl"))
    why = "it has no recorded reply of a model, so there is nothing to replay"
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"pal: {tmp_path / 'silent.jsonl'}: {why}\n")


def test_settings_of_the_environment_are_reported(pal: Pal) -> None:
    words = ("replay", SMALL, "--profiles", "palimpsest,claude-code-2.1.325,none", "--json")
    quiet, reported = pal(*words), pal(*words, CLAUDE_CODE_MAX_OUTPUT_TOKENS="64000", DISABLE_AUTO_COMPACT="1", DISABLE_MICROCOMPACT="1")

    assert (quiet.stderr, msgspec.json.decode(quiet.stdout)["settings"]) == ("", {})
    settings = {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "64000", "DISABLE_AUTO_COMPACT": "1"}
    assert msgspec.json.decode(reported.stdout)["settings"] == {"claude-code-2.1.325": settings}
    line = "CLAUDE_CODE_MAX_OUTPUT_TOKENS=64000, DISABLE_AUTO_COMPACT=1"
    assert reported.stderr == f"pal: claude-code-2.1.325 is changed by your environment: {line}\n"


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


def test_rereads_are_counted_by_all_definitions_and_billed_by_one(pal: Pal) -> None:
    words = ("replay", LONG, "--profiles", "classroom", "--window", "30000")
    by_text, by_names = pal.json(*words), pal.json(*words, "--rereads", "names")

    assert (by_text["billed_rereads"], by_names["billed_rereads"]) == ("text", "names")
    for found, billed in ((by_text, "text"), (by_names, "names")):
        total = found["total"]["classroom"]
        assert list(total["rereads_by"]) == ["text", "strings", "names"]
        assert total["rereads"] == total["rereads_by"][billed]
    assert by_names["total"]["classroom"]["rereads"] > by_text["total"]["classroom"]["rereads"]
    counts = by_names["total"]["classroom"]["rereads_by"].values()
    table = pal(*words, "--rereads", "names").stdout
    assert " / ".join(map(str, counts)) in table
    assert "by text / strings / names; each by names is billed as one more call" in " ".join(table.split())


def test_no_number_is_cut_however_narrow_the_screen_is(pal: Pal) -> None:
    words = ("replay", LONG, SMALL, "--cycles", "1", "--profiles", "palimpsest,none")
    usd = pal.json(*words)["total"]
    (session,) = pal.json("replay", LONG, "--agreement")["sessions"]
    for columns in (24, 60):
        shown = pal(*words, COLUMNS=str(columns)).stdout
        agreed = pal("replay", LONG, "--agreement", COLUMNS=str(columns)).stdout
        assert {f"${found['usd']:,.2f}" for found in usd.values()} <= set(shown.split())
        assert {f"{session['reported']:,}", f"{session['simulated']:,}", f"{session['error']:.2%}"} <= set(agreed.split())
        assert all(len(line) <= columns for line in agreed.splitlines())


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


def test_of_the_runs_that_bench_makes_instead_of_its_bars_one_can_be_asked_for(pal: Pal) -> None:
    result = pal("bench", "--choose", ".", "--growth")
    assert (result.exit_code, result.stderr) == (2, "pal: bench: --choose and --growth exclude each other; see `pal bench --help`\n")


def test_a_log_of_ours_that_holds_lines_of_another_program_is_replayed_once(tmp_path: Path) -> None:
    pal = Pal(tmp_path)
    pal.json("import", str(GOLDEN / "claude" / "2.1.325"))
    path = pal.home.store.path_of("claude-d2b453cc-7e13-4d39-b892-57dac4f124e1")

    assert [row["format"] for row in pal.json("replay", str(path), "--profiles", "none")["sessions"]] == ["palimpsest"]


def test_the_curve_compares_ours_with_the_rival_at_each_trigger(pal: Pal, tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("<!-- curve begins -->\n<!-- curve ends -->\n")
    words = ("replay", SMALL, "--curve", "--plot", str(tmp_path / "plot.svg"), "--html", str(tmp_path / "page.html"))
    found = pal.json(*words, "--into", str(document))

    assert list(found["total"]) == [*curve_names(), *(["recorded"] if "recorded" in found["total"] else [])]
    assert [judged["rival"] for judged in found["curve"]] == [name for name in curve_names() if name.startswith("claude-code-2.1.325")]
    assert all(one["folds_per_100"] >= 0 for one in found["total"].values())
    assert document.read_text(encoding="utf-8").count("| `claude-code-2.1.325@CLAUDE_CODE_AUTO_COMPACT_WINDOW=") == 5
    assert (tmp_path / "plot.svg").read_text(encoding="utf-8").count("<circle") > len(curve_names())
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("<h3>Dollars against re-reads</h3>") == 1
    # The charts of single sessions draw as many profiles as there are colours.
    assert page.count('class="drawn"') == 9 + ("recorded" in found["total"])


def test_the_curve_is_printed_for_people_with_a_verdict_for_each_trigger(pal: Pal) -> None:
    lines = pal("replay", SMALL, "--curve", "--card", "claude-sonnet-4-5", COLUMNS="160").stdout.splitlines()
    title = lines.index("ours against each trigger of claude-code-2.1.325, by the setting that does best here")

    assert [line.split()[0] for line in lines[title + 2 : title + 8]] == [
        *(f"CLAUDE_CODE_AUTO_COMPACT_WINDOW={window}" for window in (113000, 133000, 153000, 173000, 183000)),
        "default",
    ]
    assert {line.split()[-1] for line in lines[title + 2 : title + 8]} <= {"ok", "MISSED"}


def test_a_document_has_one_place_for_one_card(pal: Pal, tmp_path: Path) -> None:
    result = pal("replay", SMALL, "--profiles", "none", "--card", "gpt-5.5,claude-sonnet-4-5", "--plot", str(tmp_path / "plot.svg"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "a curve is about one card; name one with --card, or none" in result.stderr
