"""The providers of a run: names of local models, and what is said without the extra, without weights and offline."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pal.cli.settings import settings_of
from palimpsest.coding.providers import RunProviders, model_of
from palimpsest.core.errors import NoModel
from palimpsest.providers.http import HttpProvider
from palimpsest.stores.home import FolderHome
from palimpsest.wire.models import card

# The process imports as if the package of the extra were not installed.
WITHOUT_EXTRA = "import sys; sys.modules['xllamacpp'] = None; from pal.cli.start import main; main()"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("local/smollm2-135m", "local/smollm2-135m"),
        ("gpt-5.5", "gpt-5.5"),
        ("/models/a.gguf", "local//models/a.gguf"),
        ("local//models/a.GGUF", "local//models/a.GGUF"),
    ],
)
def test_a_path_to_weights_is_a_local_model(given: str, name: str) -> None:
    assert model_of(given) == name
    assert model_of("a.gguf") == f"local/{Path.cwd()}/a.gguf"


def test_without_the_extra_a_local_model_says_how_to_install_it_and_fetches_nothing(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PAL_SCRIPT"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRA, "-p", "hello", "--model", "local/smollm2-135m"],
        cwd=tmp_path,
        env={**environment, "PAL_HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PAL_RETRIES": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "pal: local/smollm2-135m: local models need the extra `local`: pip install 'palimpsest-agent[local]'"
    )
    assert not (tmp_path / "cache").exists()


def test_a_configured_address_is_used_and_offline_no_model_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAL_SCRIPT", raising=False)
    (tmp_path / "config.toml").write_text('[providers.local]\nbase_url = "http://127.0.0.1:9/v1"\n')
    providers = RunProviders(settings_of(FolderHome(tmp_path)), print)
    model = card("local/anything")
    found = providers(model, "turn")
    assert isinstance(found, HttpProvider)
    assert providers(model, "title") is found
    monkeypatch.setenv("PAL_OFFLINE", "1")
    with pytest.raises(NoModel, match="PAL_OFFLINE is set, so no model is called for turn"):
        providers(card("local/another"), "turn")
