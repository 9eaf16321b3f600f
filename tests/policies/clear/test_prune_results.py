"""Old results are cleared at the end of a turn, as OpenCode does it."""

import pytest
from workplace import offline, reply, say, use, work

from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Session
from palimpsest.core.events import ToolReturned, TurnEnded, UserSaid, ViewEdited
from palimpsest.core.items import Image, Insert, Mask, Put, Text, ToolCall, ToolResult
from palimpsest.peers.clearing import CLEARED, PruneResults
from palimpsest.policies.named import profile
from palimpsest.wire.encode import encode


def at_work(name: str) -> Session:
    return work(profile(name))


def turns(session: Session, sizes: list[int], tool: str = "bash", *, error: bool = False) -> list[tuple[str, ...]]:
    """One turn with one result of so many tokens each; what was masked at the end of each."""
    masked: list[tuple[str, ...]] = []
    for number, size in enumerate(sizes):
        say(session, "next")
        reply(session, ToolCall(f"c{number}", tool, "{}"))
        session.log.append(ToolReturned(ToolResult(f"c{number}", (Text("x" * (4 * size)),), error=error), tool=tool))
        reply(session, Text("ok", "assistant"))
        ran = offline(session, run_policies(session, "turn_ends"))
        masked.append(tuple(name for event in ran.edited for edit in _masks(event.body) for name in edit.ids))
        session.log.append(TurnEnded())
    return masked


def _masks(body: object) -> list[Mask]:
    return [edit for edit in body.edits if isinstance(edit, Mask)] if isinstance(body, ViewEdited) else []


@pytest.mark.states("OC-09")
def test_nothing_is_pruned_before_two_messages_of_the_user_lie_behind_it() -> None:
    session = at_work("opencode")
    say(session, "one")
    for number in range(5):
        use(session, f"c{number}", "bash", "{}", "x" * 80_000)
    assert offline(session, run_policies(session, "turn_ends")).events == ()
    say(session, "two")
    assert offline(session, run_policies(session, "turn_ends")).events == ()
    say(session, "three")
    assert offline(session, run_policies(session, "turn_ends")).edited


@pytest.mark.states("OC-09")
def test_a_message_of_several_parts_is_one() -> None:
    session = at_work("opencode")
    session.log.append(UserSaid((Text("one"), Text("in two parts"))))
    for number in range(5):
        use(session, f"c{number}", "bash", "{}", "x" * 80_000)
    session.log.append(UserSaid((Text("two"), Image("image/png", url="shot.png"), Text("and a picture"))))
    assert offline(session, run_policies(session, "turn_ends")).events == ()


@pytest.mark.states("OC-10")
def test_candidates_of_exactly_20_000_mask_nothing_and_20_001_masks_all_in_one_edit() -> None:
    def masked(oldest: int) -> tuple[str, ...]:
        return turns(at_work("opencode"), [10_000, oldest, 40_000, 1, 1])[-1]

    assert masked(10_000) == ()
    assert len(masked(10_001)) == 2


@pytest.mark.states("OC-11")
def test_skills_errors_and_what_lies_before_a_summary_or_a_masked_result_are_never_masked() -> None:
    big = [50_000, 50_000, 50_000, 1, 1]
    assert not any(turns(at_work("opencode"), big, "skill"))
    assert not any(turns(at_work("opencode"), big, "bash", error=True))
    assert any(turns(at_work("opencode"), [50_000, 30_000, 1, 1]))
    session = at_work("opencode")
    say(session, "one")
    use(session, "a", "bash", "{}", "x" * 200_000)
    session.log.append(ViewEdited((Insert((Put("summary", Text("so far", "assistant")),)),), by="test"))
    assert not any(turns(session, [30_000, 1, 1]))


@pytest.mark.states("OC-11")
def test_the_walk_stops_at_the_first_masked_result_and_an_open_call_has_nothing_to_mask() -> None:
    def pruned(*, masked: bool) -> bool:
        session = at_work("opencode")
        say(session, "one")
        use(session, "old", "bash", "{}", "x" * 200_000)
        _, newer = use(session, "newer", "bash", "{}", "x" * 400)
        if masked:
            session.log.append(ViewEdited((Mask((f"{newer.seq}.0",), CLEARED),), by="test"))
        use(session, "newest", "bash", "{}", "x" * 160_000)
        reply(session, ToolCall("open", "bash", "{}"))
        say(session, "two")
        say(session, "three")
        return bool(offline(session, run_policies(session, "turn_ends")).edited)

    assert pruned(masked=False)
    assert not pruned(masked=True)


@pytest.mark.states("OC-12")
def test_the_mask_says_that_content_was_cleared_and_arguments_stay() -> None:
    session = at_work("opencode")
    turns(session, [50_000, 50_000, 1, 1])
    results = [item for item in session.log.view.items if item.kind == "result"]
    assert results[0].mask is not None
    assert results[0].mask.text == CLEARED == "[Old tool result content cleared]"
    assert [item.mask for item in session.log.view.items if item.kind == "call"] == [None] * 4


@pytest.mark.states("OC-12")
def test_attachments_of_a_cleared_result_vanish_from_the_request() -> None:
    session = at_work("opencode")
    picture = session.environment.blobs.put(b"\x89PNG")
    say(session, "one")
    reply(session, ToolCall("shot", "read", '{"filePath":"shot.png"}'))
    session.log.append(ToolReturned(ToolResult("shot", (Text("x" * 200_000), Image("image/png", blob=picture))), tool="read"))
    assert b'"image"' in encode(session.log.view, session.card, fetch=session.environment.blobs.get).body
    turns(session, [50_000, 1, 1])
    body = encode(session.log.view, session.card, fetch=session.environment.blobs.get).body
    assert b'"image"' not in body
    assert b"shot.png" in body


def test_what_shows_a_pinned_file_is_passed_over_and_a_second_look_rests() -> None:
    session = at_work("opencode")
    session.pin(paths=("kept.py",))
    say(session, "one")
    for number, path in enumerate(("kept.py", "other.py", "newest.py")):
        use(session, f"r{number}", "read", f'{{"filePath":"{path}"}}', "x" * 200_000)
    say(session, "two")
    say(session, "three")
    ran = offline(session, run_policies(session, "turn_ends"))
    assert [type(event.body) for event in ran.events] == [ViewEdited]
    masked = [item.mask is not None for item in session.log.view.items if item.kind == "result"]
    assert masked == [False, True, True]
    assert offline(session, run_policies(session, "turn_ends")).events == ()


@pytest.mark.states("OC-13")
def test_pruning_is_on_as_documented_and_off_as_measured_and_only_at_the_end_of_a_turn() -> None:
    def prunes(name: str, **settings: str) -> bool:
        return any(isinstance(policy, PruneResults) for policy in profile(name, settings).policies)

    assert (prunes("opencode"), prunes("opencode-1.18")) == (True, False)
    assert (prunes("opencode", OPENCODE_DISABLE_PRUNE="1"), prunes("opencode", **{"compaction.prune": "false"})) == (False, False)
    assert prunes("opencode", OPENCODE_DISABLE_PRUNE="false")
    assert prunes("opencode-1.18", **{"compaction.prune": "true"})
    assert PruneResults().moments == {"turn_ends"}


@pytest.mark.states("OC-14")
def test_seven_results_of_10_100_mask_the_two_oldest_at_the_seventh_turn_and_nothing_at_the_eighth() -> None:
    masked = turns(at_work("opencode"), [10_100] * 8)
    assert [len(names) for names in masked] == [0, 0, 0, 0, 0, 0, 2, 0]
