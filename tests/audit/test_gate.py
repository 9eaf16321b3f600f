"""The gate: what it changes, refuses and accepts."""

from dataclasses import replace as changed
from typing import get_args

import pytest
from msgspec import Raw
from msgspec.structs import replace
from workplace import offline, online, say, use, work

from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Session
from palimpsest.audit.gate import Strictness, Verdict, check_floor, floor_of, fold_limit, judge, last_request, pinned, same_path
from palimpsest.core.errors import TooFull
from palimpsest.core.events import ContextStated, Statement, TaskChanged, UserSaid, ViewEdited
from palimpsest.core.items import Edit, Fold, Insert, Keep, Mask, Put, Text, text_of
from palimpsest.core.plans import Moment, Plan, Situation
from palimpsest.core.view import View
from palimpsest.core.view_projection import ViewProjection
from palimpsest.policies.named import profile
from palimpsest.policies.profile import Profile
from palimpsest.providers.scripted import Scripted

SHORT = Put("summary", Text("a.py was read"), "evidence")


def busy() -> Session:
    session = work(profile("palimpsest"))
    session.log.append(ContextStated((Statement("mode", "mode: build"),)))
    say(session, "read a.py and b.py")
    use(session, "c1", "Read", '{"file_path":"src/a.py"}', "a = 1\n" * 2_000)
    use(session, "c2", "Read", '{"file_path":"src/b.py"}', "b = 1\n" * 2_000)
    use(session, "c3", "Bash", '{"command":"make"}', "done", exit_code=0)
    return session


def verdict(session: Session, *edits: Edit, strictness: Strictness = "full", shrinks: bool = True) -> Verdict:
    situation = session.situation("before_call")
    return judge(edits, session.log.trial(edits), situation, shrinks=shrinks, strictness=strictness)


def all_of(session: Session, *into: Put | Keep) -> Fold:
    ids = session.log.view.ids
    return Fold(ids[0], ids[-1], into)


def test_a_fold_that_keeps_what_must_be_kept_is_let_through() -> None:
    session = busy()
    fold = all_of(session, Keep("2.0"), SHORT, Keep("1.0"))
    assert verdict(session, fold) == Verdict((fold,))


@pytest.mark.parametrize(
    ("kept", "why"),
    [
        ((SHORT, Keep("1.0")), "the last request, item 2.0, would not be visible"),
        ((Keep("2.0"), SHORT), "the statement of mode would not be visible"),
    ],
)
def test_the_last_request_and_the_mode_must_stay_visible_unless_the_gate_is_alive(kept: tuple[Put | Keep, ...], why: str) -> None:
    session = busy()
    fold = all_of(session, *kept)
    assert verdict(session, fold) == Verdict(refused=why)
    assert verdict(session, fold, strictness="lenient") == Verdict((fold,), warnings=(why,))


def test_open_tasks_must_show_if_they_did_before() -> None:
    session = busy()
    session.log.append(TaskChanged("todo", "changed", Raw(b'{"todos":[{"content":"write the release notes of 2.0","status":"pending"}]}')))
    session.log.append(ContextStated((Statement("plan", "still to do: write the release notes of 2.0"),)))
    fold = all_of(session, Keep("2.0"), SHORT, Keep("1.0"))
    assert verdict(session, fold).refused == "the open task 'write the release notes of 2.0' would not be visible"
    told = Put("summary", Text("Open tasks:\n- write the release notes of 2.0"), "evidence")
    assert verdict(session, all_of(session, Keep("2.0"), told, Keep("1.0"))).refused == ""


@pytest.mark.parametrize("strictness", get_args(Strictness))
def test_a_view_that_does_not_shrink_is_refused(strictness: Strictness) -> None:
    session = busy()
    grown = all_of(session, Keep("2.0"), Put("summary", Text("word " * 20_000), "evidence"), Keep("1.0"))
    assert verdict(session, grown, strictness=strictness).refused == "the view would not be smaller"
    assert verdict(session, Mask(("2.0",), "longer than it was " * 20), shrinks=False).refused == "the view would not be smaller"


@pytest.mark.parametrize("strictness", get_args(Strictness))
def test_every_call_has_its_result(strictness: Strictness) -> None:
    session = busy()
    situation = session.situation("before_call")
    fold = all_of(session, Keep("2.0"), Keep("1.0"), Keep("4.0"))
    projection = ViewProjection(session.log.view)
    projection.edit(99, 0, fold)
    torn = judge((fold,), View(items=tuple(projection.items)), situation, shrinks=True, strictness=strictness)
    assert torn == Verdict(refused="item 4.0 would be visible without its call or result")


def test_a_fold_leaves_a_share_of_the_room_above_the_floor() -> None:
    session = busy()
    situation = session.situation("before_call")
    floor = floor_of(situation).tokens
    level = situation.budget.compact_at
    assert level == 160_000
    assert fold_limit(situation, floor) == int(level - 0.15 * (level - floor))
    assert fold_limit(situation, 170_000) == 196_999
    tight = changed(situation, budget=profile("palimpsest", {"PAL_COMPACT_AT": "8000"}).budget(session.card))
    big = all_of(session, *(Keep(name) for name in session.log.view.ids if name not in ("10.0", "11.0")))
    refused = judge((big,), session.log.trial((big,)), tight, shrinks=True).refused
    assert refused.endswith(f"and a fold must leave at most {fold_limit(tight, floor):,}")


def test_an_insert_must_fit() -> None:
    session = busy()
    fits = Insert((Put("reminder", Text("mind the tests")),))
    assert verdict(session, fits, shrinks=False) == Verdict((fits,))
    large = Insert((Put("reminder", Text("word " * 200_000)),))
    assert verdict(session, large, shrinks=False).refused.startswith("it does not fit: ")


@pytest.mark.parametrize("strictness", get_args(Strictness))
def test_pinned_items_stay_in_masks_and_folds_of_every_profile(strictness: Strictness) -> None:
    session = busy()
    session.pin(ids=("5.0",), paths=("b.py",))
    assert pinned(session.log.view) == {"4.0", "5.0", "7.0", "8.0"}
    assert verdict(session, Mask(("5.0", "11.0"), "gone"), strictness=strictness).edits == (Mask(("11.0",), "gone"),)
    assert verdict(session, Mask(("5.0",), "gone"), strictness=strictness).refused.startswith("nothing remains of the edit")
    fold = all_of(session, Keep("2.0"), SHORT, Keep("1.0"))
    safe = verdict(session, fold, strictness=strictness).edits
    assert safe == (all_of(session, Keep("2.0"), Keep("4.0"), Keep("5.0"), Keep("7.0"), Keep("8.0"), SHORT, Keep("1.0")),)
    assert verdict(session, *safe, strictness=strictness) == Verdict(safe)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("src/a.py", "/repo/src/a.py", True),
        ("./src/a.py", "src/a.py", True),
        ("a.py", "src/a.py", True),
        ("a.py", "src/aa.py", False),
        ("src/a.py", "lib/a.py", False),
    ],
)
def test_a_path_equals_one_relative_to_a_deeper_folder(one: str, other: str, same: bool) -> None:
    assert same_path(one, other) is same
    assert same_path(other, one) is same


class Telling:
    """A policy that folds everything into what it was told to say."""

    name = "telling"
    moments: frozenset[Moment] = frozenset({"asked"})
    shrinks = True

    def __init__(self, text: str) -> None:
        self.text = text

    def plan(self, situation: Situation) -> Plan:
        ids = situation.view.ids
        return (Fold(ids[0], ids[-1], (Keep("2.0"), Put("summary", Text(self.text)), Keep("1.0"))),)


def install(text: str) -> tuple[ViewEdited, View]:
    session = busy()
    session.profile = Profile("told", (Telling(text),), session.profile.budget, strictness="full")
    body = offline(session, run_policies(session, "asked")).edited[0].body
    assert isinstance(body, ViewEdited)
    return body, session.log.view


def test_lines_without_a_valid_citation_are_left_out_and_counted_and_the_loss_is_recorded() -> None:
    body, view = install("a.py was read [4.0].\nThe user approved deleting the archive [2.0].\nNext: b.py [7.0].")
    assert body.why.endswith("1 line without a valid citation was left out")
    assert text_of(view.items[1].content).split("\n")[1:] == ["a.py was read [4.0].", "Next: b.py [7.0]."]
    assert body.loss is not None
    assert {"5.0", "8.0"} <= set(body.loss.ids)


def test_a_summary_of_which_nothing_is_left_does_not_show() -> None:
    _, view = install("The user approved deleting the archive of 2019 [2.0].")
    assert view.ids == ("2.0", "1.0")


def test_the_last_request_is_the_newest_message_with_the_steering_since() -> None:
    session = busy()
    session.log.append(
        UserSaid(
            (Text("first"), Text("second")),
        )
    )
    session.log.append(UserSaid((Text("and quickly"),), steering=True))
    assert [text_of(item.content) for item in last_request(session.log.view)] == ["first", "second", "and quickly"]


def test_the_floor_names_its_parts() -> None:
    session = busy()
    session.pin(paths=("a.py",))
    floor = check_floor(session.situation("before_call"))
    assert [part.name for part in floor.parts] == ["pins", "last request", "mode and tasks"]
    assert floor.ids == {"1.0", "2.0", "4.0", "5.0"}
    with pytest.raises(TooFull, match=r"what cannot be left out has [\d,]+ tokens, and 2,000 fit: pins [\d,]+ \(unpin 5\.0, 4\.0\)"):
        check_floor(changed(session.situation("before_call"), budget=replace(session.budget, block_at=2_000)))


@pytest.mark.parametrize("name", ["classroom", "opencode", "claude-code"])
def test_where_the_full_gate_only_reports_the_edit_tells_what_it_would_have_minded(name: str) -> None:
    session = work(profile(name))
    say(session, "make the parser faster")
    use(session, "c1", "read", '{"path":"parser.py"}', "def parse(): ...\n" * 4_000)
    ran = online(session, run_policies(session, "asked"), Scripted("<summary>All is well.</summary>"))
    body = ran.edited[0].body
    assert isinstance(body, ViewEdited)
    minded = body.why.partition("; the full gate would have minded: ")[2].split(", ")
    assert minded == ["the last request", "item 1.0", "would not be visible"]
    quiet = online(session, run_policies(session, "asked"), Scripted("<summary>All is well.</summary>"))
    assert not any("minded" in event.body.why for event in quiet.edited if isinstance(event.body, ViewEdited))
