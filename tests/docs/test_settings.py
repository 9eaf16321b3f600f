"""The settings that profiles read are those that the documents list, and the other way round."""

import re
from pathlib import Path

from palimpsest import profiles

CODE = "\n".join(path.read_text(encoding="utf-8") for path in sorted(Path(profiles.__file__).parent.glob("*.py")))
PAGE = (Path(__file__).parents[2] / "docs" / "profiles.md").read_text(encoding="utf-8")


def test_every_setting_of_a_profile_is_documented_and_none_that_does_not_exist() -> None:
    # A name has an underscore or a dot in it; what else stands between such marks is a value or the name of a profile.
    named = re.compile(r"[A-Za-z]\w*(?:[_.]\w+)+")
    read = {name for name in re.findall(r'(?:environment|settings)(?:\.get\(|, )"([\w.]+)"', CODE) if named.fullmatch(name)}
    told = {name for name in re.findall(r"`([^`]+)`", PAGE.partition("## Settings")[2]) if named.fullmatch(name)}
    assert len(read) > 30
    assert told - {"body_after_prefix"} == read
