from datetime import datetime
from pathlib import Path

import pytest
from msgspec import structs

from palimpsest.core.errors import BadInput
from palimpsest.core.events import UserSaid
from palimpsest.core.items import Text
from palimpsest.stores.home import Home, MemoryHome
from palimpsest.stores.in_memory import FixedClock
from palimpsest.stores.sessions import new_session_id
from palimpsest.testing import HomeContract
from palimpsest.wire.models import CARDS


class TestFolderHome(HomeContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "home"

    def make(self) -> Home:
        return Home.at(self.folder)


class TestMemoryHome(HomeContract):
    def make(self) -> Home:
        return Home.in_memory()


def test_a_home_is_called_by_its_folder_or_memory(tmp_path: Path) -> None:
    home = Home.at(tmp_path)
    assert (home.name, home.local_folder, home.store.name) == (str(tmp_path), tmp_path, str(tmp_path / "sessions"))
    assert (Home.in_memory().name, Home.in_memory().local_folder) == ("memory", None)


def test_the_size_of_a_session_counts_its_other_files_where_it_has_some(tmp_path: Path) -> None:
    for home, more in ((Home.at(tmp_path), 4), (Home.in_memory(), 0)):
        with home.new() as log:
            log.sync()
        before = home.store.disk_bytes(log.session)
        home.store.result_files(log.session)("result.txt", b"four")
        assert home.store.disk_bytes(log.session) == before + more


def test_an_index_that_is_kept_is_known(tmp_path: Path) -> None:
    home = Home.at(tmp_path)
    home.index().close()
    assert home.has_index


def test_the_cards_of_a_memory_home_can_be_given() -> None:
    own = structs.replace(CARDS[0], window=1_000)
    home = MemoryHome(own=(own,))
    assert (home.own_cards(), len(home.cards()), home.cards()[0].window) == ((own,), len(CARDS), 1_000)


def test_a_home_is_made_by_its_first_session_and_not_by_looking(tmp_path: Path) -> None:
    home = Home.at(tmp_path / "home")
    assert home.store.sessions() == []
    assert not home.folder.exists()
    home.new().close()
    assert home.folder.is_dir()


def test_a_card_of_the_user_wins_over_a_built_in_one(tmp_path: Path) -> None:
    home = Home.at(tmp_path)
    home.cards_path.write_text('[cards."gpt-5"]\nlike = "gpt-5"\nwindow = 100000\n', encoding="utf-8")
    assert [card.window for card in home.cards() if card.name == "gpt-5"] == [100_000]


def test_a_card_file_that_is_no_text_is_an_error_that_names_it(tmp_path: Path) -> None:
    home = Home.at(tmp_path)
    home.cards_path.write_bytes(b"\xff")
    with pytest.raises(BadInput, match=r"cards\.toml: this is not UTF-8 text"):
        home.own_cards()


def test_the_clock_of_a_memory_home_can_be_given() -> None:
    log = Home.in_memory(FixedClock(1_000, 10)).new()
    assert [log.append(UserSaid((Text("a"),))).at for _ in range(2)] == [1_020, 1_030]


def test_session_ids_sort_by_time() -> None:
    assert new_session_id(1_700_000_000_000) < new_session_id(1_700_000_001_000)


@pytest.mark.states("PV-78")
def test_the_cards_have_the_prices_of_the_day_and_price_the_calls_of_any_other_by_its_own() -> None:
    for day, dollars in (("2026-11-30", 2), ("2026-12-01", 4)):
        now = int(datetime.fromisoformat(f"{day}T12:00:00+00:00").timestamp() * 1_000)
        cards = {each.name: each.prices for each in MemoryHome(clock=FixedClock(now)).cards()}
        assert (day, cards["gemini-4-argon"].input, cards["claude-sonnet-5-5"].cache_read) == (day, dollars, 0.1)
        assert cards["claude-sonnet-5-5"].on("2026-10-06").cache_read == 0.2
        # A process that loaded them the day before goes on after midnight.
        assert [cards["gemini-4-argon"].on(each).input for each in ("2026-11-30", "2026-12-01", "2027-01-01")] == [2, 4, 4]
