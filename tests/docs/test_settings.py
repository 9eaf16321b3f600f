"""The settings that profiles read are those of one table and those that the documents list."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from every_case import every_case

from palimpsest.policies.named import PROFILES
from palimpsest.policies.profile import SETTINGS, honoured_settings
from palimpsest.wire.models import card

PAGE = (Path(__file__).parents[2] / "docs" / "profiles.md").read_text(encoding="utf-8")
# A name has an underscore or a dot in it; what else stands between such marks is a value or the name of a profile.
NAMED = re.compile(r"[A-Za-z]\w*(?:[_.]\w+)+")


class Watched(Mapping[str, str]):
    """An environment in which nothing is set, and that remembers what was looked for."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 1


@every_case("name", list(PROFILES))
def test_a_profile_reads_the_settings_that_the_table_has_for_it(name: str) -> None:
    watched = Watched()
    PROFILES[name](watched).budget(card("claude-sonnet-4-5"))

    assert watched.names == set(SETTINGS[name])


def test_every_setting_of_a_profile_is_documented_and_none_that_does_not_exist() -> None:
    read = {setting for settings in SETTINGS.values() for setting in settings}
    told = set(re.findall(r"`([^`]+)`", PAGE.partition("## Settings")[2].partition("\n## ")[0]))

    assert len(read) > 30
    assert read <= told
    assert {name for name in told if NAMED.fullmatch(name)} - {"body_after_prefix"} <= read


def test_what_an_environment_sets_is_told_by_name_and_value() -> None:
    environment = {"PATH": "/bin", "DISABLE_COMPACT": "1", "DISABLE_AUTO_COMPACT": " ", "proactive": "measured", "PAL_TAIL": "900"}

    assert honoured_settings("claude-code-2.1.325", environment) == {"DISABLE_COMPACT": "1", "proactive": "measured"}
    assert honoured_settings("palimpsest", environment) == {"PAL_TAIL": "900"}
    assert honoured_settings("none", environment) == {}
