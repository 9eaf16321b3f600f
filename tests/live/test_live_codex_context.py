"""What the profiles of Codex state, in `pal -p`: style, way of working, connections, network, and the tier of the service."""

import json
from pathlib import Path
from typing import Any

import pytest
from live_codex import LiveCodex, messages, using
from wire_server import Said

from palimpsest.sources.prompts import mode_text, personality_text, prompt_text

BOTH = ("codex", "codex-0.166")
CONFIG = """\
[codex]
personality = "friendly"
collaboration_mode = "execute"
commit_attribution = "Codex <noreply@openai.com>"
realtime = "dictated, so names may be misheard"
apps = "The connector calendar is signed in."
plugins = "The plugin figma is installed."
service_tier = "fast"
[permissions]
allow = ["fetch(docs.python.org)"]
deny = ["fetch(evil.example)"]
"""
NETWORK = '  <network enabled="true">\n    <allowed>docs.python.org</allowed>\n    <denied>evil.example</denied>\n  </network>\n'


def sections(request: Any) -> list[str]:
    """The texts of the developer in a request."""
    return [text for role, text in messages(request) if role == "developer"]


@pytest.mark.states("SG-29")
@pytest.mark.parametrize("profile", BOTH)
def test_what_the_settings_say_is_stated_once_in_the_order_of_the_profile(profile: str, tmp_path: Path) -> None:
    agent = LiveCodex(tmp_path, profile, config=CONFIG)
    first, second = agent.turn("go", using("recall", query="x"), Said("done"))
    mode = f"<collaboration_mode>{mode_text('execute')}</collaboration_mode>"
    found = [text for text in sections(first) if not text.startswith("<permissions")]
    voice = "<realtime_conversation>The user is in a voice conversation: dictated, so names may be misheard</realtime_conversation>"
    rest = [
        "<apps_instructions>The connector calendar is signed in.</apps_instructions>",
        "<plugins_instructions>The plugin figma is installed.</plugins_instructions>",
        "End the message of each commit that you make with the trailer `Co-authored-by: Codex <noreply@openai.com>`.",
    ]
    base = prompt_text("codex/default", personality=personality_text("friendly"))
    assert first.get("instructions") == (base if profile == "codex" else None)
    ordered = [text.replace("\n", "") for text in found]
    wanted = [mode, voice, *rest] if profile == "codex" else [base, voice, mode, *rest]
    assert ordered == [text.replace("\n", "") for text in wanted]
    assert NETWORK in next(text for _, text in messages(first) if text.startswith("<environment_context>"))
    assert second["input"][: len(first["input"])] == first["input"]
    [resumed] = agent.turn("on", Said("ok"))
    assert resumed["input"][: len(second["input"])] == second["input"]
    assert sections(resumed) == sections(first)


@pytest.mark.states("SG-29")
@pytest.mark.parametrize("profile", BOTH)
def test_another_style_or_way_of_working_is_stated_where_it_changes(profile: str, tmp_path: Path) -> None:
    agent = LiveCodex(tmp_path, profile)
    [first] = agent.turn("go", Said("done"))
    assert not any(tag in text for text in sections(first) for tag in ("personality", "apps_", "plugins_", "realtime", "Co-authored"))
    [changed] = agent.turn("on", Said("ok"), environment={"personality": "pragmatic", "collaboration_mode": "pair_programming"})
    new = sections(changed)[len(sections(first)) :]
    assert [text.partition(">")[0] for text in new] == ["<personality_spec", "<collaboration_mode"][
        :: 1 if profile == "codex-0.166" else -1
    ]
    assert any(personality_text("pragmatic") in text for text in new)
    assert any(mode_text("pair_programming") in text for text in new)


@pytest.mark.states("SG-29")
def test_a_setting_that_cannot_mean_anything_is_refused_and_every_setting_is_listed(tmp_path: Path) -> None:
    agent = LiveCodex(tmp_path, "codex")
    listed = agent.pal("config", "codex", "--json").stdout
    assert [f'"codex.{name}"' in listed for name in ("personality", "collaboration_mode", "commit_attribution", "service_tier")] == [
        True
    ] * 4
    for line, said in (
        ('personality = "grumpy"', "personality must be one of none, friendly, pragmatic"),
        ('collaboration_mode = "plan"', "collaboration_mode must be one of default, execute, pair_programming"),
        ('service_tier = "cheap"', "service_tier must be one of standard, fast, flex"),
        ('commit_attribution = "a\\nb"', "commit_attribution must be"),
    ):
        (agent.home / "config.toml").write_text(f"[codex]\n{line}\n")
        assert said in agent.pal("--profile", "codex", "-p", "go").stderr


@pytest.mark.states("SG-31")
@pytest.mark.parametrize("profile", BOTH)
def test_the_tier_of_the_service_is_asked_for_and_its_price_is_unknown(profile: str, tmp_path: Path) -> None:
    agent = LiveCodex(tmp_path, profile, config=CONFIG)
    [first] = agent.turn("go", Said("done"), words=("--json",))
    assert first["service_tier"] == "priority"
    assert '"cost_usd":null' in agent.output
    plain = LiveCodex(tmp_path / "plain", profile)
    [other] = plain.turn("go", Said("done"), words=("--json",))
    assert "service_tier" not in other
    assert '"cost_usd":null' not in plain.output
    refused = agent.pal("-c", "--max-usd", "1", "-p", "on")
    assert refused.returncode != 0


@pytest.mark.states("SG-31")
@pytest.mark.parametrize("profile", BOTH)
def test_the_share_that_is_left_has_the_baseline_of_12_000_and_the_latest_rate_limits_are_kept_and_shown(
    profile: str, tmp_path: Path
) -> None:
    agent = LiveCodex(tmp_path, profile)
    first = (
        ("x-codex-primary-used-percent", "12.5"),
        ("x-codex-primary-window-minutes", "300"),
        ("x-codex-primary-reset-at", "1800000000"),
    )
    agent.turn("go", Said("done", prompt=135_193, headers=first))
    shown = json.loads(agent.pal("context", "last", "--json").stdout)
    assert (shown["used"], shown["percent_left"]) == (135_200, 50)
    primary = {"name": "primary", "used_percent": 12.5, "resets_at": 1_800_000_000, "window_minutes": 300}
    assert shown["limits"] == [primary]
    later = (("x-ratelimit-limit-tokens", "1000"), ("x-ratelimit-remaining-tokens", "250"))
    agent.turn("on", Said("ok", prompt=11_000, headers=later), Said("again"))
    shown = json.loads(agent.pal("context", "last", "--json").stdout)
    assert shown["percent_left"] == 100
    assert shown["limits"] == [{"name": "tokens", "used_percent": 75.0, "resets_at": None, "window_minutes": None}]
    lines = agent.pal("context", "last").stdout.splitlines()
    assert "100% of the context is left, as this profile counts: the first 12,000 tokens are not counted" in lines
    assert "rate limit tokens: 75% used" in lines
