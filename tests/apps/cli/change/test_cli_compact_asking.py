"""`pal compact` with a model on the loopback: what it is asked, what comes of its answers, and the way back from all of it."""

from pathlib import Path

import msgspec
import pytest
from generated import generate
from model_server import model_saying
from pal_runs import BEGAN, LONG, MODEL, Pal, long

from palimpsest.core.events import CallStarted, SessionOpened
from palimpsest.core.items import ToolCall
from palimpsest.core.log.log import Log
from palimpsest.stores.ephemeral import FixedClock

TOLD = (
    "## Goal\nFinish the parser [879].\n## Approach\nStep by step [883.1].\n"
    "## State\nHalf of it is done [885.0].\n## Next step\nThe other half [891.0]."
)
CLAUDE = ["claude-code", "claude-code-2.1.325"]


def _with_files(pal: Pal, folder: Path) -> None:
    """A long session whose files are there, so that a fold under the profiles of Claude Code shows them again."""
    with Log.create(pal.home.store, SessionOpened(LONG, model=MODEL, cwd=str(folder)), FixedClock(BEGAN, 1_000)) as log:
        log.extend(generate(5, 900))
        for item in log.view.items:
            if isinstance(item.content, ToolCall) and item.content.tool == "read":
                path = folder / msgspec.json.decode(item.content.args)["path"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("x = 1\n")


def _next(pal: Pal) -> bytes:
    return pal("show", LONG, "--request", "next").stdout_bytes


@pytest.mark.parametrize("name", CLAUDE)
def test_the_way_back_that_is_named_takes_back_all_that_a_fold_did(pal: Pal, tmp_path: Path, name: str) -> None:
    _with_files(pal, tmp_path / "work")
    before = _next(pal)
    with model_saying(TOLD) as model:
        result = pal("compact", LONG, "--profile", name, **model.environment)
    moments = [edit["moment"] for edit in pal.json("audit", LONG)][-2:]
    words = result.stdout.splitlines()[-1].split("`")[1].split()

    assert moments == ["asked", "folded"]
    assert _next(pal) != before
    assert words == ["pal", "undo", LONG, "903", "--yes"]
    assert pal(*words[1:]).exit_code == 0
    assert _next(pal) == before


def test_where_an_undo_would_not_fit_the_way_back_is_a_fork(pal: Pal) -> None:
    long(pal.home)
    pal.home.cards_path.write_text('[cards.claude-sonnet-4-5]\nlike = "claude-sonnet-4-5"\nwindow = 60000\n')
    before = _next(pal)
    result = pal("compact", LONG, "--no-model")
    words = result.stdout.splitlines()[-1].split("`")[1].split()

    assert result.stdout.splitlines()[-1].startswith("the earlier view is too large to undo the fold; ")
    assert pal("undo", LONG).exit_code == 2
    assert words == ["pal", "fork", LONG, "--at", "900"]
    forked = pal(*words[1:]).stdout.strip()
    assert pal("show", forked, "--request", "next").stdout_bytes.replace(forked.encode(), LONG.encode()) == before


def test_the_request_for_a_summary_is_shown_byte_for_byte_as_it_left(pal: Pal, tmp_path: Path) -> None:
    _with_files(pal, tmp_path / "work")
    with model_saying(TOLD) as model:
        assert pal("compact", LONG, "--profile", "claude-code", **model.environment).exit_code == 0
    (asked,) = model.asked
    with Log.open(pal.home.store, LONG, FixedClock(BEGAN)) as log:
        calls = [(event.seq, event.body.purpose) for event in log.events() if isinstance(event.body, CallStarted)]
    result = pal("show", LONG, "--request", str(len(calls)))

    assert calls[-1] == (901, "summary")
    assert result.exit_code == 0
    assert result.stderr.startswith("verified: event 901, sha256 ")
    assert msgspec.json.decode(result.stdout_bytes) == asked


def test_a_focus_has_a_model_asked_even_where_that_is_not_usual(pal: Pal) -> None:
    long(pal.home)
    with model_saying(TOLD) as model:
        (made,) = msgspec.json.decode(pal("compact", LONG, "--focus", "the parser", "--json", **model.environment).stdout)

    assert len(model.asked) == 1
    assert "the parser" in msgspec.json.encode(model.asked[0]["messages"][-1]).decode()
    assert made["policy"] == "narrate"
    assert made["why"].startswith("the user asked for it: the parser; ")
    assert "Half of it is done [885.0]." in pal("show", LONG, "--full").stdout


def test_without_a_focus_no_model_is_asked_where_that_is_usual(pal: Pal) -> None:
    long(pal.home)
    with model_saying(TOLD) as model:
        assert pal("compact", LONG, **model.environment).exit_code == 0

    assert model.asked == []


@pytest.mark.parametrize(
    ("words", "environment", "why"),
    [
        ((), {"PAL_OFFLINE": "1"}, "PAL_OFFLINE is set"),
        (("--no-model",), {}, "--no-model was given"),
        ((), {"PAL_OFFLINE": ""}, "ANTHROPIC_API_KEY is not set; set it, or name another address in ANTHROPIC_BASE_URL"),
    ],
)
def test_a_focus_without_a_model_is_said_to_be_of_no_use(pal: Pal, words: tuple[str, ...], environment: dict[str, str], why: str) -> None:
    long(pal.home)
    result = pal("compact", LONG, "--focus", "the parser", *words, **{"ANTHROPIC_API_KEY": "", "ANTHROPIC_BASE_URL": "", **environment})

    assert result.exit_code == 0
    assert result.stderr == f"pal: --focus needs a model and is ignored: {why}\n"
    assert pal.json("audit", LONG)[-1]["why"] == "the user asked for it"


@pytest.mark.parametrize("name", CLAUDE)
def test_a_summary_that_failed_is_an_error_for_programs_and_people(pal: Pal, name: str) -> None:
    long(pal.home)
    with model_saying("boom", status=500) as model:
        reported = pal("compact", LONG, "--profile", name, "--json", **model.environment)
        shown = pal("compact", LONG, "--profile", name, **model.environment)

    error = {"kind": "provider", "message": "HTTP 500: api_error: boom", "where": "anthropic"}
    assert (reported.exit_code, msgspec.json.decode(reported.stdout)) == (2, {"error": error})
    assert (shown.exit_code, shown.stdout, shown.stderr) == (2, "", "pal: anthropic: HTTP 500: api_error: boom\n")


def test_a_focus_that_no_model_answers_is_a_fold_without_it_and_a_line(pal: Pal) -> None:
    long(pal.home)
    with model_saying("boom", status=500) as model:
        result = pal("compact", LONG, "--focus", "the parser", "--json", **model.environment)

    assert result.exit_code == 0
    assert [edit["policy"] for edit in msgspec.json.decode(result.stdout)] == ["fold"]
    assert result.stderr == "pal: HTTP 500: api_error: boom\n"


@pytest.mark.parametrize(("name", "words"), [("claude-code", ()), ("palimpsest", ("--focus", "the parser"))])
def test_a_preview_of_a_fold_for_which_a_model_will_be_asked_tells_no_numbers(pal: Pal, name: str, words: tuple[str, ...]) -> None:
    long(pal.home)
    with model_saying(TOLD) as model:
        reported = pal("compact", LONG, "--profile", name, "--preview", "--json", *words, **model.environment)
        shown = pal("compact", LONG, "--profile", name, "--preview", *words, **model.environment).stdout
    (edit,) = msgspec.json.decode(reported.stdout)

    assert model.asked == []
    assert (edit["edit"], edit["event"]) == (None, None)
    assert "901" not in shown
    assert "+ new summary " in shown
    assert reported.stderr == (f"pal: {MODEL} may change this fold and was not called; --model {MODEL} calls it now\n")


def test_a_preview_with_a_model_asks_it_and_leaves_everything_as_it_was(pal: Pal) -> None:
    long(pal.home)
    data = pal.home.store.path_of(LONG).read_bytes()
    with model_saying(TOLD) as model:
        result = pal("compact", LONG, "--preview", "--model", MODEL, "--focus", "the parser", "--json", **model.environment)
    (edit,) = msgspec.json.decode(result.stdout)

    assert len(model.asked) == 1
    assert (edit["edit"], edit["policy"]) == (903, "narrate")
    assert pal.home.store.path_of(LONG).read_bytes() == data
