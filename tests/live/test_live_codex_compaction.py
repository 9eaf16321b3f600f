"""Codex's compaction in `pal -p`: the smaller model, the request that is too long, and the summary message."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from live_codex import LiveCodex, messages, using
from wire_server import Said

from palimpsest.policies.limits import prompt

BOTH = ("codex", "codex-0.166")
PREFIX, ASKED = prompt("handoff_prefix"), prompt("handoff", focus="")
# What every profile adds to what a fold leaves: the way back to what it hides.
WAY_BACK = re.compile(r"\n\n\[What this hides is kept word for word: recall id \d+\.\.\d+\]\Z")
TOO_LONG = Said(status=400, message="Your input exceeds the context window of this model.")


@pytest.mark.states("SG-25")
@pytest.mark.parametrize("profile", BOTH)
def test_a_session_that_goes_on_with_a_smaller_model_is_compacted_by_the_one_that_it_had(profile: str, tmp_path: Path) -> None:
    agent = LiveCodex(tmp_path, profile)
    agent.turn("build it", Said("built", prompt=238_000))
    compaction, turn = agent.turn("and test it", Said("all is built", prompt=238_100), Said("tested"), model="small")
    assert (compaction["model"], turn["model"]) == ("big", "small")
    assert messages(compaction)[-3:] == [("user", "build it"), ("assistant", "built"), ("user", ASKED)]
    kept = [WAY_BACK.sub("", text) for role, text in messages(turn) if role == "user" and not text.startswith(("<", "# AGENTS"))]
    assert kept == ["build it", f"{PREFIX}\nall is built", "and test it"]
    [third] = agent.turn("on", Said("ok"))
    assert third["input"][: len(turn["input"])] == turn["input"]


@pytest.mark.states("SG-25")
@pytest.mark.parametrize("profile", BOTH)
def test_a_larger_model_or_a_small_context_is_a_reason_for_no_compaction(profile: str, tmp_path: Path) -> None:
    agent = LiveCodex(tmp_path, profile, model="small")
    agent.turn("build it", Said("built", prompt=170_000))
    assert len(agent.turn("and test it", Said("tested", prompt=170_000), model="big")) == 1
    assert len(agent.turn("once more", Said("tested"), model="small")) == 1


@pytest.mark.states("SG-26")
@pytest.mark.parametrize("profile", BOTH)
def test_a_compaction_that_is_too_long_drops_one_oldest_item_at_a_time(profile: str, tmp_path: Path) -> None:
    agent = LiveCodex(tmp_path, profile)
    (agent.project / "a.txt").write_text("a\n")
    agent.turn("look", using("recall", query="x"), Said("looked " * 900, prompt=250_000))
    requests = agent.turn("go on", *[TOO_LONG] * 4, Said("it was looked at"), Said("done"))
    sent = [request["input"] for request in requests[:-1]]
    dropped = [[item for item in before if item not in after] for before, after in pairwise(sent)]
    kinds = [[item.get("role", item["type"]) for item in gone] for gone in dropped]
    assert kinds == [["developer"], ["user"], ["user"], ["function_call", "function_call_output"]]
    assert (f"{PREFIX}\nit was looked at" in [WAY_BACK.sub("", text) for _, text in messages(requests[-1])]) is True


@pytest.mark.states("SG-27")
@pytest.mark.parametrize("profile", BOTH)
def test_the_summary_message_is_prefix_newline_summary_and_a_setting_puts_what_the_log_proves_behind_it(
    profile: str, tmp_path: Path
) -> None:
    for config, proved in (("", False), ("[context]\nevidence = true\n", True)):
        agent = LiveCodex(tmp_path / str(proved), profile, config=config)
        agent.turn("look", using("bash", command="seq 1 2000"), Said("looked", prompt=250_000))
        requests = agent.turn("go on", Said("it was looked at"), Said("done"))
        assert len(requests) == 2, agent.errors
        texts = [WAY_BACK.sub("", text) for _, text in messages(requests[-1])]
        assert f"{PREFIX}\nit was looked at" in texts
        assert any("from the log and not from a model" in text for text in texts) is proved
