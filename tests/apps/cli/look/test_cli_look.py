import pytest
from pal_runs import LONG, SMALL, Pal, edited, long, small

_OWN = """
[cards.mine]
like = "claude-sonnet-4-5"
window = 50000
"""


def test_the_context_is_counted_by_kind_source_and_item(pal: Pal) -> None:
    edited(pal.home)
    found = pal.json("context", SMALL)

    assert found == {
        "window": 200_000,
        "used": 39,
        "free": 159_961,
        "buffer": 40_000,
        "percent_left": None,
        "limits": [],
        "by_kind": {"context": 9, "summary": 9, "user": 24, "assistant": 9, "tools": 29},
        "by_source": {"base": 9},
        "items": [
            {"id": "1.0", "kind": "context", "tokens": 9, "masked": False, "source": "base"},
            {"id": "14.0.0", "kind": "summary", "tokens": 9, "masked": True, "source": ""},
            {"id": "2.0", "kind": "user", "tokens": 11, "masked": False, "source": ""},
            {"id": "10.0", "kind": "user", "tokens": 13, "masked": False, "source": ""},
            {"id": "12.0", "kind": "assistant", "tokens": 9, "masked": False, "source": ""},
        ],
        "rows": {"System prompt": 9, "System tools": 29, "Memory files": 0, "Skills": 0, "Messages": 43},
        "tools_counted": False,
    }


@pytest.mark.parametrize(("form", "cell"), [("measured", "s"), ("documents", "□")])
def test_the_grid_has_ten_rows_of_ten_in_either_form(pal: Pal, form: str, cell: str) -> None:
    edited(pal.home)
    lines = pal("context", SMALL, "--form", form).stdout.splitlines()

    assert lines[0] == "claude-sonnet-4-5 · 39/200k tokens (0%)"
    assert [len(line[:20].split()) for line in lines[1:11]] == [10] * 10
    assert lines[1][0] == cell
    assert all(len(line) <= 80 for line in lines)


def test_the_context_of_an_earlier_moment_and_another_window_can_be_asked_for(pal: Pal) -> None:
    small(pal.home)
    found = pal.json("context", SMALL, "--at", "2", "--window", "1000")

    assert (found["window"], [item["id"] for item in found["items"]]) == (1000, ["1.0", "2.0"])


def test_words_are_found_with_their_place(pal: Pal) -> None:
    small(pal.home)
    hits = pal.json("search", "timeout", "--kind", "assistant")

    assert [(hit["session"], hit["seq"], hit["item"], hit["snippet"]) for hit in hits] == [(SMALL, 8, "8.0", "A [timeout] of ten seconds.")]
    assert pal("search", "timeout", "--kind", "assistant").stdout.splitlines()[1] == "  A [timeout] of ten seconds."


def test_without_a_terminal_a_match_is_two_lines_however_long_it_is(pal: Pal) -> None:
    small(pal.home)
    lines = pal("search", "timeout", "--kind", "result").stdout.splitlines()

    assert (len(lines), len(lines[1]) > 100) == (2, True)


def test_every_hit_says_whether_it_shows_or_what_hides_it(pal: Pal) -> None:
    edited(pal.home)
    (hidden,) = pal.json("search", '"ten seconds"')

    assert (hidden["shown"], hidden["hidden_by"]) == (False, {"event": 14, "policy": "tester", "why": "it was long"})
    assert hidden["at"] == "2031-04-01T09:00:08.000Z"
    assert pal("search", '"ten seconds"').stdout.splitlines()[0].endswith("  hidden by edit 14")
    assert pal.json("search", "改成")[0]["shown"] is True
    assert pal("search", "改成").stdout.splitlines()[0].endswith("  shown")
    pal("rewind", SMALL, "7")
    assert pal("search", "改成").stdout.splitlines()[0].endswith("  hidden by rewind 16")


def test_what_matched_is_listed_once_by_session_or_by_file(pal: Pal) -> None:
    small(pal.home)
    small(pal.home, "other")
    newest = "2031-04-01T09:00:08.000Z"

    assert pal.json("search", "timeout", "--sessions") == [
        {"session": session, "title": "What is in a.py?", "hits": 2, "at": newest} for session in ("other", SMALL)
    ]
    # The calls of both sessions are found by the name of the tool, their results by what they say.
    assert pal.json("search", "timeout", "--files") == [
        {"path": "a.py", "hits": 2, "session": "other", "at": "2031-04-01T09:00:06.000Z"},
    ]
    lines = pal("search", "timeout", "--sessions", "--limit", "1")
    assert (lines.stdout.count("What is in a.py?"), lines.stderr) == (1, "… and 1 more: --limit N\n")
    assert pal("search", "timeout", "--sessions", "--files").exit_code == 2


def test_chinese_words_phrases_and_exclusions_are_understood(pal: Pal) -> None:
    small(pal.home)

    assert [hit["seq"] for hit in pal.json("search", "改成")] == [10]
    assert [hit["seq"] for hit in pal.json("search", '"ten seconds"')] == [8]
    assert [hit["seq"] for hit in pal.json("search", "timeout", "-seconds")] == [6]
    assert pal.json("search", "timeout", "--limit", "1", "--ranked")[0]["session"] == SMALL


def test_a_search_can_stay_within_a_session(pal: Pal) -> None:
    small(pal.home)
    long(pal.home, events=400)

    assert {hit["session"] for hit in pal.json("search", "timeout", "--session", SMALL)} == {SMALL}
    assert {hit["session"] for hit in pal.json("search", "tests", "--session", LONG)} == {LONG}


def test_nothing_found_is_said_on_standard_error_and_by_the_exit_code(pal: Pal) -> None:
    small(pal.home)
    result = pal("search", "unheardof")

    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "nothing found\n")
    assert pal.json("search", "unheardof", code=1) == []
    assert pal.json("search", "unheardof", "--files", code=1) == []


def test_a_mistyped_option_is_no_word_to_search_for(pal: Pal) -> None:
    assert pal("search", "--rankt", "x").stderr == "pal: search: No such option: --rankt; see `pal search --help`\n"


def test_after_two_dashes_everything_is_a_word(pal: Pal) -> None:
    small(pal.home)

    assert f"{SMALL}:8  assistant" in pal("search", "--kind", "assistant", "--", "--timeout").stdout
    assert pal("search", "timeout", "--", "--seconds").exit_code == 0
    assert pal("search", "--rankt", "--", "--timeout").exit_code == 2


def test_cards_are_listed_and_the_users_own_win(pal: Pal) -> None:
    pal.home.folder.mkdir(parents=True)
    pal.home.cards_path.write_text(_OWN)
    found = {card["name"]: card for card in pal.json("cards")}

    assert found["mine"]["own"] is True
    assert found["mine"]["window"] == 50_000
    assert found["claude-sonnet-4-5"]["prices"]["output"] == 15
    assert pal("cards").stdout.splitlines()[1].startswith("mine (yours)")
    assert all(len(line) <= 80 for line in pal("cards").stdout.splitlines())


def test_a_broken_card_file_is_one_line_that_names_the_key(pal: Pal) -> None:
    pal.home.folder.mkdir(parents=True)
    pal.home.cards_path.write_text('[cards.mine]\nlike = "claude-sonnet-4-5"\nwindwo = 5\n')
    result = pal("cards")

    assert result.exit_code == 1
    assert "claude-sonnet-4-5" in result.stdout
    assert {card["own"] for card in pal.json("cards", code=1)} == {False}
    assert result.stderr.startswith(f"pal: {pal.home.cards_path}: ")
    assert "windwo" in result.stderr


def test_the_index_reports_what_it_read_and_can_be_rebuilt(pal: Pal) -> None:
    small(pal.home)
    size = pal.home.store.path_of(SMALL).stat().st_size

    nothing_wrong = {"bad_lines": 0, "gone": 0, "skipped": [], "note": ""}
    assert pal.json("index") == {"read": 1, "bytes": size, **nothing_wrong}
    assert pal.json("index") == {"read": 0, "bytes": 0, **nothing_wrong}
    assert pal.json("index", "--rebuild") == {"read": 1, "bytes": size, **nothing_wrong}
