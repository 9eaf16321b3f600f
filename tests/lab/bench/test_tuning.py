"""Sessions are split into two halves by length alone; numbers are tuned on one half and measured on the other."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pal_lab.cost.tuning import SettingResult, TuningChoice, TuningResult, best_setting, tune, tuning_markdown
from pal_lab.halves import split_halves
from palimpsest.core.errors import BadInput
from palimpsest.policies.profiles import ThriftNumbers

GOLDEN = Path(__file__).parents[2] / "golden" / "foreign"


def measured(setting: str, cost: float, rereads: float = 0.5, worst: float = 1.0, half: str = "even") -> SettingResult:
    """The re-reads of the automatic run are worse by 0.1, and its cost by 0.02."""
    again = {"breakpoints": rereads, "automatic": rereads + 0.1}
    by_strings, folds = {"breakpoints": 1.1, "automatic": 1.2}, {"breakpoints": 1.3, "automatic": 1.4}
    return SettingResult(setting, half, {"breakpoints": cost, "automatic": cost + 0.02}, again, by_strings, folds, worst)


def test_the_cheapest_setting_that_keeps_all_limits_with_each_kind_of_cache_is_chosen() -> None:
    dear, cheap = measured("dear", 0.9), measured("cheap", 0.8)
    reads_again, hurts_one = measured("reads again", 0.5, rereads=0.91), measured("hurts one", 0.5, worst=1.11)
    often = replace(measured("folds often", 0.5), folds={"breakpoints": 1.51, "automatic": 1.0})
    strings = replace(measured("forgets strings", 0.5), strings={"breakpoints": 1.0, "automatic": 1.21})
    assert best_setting([dear, cheap, reads_again, hurts_one, often, strings]) == cheap


def test_when_no_setting_keeps_all_limits_the_one_that_comes_closest_is_chosen() -> None:
    assert best_setting([measured("a", 0.5, rereads=1.4), measured("b", 0.9, rereads=1.1)]) == measured("b", 0.9, rereads=1.1)


def test_the_table_tells_both_halves_of_each_choice() -> None:
    choices = (
        TuningChoice(measured("cheap", 0.8), measured("cheap", 0.85, 0.7, 1.05, "odd")),
        TuningChoice(measured("dear", 0.9, half="odd"), measured("dear", 0.95)),
        TuningChoice(measured("cheap", 0.83, half="all")),
    )
    assert tuning_markdown(TuningResult({"even": 3, "odd": 4}, (measured("cheap", 0.8),) * 6, choices)) == (
        "| chosen on | numbers | measured on | breakpoints | automatic | re-reads | *strings* | folds | worst |\n"
        "|---|---|---|---:|---:|---:|---:|---:|---:|\n"
        "| even | cheap | even | 0.800x | 0.820x | 0.50x / 0.60x | 1.10x / 1.20x | 1.30x / 1.40x | 1.00x |\n"
        "| even | cheap | odd (held out) | 0.850x | 0.870x | 0.70x / 0.80x | 1.10x / 1.20x | 1.30x / 1.40x | 1.05x |\n"
        "| odd | dear | odd | 0.900x | 0.920x | 0.50x / 0.60x | 1.10x / 1.20x | 1.30x / 1.40x | 1.00x |\n"
        "| odd | dear | even (held out) | 0.950x | 0.970x | 0.50x / 0.60x | 1.10x / 1.20x | 1.30x / 1.40x | 1.00x |\n"
        "| all | cheap | all | 0.830x | 0.850x | 0.50x / 0.60x | 1.10x / 1.20x | 1.30x / 1.40x | 1.00x |\n"
        "\n2 settings; 3 even and 4 odd sessions."
    )


def test_sessions_are_replayed_under_every_setting_and_each_half_chooses_for_the_other() -> None:
    messages: list[str] = []
    settings = (ThriftNumbers(), ThriftNumbers(patience=0.5, early_at=90_000))
    found = tune(GOLDEN / "claude", settings=settings, announce=messages.append)
    assert sum(found.sessions.values()) == len(messages)
    assert {(each.half, each.setting) for each in found.measured} == {
        (half, f"patience {numbers}, cold 60,000, in use 60,000")
        for half in ("even", "odd", "all")
        for numbers in ("1, from 130,000", "0.5, from 90,000")
    }
    halves = [(choice.chosen.half, choice.held_out and choice.held_out.half) for choice in found.choices]
    assert halves == [("even", "odd"), ("odd", "even"), ("all", None)]
    assert all(choice.held_out is None or choice.chosen.setting == choice.held_out.setting for choice in found.choices)


def test_a_folder_without_sessions_cannot_be_halved(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="too few sessions for two halves"):
        tune(tmp_path, settings=())


def test_of_each_two_sessions_of_about_the_same_length_one_goes_to_each_half_in_turns() -> None:
    assert split_halves({"a": 90, "b": 80, "c": 70, "d": 60, "e": 50}) == {"even": ("a", "d", "e"), "odd": ("b", "c")}


def test_sessions_of_the_same_length_are_ordered_by_their_id() -> None:
    assert split_halves({"b": 5, "a": 5}) == {"even": ("a",), "odd": ("b",)}


@given(st.dictionaries(st.text(max_size=5), st.integers(1, 1_000_000), max_size=30))
def test_every_session_is_in_one_half_and_no_half_has_much_more_tokens(tokens: dict[str, int]) -> None:
    halves = split_halves(tokens)
    assert sorted(name for names in halves.values() for name in names) == sorted(tokens)
    even, odd = (sum(tokens[name] for name in names) for names in halves.values())
    assert abs(even - odd) <= max(tokens.values(), default=0)
