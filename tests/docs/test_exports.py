import subprocess
import sys

import palimpsest

_LOADED = """
import sys
import palimpsest
print(sorted(name for name in sys.modules if name.startswith("palimpsest") or name in ("msgspec", "sqlite3", "asyncio", "httpx")))
"""


def test_every_exported_name_can_be_used() -> None:
    assert {name: hasattr(palimpsest, name) for name in palimpsest.__all__} == dict.fromkeys(palimpsest.__all__, True)


def test_the_exported_names_are_the_ones_that_the_rooms_give() -> None:
    assert sorted(palimpsest.__all__) == sorted(palimpsest._HOMES)
    assert set(palimpsest.__all__) <= set(dir(palimpsest))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(palimpsest, "Manager")


def test_importing_the_package_loads_nothing_else() -> None:
    done = subprocess.run([sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['palimpsest']"
