from pathlib import Path

import msgspec
import pytest
from loopback import Answer, answering
from pal_runs import LONG, MODEL, Pal, long

CLAUDE = "claude-code-2.1.325"
SUMMARY = """{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5","stop_reason":"end_turn",
"content":[{"type":"text","text":"<summary>All went well.</summary>"}],"usage":{"input_tokens":9,"output_tokens":7}}"""
GOOD = Answer(200, SUMMARY)
BAD_KEY = Answer(401, '{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}')
BUSY = Answer(529, '{"type":"error","error":{"type":"overloaded_error","message":"come back later"}}')


@pytest.fixture(scope="module")
def pal(tmp_path_factory: pytest.TempPathFactory) -> Pal:
    pal = Pal(tmp_path_factory.mktemp("home"))
    long(pal.home, events=200)
    return pal


def _words(*more: str) -> tuple[str, ...]:
    return ("replay", LONG, "--window", "30000", "--profiles", f"palimpsest,{CLAUDE}", "--model", MODEL, *more)


def _at(url: str) -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "k", "PAL_OFFLINE": ""}


@pytest.mark.parametrize("answer", [BAD_KEY, Answer(404, '{"type":"error","error":{"type":"not_found_error","message":"model: nope"}}')])
def test_a_model_that_turns_the_first_request_away_ends_the_replay_in_one_line(pal: Pal, answer: Answer) -> None:
    with answering(answer) as url:
        result = pal(*_words(), **_at(url))

    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"pal: {MODEL}: the model cannot be called, so nothing was replayed: ")
    assert ("invalid x-api-key" if answer is BAD_KEY else "model: nope") in line


def test_a_server_that_is_not_there_ends_the_replay_in_one_line(pal: Pal) -> None:
    with answering(GOOD) as url:
        pass
    result = pal(*_words(), **_at(url))

    assert (result.exit_code, result.stdout) == (2, "")
    assert "cannot be reached" in result.stderr


def test_requests_that_fail_are_counted_with_the_first_reason_and_end_in_a_finding(pal: Pal) -> None:
    with answering(BUSY) as url:
        result, reported = pal(*_words(), **_at(url)), pal(*_words("--json"), **_at(url))

    assert (result.exit_code, reported.exit_code) == (1, 1)
    total = msgspec.json.decode(reported.stdout)["total"]
    assert total[CLAUDE]["failed"] == total[CLAUDE]["asked"] > 0
    assert "come back later" in total[CLAUDE]["failure"]
    assert (total["palimpsest"]["failed"], total["palimpsest"]["failure"]) == (0, "")
    count = total[CLAUDE]["failed"]
    failed = f"{count} of {count} requests to the model failed, and the profile continued without it; the first: "
    assert [line for line in result.stdout.splitlines() if failed in line and "come back later" in line]
    assert "failed" in next(line for line in result.stdout.splitlines() if line.startswith("profile"))


def test_a_key_that_is_refused_later_is_reported_and_the_replay_continues(pal: Pal) -> None:
    with answering(GOOD, BAD_KEY) as url:
        reported = pal(*_words("--json"), **_at(url))

    found = msgspec.json.decode(reported.stdout)["total"][CLAUDE]
    assert (reported.exit_code, found["failed"]) == (1, found["asked"] - 1)
    assert "invalid x-api-key" in found["failure"]


def test_a_model_that_answers_writes_the_summaries_of_probes_too(pal: Pal) -> None:
    with answering(GOOD) as url:
        plain, probed = (pal(*_words("--json", *more), **_at(url)) for more in ((), ("--cycles", "1,2")))

    found = [msgspec.json.decode(result.stdout)["total"][CLAUDE] for result in (plain, probed)]
    assert (plain.exit_code, probed.exit_code) == (0, 0)
    assert [one["failed"] for one in found] == [0, 0]
    assert found[1]["asked"] >= found[0]["asked"] + 3


def test_a_page_tells_that_the_model_failed(pal: Pal, tmp_path: Path) -> None:
    with answering(BUSY) as url:
        pal(*_words("--html", str(tmp_path / "page.html")), **_at(url))

    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "requests to the model failed" in page
    assert "come back later" in page
