from datetime import datetime
from pathlib import Path

import pytest
from msgspec import structs

from palimpsest.core.errors import BadInput, Locked
from palimpsest.core.events import Titled, UserSaid
from palimpsest.core.items import Text
from palimpsest.stores.home import AnyHome, Home, MemoryHome
from palimpsest.stores.in_memory import FixedClock
from palimpsest.stores.sessions import new_session_id
from palimpsest.wire.models import CARDS


@pytest.fixture(params=["folder", "memory"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> AnyHome:
    return Home.at(tmp_path / "home") if request.param == "folder" else Home.in_memory()


def test_every_home_offers_the_same(home: AnyHome) -> None:
    home.new(title="One").close()
    (session,) = home.store.sessions()
    address = home.blobs.put(b"kept")
    assert (home.imports.load(), home.imports.save(b"seen"), home.imports.load()) == (None, True, b"seen")
    assert (home.store.stat(session).size > 0, home.blobs.get(address), home.own_cards()) == (True, b"kept", ())
    assert [each.name for each in home.cards()] == [each.name for each in CARDS]
    assert (home.has_index, home.name) == (False, "memory" if home.folder is None else str(home.folder))
    with home.index() as index:
        assert [row.title for row in index.list()] == ["One"]
    home.store.remove(session)
    assert list(home.store.sessions()) == []


def test_an_index_that_is_kept_is_known(tmp_path: Path) -> None:
    home = Home.at(tmp_path)
    home.index().close()
    assert home.has_index


def test_the_cards_of_a_memory_home_can_be_given() -> None:
    own = structs.replace(CARDS[0], window=1_000)
    home = MemoryHome(own=(own,))
    assert (home.own_cards(), len(home.cards()), home.cards()[0].window) == ((own,), len(CARDS), 1_000)


def test_a_session_of_a_home_is_there_when_it_is_opened_again(home: AnyHome) -> None:
    with home.new(cwd="/repo", model="m", title="Greeting") as log:
        log.append(UserSaid((Text("hello"),)))
        session, view = log.session, log.view
    with home.open(session) as again:
        assert again.view == view
        assert (again.opened.cwd, again.opened.model, again.event(1).body) == ("/repo", "m", Titled("Greeting"))


def test_a_session_has_one_writer_and_any_number_of_readers(home: AnyHome) -> None:
    with home.new() as log:
        with pytest.raises(Locked):
            home.open(log.session)
        with home.open(log.session, write=False) as reader:
            assert reader.tip == 0


def test_a_fork_goes_on_from_an_event_and_leaves_its_base_as_it_was(home: AnyHome) -> None:
    with home.new() as log:
        log.extend([UserSaid((Text("one"),)), UserSaid((Text("two"),))])
        with home.fork(log, 1) as fork:
            fork.append(UserSaid((Text("three"),)))
            assert fork.view.ids == ("1.0", "3.0")
        assert log.view.ids == ("1.0", "2.0")


def test_the_index_of_a_home_finds_what_was_said(home: AnyHome) -> None:
    with home.new() as log:
        log.extend([UserSaid((Text("a palimpsest is written over"),))])
    with home.index() as index:
        index.refresh()
        assert [(hit.session, hit.item) for hit in index.search("palimpsest")] == [(log.session, "1.0")]
        assert index.note == ""


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
