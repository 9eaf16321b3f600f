from pathlib import Path

import msgspec
import pytest
from loopback import Answer, answering
from pal_runs import LONG, MODEL, Pal, long

REPLY = """{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5","stop_reason":"tool_use",
"content":[{"type":"text","text":"I look again."},{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"ls"}}],
"usage":{"input_tokens":1000,"output_tokens":100}}"""
BAD_KEY = Answer(401, '{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}')


@pytest.fixture(scope="module")
def pal(tmp_path_factory: pytest.TempPathFactory) -> Pal:
    pal = Pal(tmp_path_factory.mktemp("home"))
    long(pal.home, events=200)
    return pal


def _words(*more: str) -> tuple[str, ...]:
    return ("lab", "continue", LONG, "--model", MODEL, "--window", "30000", "--profiles", "palimpsest,none", *more)


def _at(url: str) -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "k", "PAL_OFFLINE": ""}


def test_a_model_on_a_server_is_asked_once_under_each_profile(pal: Pal) -> None:
    with answering(Answer(200, REPLY)) as url:
        result = pal(*_words("--yes", "--json"), **_at(url))

    found = msgspec.json.decode(result.stdout)
    reply = {"calls": [{"tool": "Bash", "target": "ls", "verdict": "other"}], "text": "I look again.", "usd": pytest.approx(0.0045)}
    assert (result.exit_code, found["replies"]) == (0, [{"profile": "palimpsest", **reply}, {"profile": "none", **reply}])
    assert found["usd"] == pytest.approx(0.009)
    assert found["most_usd"] > found["usd"]
    assert found["profiles"][0]["tokens"] < found["profiles"][1]["tokens"]


def test_a_scripted_model_is_compared_and_printed_as_a_table(pal: Pal, tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text('{"calls":[{"tool":"Bash","args":{"command":"ls"}}]}\n"Nothing to do."\n', encoding="utf-8")
    result = pal(*_words("--yes"), PAL_SCRIPT=str(script))

    assert result.exit_code == 0
    table, lines = result.stdout.splitlines()[:3], result.stdout.splitlines()[3:]
    assert [line.split()[2:9] for line in table[1:]] == [["1", "0", "0", "0", "1", "0", "0"], ["1", "0", "0", "0", "0", "1", "0"]]
    assert lines == ["palimpsest: other: Bash ls", "none: no call"]


def test_the_cost_is_shown_and_without_yes_nothing_is_sent(pal: Pal) -> None:
    with answering(Answer(200, REPLY)) as url:
        result = pal(*_words(), **_at(url))

    first, *_, last = result.stderr.splitlines()
    assert (result.exit_code, result.stdout) == (2, "")
    assert first.startswith(f"pal: 2 requests to {MODEL} at call ")
    assert "at most $" in first
    assert last == "pal: lab continue: this sends the session to the model; use --yes to confirm"


def test_a_run_that_could_cost_more_than_allowed_does_not_start(pal: Pal) -> None:
    result = pal(*_words("--yes", "--usd", "0.001"), PAL_OFFLINE="")

    assert result.exit_code == 2
    assert "that is more than --usd 0.001" in result.stderr


def test_a_limit_in_dollars_is_refused_for_a_model_of_unknown_price(pal: Pal) -> None:
    words = ("lab", "continue", LONG, "--model", "openai-compatible/mine", "--window", "30000", "--profiles", "palimpsest", "--yes")
    result = pal(*words, "--usd", "5", PAL_OFFLINE="")
    assert result.exit_code == 2
    assert "its price is not known" in result.stderr
    assert "the limit of $5 cannot be kept, because no price is known for openai-compatible/mine; leave --usd out" in result.stderr


def test_a_request_that_fails_is_named_and_ends_in_a_finding(pal: Pal) -> None:
    with answering(Answer(200, REPLY), BAD_KEY) as url:
        result = pal(*_words("--yes", "--json"), **_at(url))

    assert result.exit_code == 1
    assert [("invalid x-api-key" in each.get("failed", "")) for each in msgspec.json.decode(result.stdout)["replies"]] == [False, True]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--call", "9999"), "there is no call 9999: the session has"),
        (("--at", "1", "--call", "3"), "--at and --call exclude each other"),
        (("--at", "99"), "there is no fold 99 under palimpsest, which folds"),
        (("--profiles", "palimpsest@PAL_TAIL=4000,PAL_THRIFT=free"), "PAL_THRIFT is 'free'"),
    ],
)
def test_a_place_or_a_profile_that_does_not_exist_is_named(pal: Pal, words: tuple[str, ...], says: str) -> None:
    result = pal(*_words(*words))

    assert result.exit_code == 2
    assert says in result.stderr
