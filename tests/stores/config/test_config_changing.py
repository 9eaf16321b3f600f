"""One key of a configuration file is changed, and all else in it stays."""

from pathlib import Path

import pytest

from palimpsest.core.errors import BadInput
from palimpsest.stores.config_files import change_key


def test_a_key_is_replaced_where_it_stands_and_comments_stay(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('model = "a" # mine\n\n[terminal]\n# colours\ntheme = "dark"\nnotify = "off"\n\n[memory]\nuse = true\n')
    change_key(path, "terminal.theme", "light")
    assert path.read_text() == 'model = "a" # mine\n\n[terminal]\n# colours\ntheme = "light"\nnotify = "off"\n\n[memory]\nuse = true\n'


def test_a_missing_table_or_file_is_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "config.toml"
    change_key(path, "terminal.theme", "light")
    change_key(path, "terminal.notify", "off")
    change_key(path, "files.snapshots", value=False)
    assert path.read_text() == '[terminal]\nnotify = "off"\ntheme = "light"\n\n[files]\nsnapshots = false\n'


def test_a_key_without_a_table_goes_before_the_tables(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[files]\nsnapshots = true\n")
    change_key(path, "model", "b")
    assert path.read_text() == 'model = "b"\n[files]\nsnapshots = true\n'


@pytest.mark.parametrize(
    "text",
    [
        'terminal = { theme = "dark" }\n',
        'terminal.theme = "dark"\n',
        "terminal = 3\n",
        "not toml\n",
        'model = """\n[terminal]\n"""\n',
    ],
)
def test_a_file_in_which_more_than_the_key_would_change_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(BadInput, match="change it in the file"):
        change_key(path, "terminal.theme", "light")
    assert path.read_text() == text


def test_an_unknown_key_and_a_wrong_value_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no key terminal\.colour"):
        change_key(tmp_path / "config.toml", "terminal.colour", "light")
    with pytest.raises(BadInput, match="must be one of dark, light"):
        change_key(tmp_path / "config.toml", "terminal.theme", "blue")
    assert list(tmp_path.iterdir()) == []
