import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from replay_samples import comparison

from pal.replay.curve import profile_colours
from pal.replay.drawing import Plot, axis_steps, dollars, downsampled, percent, probe_charts, ratio_text, short_number, squarified, treemaps
from pal.replay.outcome import HiddenEvent, Outcome, ProbeScores, ReplayedEdit, ReplayedSession, Reread, WindowShare
from pal.replay.recording import RecordedSession, recording_of
from pal.replay.report import context_charts, hidden_events, with_hidden_events
from palimpsest.core.events import CallStarted, ModelReplied, SessionOpened, ToolReturned, TurnEnded, Usage, UserSaid
from palimpsest.core.items import Text, ToolCall, ToolResult
from palimpsest.core.log import Log
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions


@pytest.mark.parametrize(
    ("top", "steps"),
    [
        (200_000, [0, 50_000, 100_000, 150_000, 200_000]),
        (8.79, [0, 2.5, 5, 7.5]),
        (3, [0, 1, 2, 3]),
        (0, [0]),
        (0.07, [0, 0.02, 0.04, 0.06]),
    ],
)
def test_axes_have_round_numbers_and_not_many(top: float, steps: list[float]) -> None:
    assert axis_steps(top) == pytest.approx(steps)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=3_000))
def test_thinning_keeps_the_ends_the_peak_the_floor_and_the_order(heights: list[int]) -> None:
    points = [(float(step), float(height)) for step, height in enumerate(heights)]

    kept = downsampled(points, 100)

    assert len(kept) <= 102
    assert set(kept) <= set(points)
    assert [x for x, _ in kept] == sorted(x for x, _ in kept)
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert max(y for _, y in kept) == max(heights)
    assert min(y for _, y in kept) == min(heights)


def test_places_of_a_plane_are_shares_across_and_pixels_up() -> None:
    plot = Plot(100, 50, 132, head=14, foot=18)

    assert [plot.x(value) for value in (0, 25, 100)] == ["0.00%", "25.00%", "100.00%"]
    assert [plot.y(value) for value in (0, 25, 50)] == ["114.0", "64.0", "14.0"]


@given(st.lists(st.integers(1, 200_000), min_size=1, max_size=40))
def test_areas_of_a_treemap_are_as_their_tokens_and_fill_the_frame_without_overlap(sizes: list[int]) -> None:
    cells = squarified([WindowShare("tool_result", f"tool {number}", size, 1) for number, size in enumerate(sizes)], 480, 230)

    assert sorted(cell.share.tokens for cell in cells) == sorted(sizes)
    for cell in cells:
        assert cell.width * cell.height == pytest.approx(480 * 230 * cell.share.tokens / sum(sizes), rel=1e-6)
        assert cell.x >= 0
        assert cell.x + cell.width <= 480 + 1e-6
        assert cell.y >= 0
        assert cell.y + cell.height <= 230 + 1e-6
    for number, one in enumerate(cells):
        for other in cells[number + 1 :]:
            across = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
            down = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
            assert min(across, down) <= 1e-6


def test_a_share_of_nothing_takes_no_room() -> None:
    assert [cell.share.name for cell in squarified([WindowShare("user", "a", 0, 1), WindowShare("user", "b", 5, 1)])] == ["b"]


def test_numbers_are_formatted_in_few_characters() -> None:
    assert [short_number(number) for number in (0, 950, 1_000, 9_512, 9_960, 163_400, 999_600, 1_234_567)] == [
        "0",
        "950",
        "1k",
        "9.5k",
        "10k",
        "163k",
        "1.0M",
        "1.2M",
    ]
    assert [dollars(usd) for usd in (None, 0, 0.0512, 0.5, 1234.5, -0.02)] == [
        "unknown",
        "$0.00",
        "$0.0512",
        "$0.50",
        "$1,234.50",
        "−$0.0200",
    ]
    assert [percent(share) for share in (0, 0.0001, 0.002, 0.006, 0.014, 0.5, 0.994, 0.996, 0.9999, 1)] == [
        *("0 %", "&lt;0.1 %", "0.2 %", "0.6 %", "1 %", "50 %", "99 %", "99.6 %", "99.9 %", "100 %")
    ]
    assert [ratio_text(ratio) for ratio in (None, 0.8765)] == ["–", "0.88×"]


def test_edits_are_drawn_by_what_is_billed_as_the_line_is() -> None:
    run = comparison(calls=60).runs[0]
    replayed = run.sessions[0]
    edits = {name: tuple(replace(edit, tokens_before=1, tokens_after=1) for edit in one.edits) for name, one in replayed.profiles.items()}
    miscounted = replace(replayed, profiles={name: replace(one, edits=edits[name]) for name, one in replayed.profiles.items()})

    assert sum(map(len, edits.values())) > 3
    assert context_charts(run, miscounted, {}) == context_charts(run, replayed, {})


def test_an_edit_after_a_call_is_drawn_at_the_next_one() -> None:
    run = comparison(calls=60).runs[0]
    codex = run.sessions[0].profiles["codex"]
    (fold,) = codex.edits
    later = replace(codex, edits=(replace(fold, moment="turn_ends", step=fold.step - 1),))

    here, there = (context_charts(run, replace(run.sessions[0], profiles={"codex": each}), {}) for each in (codex, later))
    assert _circles(here) == _circles(there) != []


def _circles(drawn: str) -> list[str]:
    return re.findall(r'<circle class="fold" (cx="[^"]+" cy="[^"]+")', drawn)


@pytest.mark.parametrize(("look", "width"), [("roomy", 416), ("tight", 290)])
def test_labels_of_a_treemap_fit_their_cells_on_the_narrowest_screen_they_are_for(look: str, width: int) -> None:
    run = comparison().runs[0]
    drawn = treemaps(run, run.sessions[0], profile_colours(tuple(run.sessions[0].profiles)))

    labels = 0
    for cell in re.findall(r'<svg x="[^"]+" y="[^"]+" width="([\d.]+)%" [^>]+>(.*?)</svg>', drawn):
        room = float(cell[0]) * width / 100
        group = re.search(f'<g class="{look}">(.*?)</g>', cell[1])
        shown = group.group(1) if group else re.sub("<g .*?</g>", "", cell[1])
        for text in re.findall(r'<text class="name"[^>]*>([^<]*)</text>', shown):
            labels += 1
            assert 6 + 7 * len(unescape(text)) <= room
    assert labels > 4


def test_probes_are_drawn_with_how_many_of_the_forced_folds_were_made() -> None:
    colours = {"a": "c0", "b": "c1"}
    drawn = probe_charts(
        {"a": {"10": ProbeScores(0.5, 0.6, 1_213, 2_000), "1": ProbeScores(0.9, 0.9, 1, 1)}, "b": {"1": ProbeScores(1.0, 1.0)}}, colours
    )
    assert drawn.endswith('<p class="note">Folds that were made in the last of these, of all that were forced: a 1,213 of 2,000.</p>\n')
    assert "<p" not in probe_charts({"b": {"1": ProbeScores(1.0, 1.0)}}, colours)


MODEL = "claude-sonnet-4-5"


def recorded() -> RecordedSession:
    log = Log.create(MemorySessions(), SessionOpened("s", model=MODEL), FixedClock(1_000, 1_000))
    log.append(UserSaid((Text("What is in\na.py?"),)))
    for reply in ((Text("I look.", "assistant"), ToolCall("c1", "read", '{"path":"a.py"}')), (Text("A number.", "assistant"),)):
        call = log.append(CallStarted(MODEL, "anthropic"))
        log.append(ModelReplied(reply, call.seq, Usage(), "end_turn", MODEL))
        if len(reply) > 1:
            log.append(ToolReturned(ToolResult("c1", (Text("timeout = 10\n" * 40),)), "read", paths=("a.py",)))
    log.append(TurnEnded())
    return recording_of(log, MemoryBlobs())


def outcome(*hides: int, needs: int = 4) -> Outcome:
    return Outcome(
        "codex",
        edits=(ReplayedEdit(1, 0, 9, "fold", "handoff", hides=hides),),
        rereads=(Reread(1, 0, ("a.py",), needs, 200),) if needs else (),
    )


def test_every_hidden_event_has_a_line_that_says_what_it_is_and_how_it_begins() -> None:
    found = list(hidden_events(recorded(), [outcome(1, 3)]))

    assert [(line.event, line.kind, line.name, line.text[:20]) for line in found] == [
        (1, "user_said", "", "What is in a.py?"),
        (3, "model_replied", "read a.py", "I look."),
        (4, "tool_returned", "read a.py", "timeout = 10 timeout"),
    ]
    assert found[2].tokens > found[1].tokens > 0


def test_events_that_no_profile_hid_have_no_line() -> None:
    assert list(hidden_events(recorded(), [outcome(needs=0)])) == []
    assert [line.event for line in hidden_events(recorded(), [outcome(6, needs=0), outcome(1, needs=0)])] == [1, 6]


def test_lines_are_added_to_what_was_found_and_nothing_else_changes() -> None:
    found = ReplayedSession("s", "home", "pal", 8, profiles={"codex": outcome(1, needs=0)})
    line = HiddenEvent(1, "user_said", "", "What is in a.py?", next(iter(hidden_events(recorded(), [outcome(1, needs=0)]))).tokens)

    assert with_hidden_events(found, recorded()) == ReplayedSession(
        "s", "home", "pal", 8, profiles={"codex": outcome(1, needs=0)}, lines=(line,)
    )


def test_a_program_has_the_same_colour_on_every_page() -> None:
    every = profile_colours(("palimpsest", "claude-code-2.1.325", "codex-0.166", "opencode-1.18", "classroom", "none"))

    assert list(every.values()) == ["c0", "c1", "c2", "c3", "c4", "c5"]
    assert profile_colours(("none", "codex")) == {"none": "c5", "codex": "c2"}
    assert profile_colours(("claude-code-2.1.325@A=1", "palimpsest")) == {"claude-code-2.1.325@A=1": "c1", "palimpsest": "c0"}
    assert profile_colours(("claude-code", "claude-code-2.1.325", "mine")) == {
        "claude-code": "c1",
        "claude-code-2.1.325": "c2",
        "mine": "c7",
    }
