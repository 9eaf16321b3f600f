import re
from collections import Counter

import pytest
from html_pages import Page
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from replay_samples import CARD, comparison, outcome, session

from pal.replay.drawing import cost_parts
from pal.replay.outcome import CardRun, Comparison, HiddenEvent, Outcome, ReplayedSession, WindowShare, figures
from pal.replay.report import write_page


def page(found: Comparison) -> str:
    return "".join(write_page(found))


@pytest.mark.parametrize("found", [comparison(), comparison(3, 40, (CARD, "gpt-5.5")), Comparison((), ())], ids=["one", "many", "none"])
def test_the_page_is_well_formed_and_every_link_leads_to_a_place_in_it(found: Comparison) -> None:
    read = Page(page(found))

    assert (read.open, read.odd) == ([], [])
    assert [link for link in read.links if not link.startswith("#")] == []
    assert {link.removeprefix("#") for link in read.links} <= set(read.names)
    assert [name for name, count in Counter(read.names).items() if count > 1] == []


def test_the_page_loads_nothing_and_runs_nothing() -> None:
    made = page(comparison(2))
    read = Page(made)

    assert re.findall(r"(?i)https?:|//|url\(|@import|javascript:", made) == []
    assert {"script", "iframe", "link", "img", "object", "embed", "form", "base"} & set(read.seen) == set()
    assert [name for name in read.attributes if name.startswith("on")] == []
    assert "default-src &#x27;none&#x27;" in made


def test_an_address_that_a_session_names_is_shown_and_is_none_in_the_file() -> None:
    one = session(1, 60, ("claude-code",))
    reported = replace(
        one, title="see https://example.org/a//b", lines=(HiddenEvent(12, "user_said", "", "//example.org and http://localhost:1/", 3),)
    )

    made = page(Comparison((CardRun(CARD, "5m", 200_000, (reported,)),), ("claude-code",)))

    assert "//" not in made
    assert "see https://example.org/a//b" in Page(made).text
    assert "//example.org and http://localhost:1/" in Page(made).text


def test_the_page_has_every_part_of_a_report() -> None:
    read = Page(page(comparison()))

    for heading in (
        "Cost by part",
        "Context, call by call",
        "The bill, call by call",
        "Who filled the window when it was fullest",
        "What survives, fold after fold",
        "Probes, compaction after compaction",
        "Edits, and what they hid",
    ):
        assert heading in read.text
    assert read.looks["bar"] == read.looks["map"] == 4
    # Four drawings of context, one of the bill, six of survival, two of probes.
    assert read.looks["plot"] == 4 + 1 + 5 + 2
    # Palimpsest folds four times, the others that fold twice each; every fold is a mark and a fall, and one mark is the key.
    assert read.looks["fall"] == 8
    assert read.looks["losses"] == 3 + 3 + 1


def test_the_first_sentence_says_what_ours_costs_against_the_baseline() -> None:
    found = comparison()
    outcomes = found.runs[0].sessions[0].profiles
    ours, theirs = figures([outcomes["palimpsest"]]), figures([outcomes["claude-code"]])

    made = Page(page(found)).text

    assert f"palimpsest costs {ours.usd / theirs.usd:.2f}× of what claude-code costs (${ours.usd:.2f} against ${theirs.usd:.2f})" in made
    assert "with 4 re-reads of content that was hidden when a later call needed it." in made


def test_the_parts_of_a_bar_are_the_whole_bill() -> None:
    found = outcome("claude-code")

    parts = cost_parts([found])

    assert sum(parts.values()) == pytest.approx(found.cost.total)
    assert parts["summaries"] > 0 < parts["rereads"]
    assert parts["summaries"] == pytest.approx(figures([found]).usd_of["summary"], abs=1e-6)


def test_an_edit_links_to_the_events_it_hid_and_an_event_says_who_hid_it() -> None:
    made = page(comparison())

    assert '<a href="#card-0-event-12">12</a>' in made
    row = made[made.index('<tr id="card-0-event-12">') :].split("</tr>")[0]
    assert re.findall(r'title="([^"]+)"', row) == ["palimpsest", "claude-code", "codex"]
    assert "needed again" in row
    assert "def parse_it(text)" in row


def test_user_messages_that_were_hidden_and_invalid_requests_stand_out() -> None:
    ill = replace(outcome("codex"), invalid=3, stopped="the floor <does not> fit")
    found = Comparison((CardRun(CARD, "5m", 200_000, (ReplayedSession("s", "home", "pal", 1, profiles={"codex": ill}),)),), ("codex",))

    made = page(found)

    assert '<b class="bad">1 user message</b>' in made
    assert '<b class="bad">3</b>' in made
    assert "stopped: the floor &lt;does not&gt; fit" in made


def test_all_sessions_are_listed_and_only_the_most_expensive_are_drawn() -> None:
    read = Page(page(comparison(10, 30)))

    assert read.looks["session"] == 8
    assert "The 8 that cost most are drawn below." in read.text
    assert all(f"shop & co: session <{number}>" in read.text for number in range(1, 11))


def test_two_sessions_of_one_name_have_their_own_anchors_and_the_most_expensive_is_open() -> None:
    short, long = session(1, 30), session(1, 60)
    made = page(Comparison((CardRun(CARD, "5m", 200_000, (short, long)),), tuple(short.profiles), "claude-code"))

    assert '<details class="session" id="card-0-session-0"><summary' in made
    assert '<details class="session" id="card-0-session-1" open><summary' in made
    assert [name for name, count in Counter(Page(made).names).items() if count > 1] == []


def test_the_same_comparison_gives_the_same_bytes() -> None:
    assert page(comparison(2)) == page(comparison(2))


def test_a_profile_without_a_call_is_shown_as_such() -> None:
    found = Comparison(
        (CardRun(CARD, "5m", 200_000, (ReplayedSession("s", "home", "pal", 0, profiles={"none": Outcome("none")}),)),), ("none",)
    )

    read = Page(page(found))

    assert (read.open, read.odd) == ([], [])
    assert "no call" in read.text
    assert "so everything stayed visible" in read.text


@settings(max_examples=40, deadline=None)
@given(words=st.text(st.characters(exclude_categories=[]), max_size=40))
def test_whatever_a_session_says_is_text_and_never_markup(words: str) -> None:
    hostile = f"</title></style><script>{words}</svg>]]><!--\"'&"
    one = session(1, 60, ("claude-code",))
    found = one.profiles["claude-code"]
    edits = tuple(
        replace(edit, by=hostile, why=hostile, loss=replace(edit.loss, paths=(hostile,), commands=(hostile,))) for edit in found.edits
    )
    rereads = tuple(replace(reread, names=(hostile,)) for reread in found.rereads)
    made = replace(found, profile=hostile, edits=edits, rereads=rereads, census=(WindowShare(hostile, hostile, 900, 1),), stopped=hostile)
    reported = replace(one, id=hostile, title=hostile, profiles={hostile: made}, lines=(HiddenEvent(12, hostile, hostile, hostile, 3),))

    whole = page(Comparison((CardRun(hostile, hostile, 200_000, (reported,)),), (hostile,), against=hostile))
    read = Page(whole)

    assert (read.open, read.odd) == ([], [])
    assert "script" not in read.seen
    assert read.attributes == Page(page(comparison(1, 60))).attributes | {"id"}
    assert "<!--" not in whole
