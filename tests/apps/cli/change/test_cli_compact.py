"""`pal compact` and `pal audit` on sessions whose every word is known, and with a model on the loopback."""

from pathlib import Path

import msgspec
import pytest
from generated import generate
from model_server import model_saying
from pal_runs import BEGAN, LONG, MODEL, SMALL, Pal, edited, long, small

from palimpsest.core.events import CallStarted, EditRefused, ModelReplied, SessionOpened, ToolReturned, UserSaid
from palimpsest.core.items import Mask, Text, ToolCall, ToolResult
from palimpsest.core.log import Log
from palimpsest.core.view import View
from palimpsest.stores.in_memory import FixedClock

FIELDS = [
    "edit",
    "event",
    "at",
    "policy",
    "why",
    "moment",
    "tokens_before",
    "tokens_after",
    "price_usd",
    "saved_usd_per_call",
    "reasoning_lost",
    "hidden",
    "undone",
    "provider",
]


def _view(pal: Pal, session: str) -> View:
    with Log.open(pal.home.store, session, FixedClock(1)) as log:
        return log.view


def test_a_preview_says_what_would_happen_and_changes_nothing(pal: Pal) -> None:
    long(pal.home)
    data = pal.home.store.path_of(LONG).read_bytes()
    (edit,) = pal.json("compact", LONG, "--preview")

    assert list(edit) == FIELDS
    assert edit["tokens_after"] < edit["tokens_before"]
    assert edit["hidden"]["items"]
    assert edit["price_usd"] is not None
    assert pal.home.store.path_of(LONG).read_bytes() == data


def test_what_a_preview_says_is_what_then_happens(pal: Pal) -> None:
    long(pal.home)
    (previewed,) = pal.json("compact", LONG, "--preview")
    (made,) = pal.json("compact", LONG, "--no-model")

    same = ("policy", "why", "tokens_before", "tokens_after", "hidden")
    assert {name: made[name] for name in same} == {name: previewed[name] for name in same}


def test_an_error_in_a_preview_names_the_session_itself(pal: Pal) -> None:
    small(pal.home)
    error = pal.json("compact", SMALL, "--preview", "--profile", "none", code=2)["error"]

    assert error == {"kind": "input", "message": "profile none never folds; --profile sets another", "where": SMALL}


def test_a_preview_tells_the_numbers_that_the_fold_then_has(pal: Pal) -> None:
    long(pal.home)
    previewed = pal("compact", LONG, "--preview", "--no-model").stdout
    made = pal("compact", LONG, "--no-model").stdout

    def without_time(text: str) -> list[list[str]]:
        return [[word for word in line.split() if ":" not in word or word.endswith(":")] for line in text.splitlines()[:-2]]

    assert without_time(previewed) == without_time(made)
    assert pal.json("audit", LONG)[-1]["edit"] == 901
    assert previewed.startswith("edit 901 by fold: ")


def test_a_session_that_names_no_model_is_folded_as_for_a_usual_one(pal: Pal) -> None:
    with Log.create(pal.home.store, SessionOpened(SMALL), FixedClock(1, 1_000)) as log:
        for number in range(40):
            log.append(UserSaid((Text(f"request {number}"),)))
            log.append(ModelReplied((Text(f"done {number} " * 400, "assistant"),)))
    result = pal("compact", SMALL, ANTHROPIC_API_KEY="key", PAL_OFFLINE="")
    (made,) = pal.json("audit", SMALL)

    assert result.exit_code == 0
    assert result.stderr == ("pal: the session has no model; using sizes and prices of claude-sonnet-4-6 (--model sets another)\n")
    assert made["policy"] == "fold"


@pytest.mark.parametrize("name", ["claude-code", "claude-code-2.1.325"])
def test_a_setting_that_forbids_folds_is_named(pal: Pal, name: str) -> None:
    long(pal.home)
    result = pal("compact", LONG, "--profile", name, "--no-model", DISABLE_COMPACT="1")

    assert result.exit_code == 2
    assert result.stderr == f"pal: {LONG}: DISABLE_COMPACT is set, and then profile {name} never folds; --profile sets another\n"


def test_a_session_in_which_there_is_nothing_to_fold_is_no_error(pal: Pal) -> None:
    small(pal.home)

    assert pal("compact", SMALL, "--no-model").stdout == "there is nothing to fold\n"
    assert pal.json("compact", SMALL, "--no-model") == []


def test_unknown_prices_are_not_printed_as_zero(pal: Pal) -> None:
    long(pal.home)
    shown = pal("compact", LONG, "--preview", "--no-model", "--model", "openai-compatible/strange").stdout
    (local,) = pal.json("compact", LONG, "--preview", "--no-model", "--model", "local/mine")
    (made,) = pal.json("compact", LONG, "--no-model", "--model", "openai-compatible/strange")

    assert (made["price_usd"], made["saved_usd_per_call"]) == (None, None)
    assert (local["price_usd"], local["saved_usd_per_call"]) == (None, None)
    assert "$" not in shown.splitlines()[1]


def test_a_fold_is_audited_and_undone_with_one_command_each(pal: Pal) -> None:
    long(pal.home)
    before = _view(pal, LONG)
    (made,) = pal.json("compact", LONG, "--no-model")
    audited = pal.json("audit", LONG)

    assert audited[-1] == made
    assert pal("undo", LONG, str(made["edit"])).exit_code == 0
    assert _view(pal, LONG).items == before.items
    assert pal.json("audit", LONG)[-1]["undone"]


def test_a_person_sees_the_price_the_reason_and_a_comparison(pal: Pal) -> None:
    long(pal.home)
    result = pal("compact", LONG, "--preview")
    lines = result.stdout.splitlines()

    assert result.exit_code == 0
    assert "the user asked for it" in result.stdout
    assert len(lines) <= 10
    assert lines[-2] == f"`pal compact {LONG} --preview --full` shows all that would be hidden, and the view before and after"
    assert lines[-1] == "nothing was changed; omit --preview to fold"
    assert "the view, - before and + after:" in pal("compact", LONG, "--preview", "--full").stdout


def test_a_fold_names_the_commands_that_show_and_undo_it(pal: Pal) -> None:
    long(pal.home)
    lines = pal("compact", LONG, "--no-model").stdout.splitlines()

    assert len(lines) <= 10
    assert lines[-2] == f"`pal audit {LONG} 901 --full` shows all that is hidden, and the view before and after"
    assert "the view, - before and + after:" in pal("audit", LONG, "901", "--full").stdout


@pytest.mark.parametrize("name", ["claude-code", "claude-code-2.1.325", "codex", "codex-0.166", "opencode", "opencode-1.18", "classroom"])
def test_every_profile_folds_without_a_model_on_the_rung_that_needs_none(pal: Pal, name: str) -> None:
    long(pal.home)
    edits = pal.json("compact", LONG, "--profile", name, "--no-model")

    assert edits[0]["policy"] == "fold without a model"
    assert edits[0]["tokens_after"] < edits[0]["tokens_before"]


def test_an_unknown_profile_is_reported_with_the_known_ones(pal: Pal) -> None:
    small(pal.home)
    result = pal("compact", SMALL, "--profile", "other")

    assert result.exit_code == 2
    assert "there is no profile 'other'; known are palimpsest, " in result.stderr


def test_without_a_key_a_warning_says_that_no_model_is_called(pal: Pal) -> None:
    long(pal.home)
    result = pal("compact", LONG, ANTHROPIC_API_KEY="", ANTHROPIC_BASE_URL="", PAL_OFFLINE="")

    assert result.exit_code == 0
    assert "no model is called: ANTHROPIC_API_KEY is not set" in result.stderr


def test_an_audit_lists_the_edits_of_this_branch_with_what_they_hide(pal: Pal) -> None:
    edited(pal.home)
    first, second = pal.json("audit", SMALL)

    assert (first["event"], first["policy"], first["why"], first["tokens_before"]) == (14, "tester", "it was long", 900)
    assert first["hidden"]["items"] == ["4.0", "4.1", "6.0", "8.0"]
    assert second["hidden"]["items"] == ["14.0.0"]
    assert first["at"] == "2031-04-01T09:01:00.000Z"


def test_one_edit_is_shown_in_full(pal: Pal) -> None:
    edited(pal.home)
    result = pal("audit", SMALL, "14")

    assert "- 4.0 assistant" in result.stdout
    assert "+ 14.0.0 summary" in result.stdout


def test_an_edit_that_is_none_is_an_error_and_no_edit_is_said_so(pal: Pal) -> None:
    small(pal.home)

    assert pal("audit", SMALL).stdout == "there are no edits: the model sees the whole conversation\n"
    assert pal("audit", SMALL, "3").stderr == f"pal: {SMALL}: event 3 is not an edit on this branch; `pal audit {SMALL}` lists the edits\n"


def test_refused_edits_are_listed_with_the_reason(pal: Pal) -> None:
    small(pal.home)
    assert pal("audit", SMALL, "--refused").stdout == "no edits were refused\n"
    with Log.open(pal.home.store, SMALL, FixedClock(1), write=True) as log:
        log.append(EditRefused((Mask(("2.0",), "gone"),), "fold", "gate", "the view would not be smaller"))

    assert pal.json("audit", SMALL, "--refused")[0]["why"] == "the view would not be smaller"
    assert "the view would not be smaller" in pal("audit", SMALL, "--refused").stdout


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
        full = pal("compact", LONG, "--profile", name, "--preview", "--full", *words, **model.environment).stdout
    (edit,) = msgspec.json.decode(reported.stdout)

    assert model.asked == []
    assert (edit["edit"], edit["event"]) == (None, None)
    assert "901" not in shown
    assert "+ new summary " in full
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


@pytest.mark.parametrize(("denied", "is_shown"), [((), True), (("read(key.txt)",), False)])
def test_a_fold_shows_a_changed_file_as_it_is_now_unless_a_rule_denies_it(
    pal: Pal, tmp_path: Path, denied: tuple[str, ...], is_shown: bool
) -> None:
    (tmp_path / "key.txt").write_text("the key of the user")
    with Log.create(pal.home.store, SessionOpened(LONG, model=MODEL, cwd=str(tmp_path)), FixedClock(BEGAN, 1_000)) as log:
        log.extend(generate(5, 300))
        log.append(ModelReplied((ToolCall("k", "bash", '{"command":"make-key > key.txt"}'),)))
        log.append(ToolReturned(ToolResult("k", (Text("done"),))))
    (pal.home.folder / "config.toml").write_text(f"[permissions]\ndeny = {[*denied]}\n")
    assert pal("compact", LONG, "--no-model").exit_code == 0
    assert (b"the key of the user" in _next(pal)) is is_shown
