"""The settings of Codex's memory under its own names: their defaults, their limits, and values that are refused."""

import pytest

from palimpsest.core.errors import BadInput
from palimpsest.policies.named import profile
from palimpsest.policies.profile import StageRules

DOCUMENTED = StageRules(
    "memories",
    has_raw=True,
    sessions=16,
    age_days=30,
    idle_hours=6,
    memories=1_024,
    summary_tokens=5_000,
    phase_one_default="gpt-5.1-codex-mini",
    phase_two_default="gpt-5.3-codex",
)
MEASURED = StageRules(
    "memories_v2",
    has_raw=False,
    sessions=2,
    age_days=10,
    idle_hours=6,
    memories=256,
    summary_tokens=2_500,
    cooldown_hours=6,
    unused_days=30,
)


@pytest.mark.states("SG-21")
def test_each_version_has_its_numbers() -> None:
    assert profile("codex", {}).memory.stages == DOCUMENTED
    assert profile("codex-0.166", {}).memory.stages == MEASURED


@pytest.mark.states("SG-21")
@pytest.mark.parametrize(("given", "clamped"), [("5000", (128, 90, 48, 4_096)), ("0", (0, 0, 1, 1)), ("20", (20, 20, 20, 20))])
def test_numbers_are_clamped_as_in_codex(given: str, clamped: tuple[int, int, int, int]) -> None:
    names = ("max_rollouts_per_startup", "max_rollout_age_days", "min_rollout_idle_hours", "max_raw_memories_for_global")
    found = profile("codex@" + ",".join(f"memories.{name}={given}" for name in names), {}).memory.stages
    assert found is not None
    assert (found.sessions, found.age_days, found.idle_hours, found.memories) == clamped


@pytest.mark.states("SG-21")
def test_what_can_mean_nothing_is_refused() -> None:
    for setting in ("memories.max_rollouts_per_startup=many", "memories.min_rollout_idle_hours=-1", "memories.use_memories=perhaps"):
        with pytest.raises(BadInput, match=setting.partition("=")[0]):
            profile(f"codex@{setting}", {})
    with pytest.raises(BadInput, match="does not read"):
        profile("codex-0.166@memories.phase_1_model=gpt-5.2", {})


def test_use_and_generation_have_switches() -> None:
    assert profile("codex@memories.use_memories=false", {}).notes.head == "nothing"
    assert profile("codex@memories.generate_memories=false", {}).memory.summarises is False
