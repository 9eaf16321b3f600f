"""State that is restored after a fold: current files, and facts of the environment."""

import json
from dataclasses import replace as with_

import pytest
from claude_work import MEASURED, SUMMARY, World, claude, edits, fill, texts
from workplace import offline, online, reply, say, use

from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Session
from palimpsest.core.events import ChildEnded, ChildOpened, Rewound, ToolReturned, Usage, ViewEdited
from palimpsest.core.items import Fold, Put, Text, ToolCall, ToolResult, into_of
from palimpsest.core.plans import Proposal, steps_of
from palimpsest.peers.claude_code import Restore
from palimpsest.providers.scripted import Scripted

MANY = tuple(f"/repo/{number}.py" for number in range(8))


def after(world: World, *read: str, name: str = "claude-code", used: int = 0) -> Session:
    """A session that read files and was folded into one line."""
    session = claude(name, world=world)
    for number, path in enumerate(read):
        use(session, f"c{number}", "Read", json.dumps({"file_path": path}), "as it was")
    reply(session, Text("done", "assistant"), usage=Usage(input=used))
    first, last = session.log.view.items[0].id, session.log.view.items[-1].id
    session.log.append(ViewEdited((Fold(first, last, (Put("summary", Text("files were read")),)),), by="test", tokens_after=used))
    return session


def restored(policy: Restore, session: Session) -> list[str]:
    """What a plan brings back, each text without its frame."""
    outcome = offline(session, steps_of(policy.plan(session.situation("folded"))))
    assert isinstance(outcome, Proposal)
    pieces = [piece for edit in outcome.edits for piece in into_of(edit)]
    found = [piece.content.text for piece in pieces if isinstance(piece, Put) and isinstance(piece.content, Text)]
    assert all(text.startswith("<system-reminder>\n") and text.endswith("\n</system-reminder>") for text in found)
    return [text.removeprefix("<system-reminder>\n").removesuffix("\n</system-reminder>") for text in found]


def named(shown: list[str]) -> list[str]:
    """The files whose contents came back, in order."""
    return [json.loads(text.partition(": ")[2])["file_path"] for text in shown if text.startswith("The tool Read was called")]


@pytest.mark.states("CC-51")
def test_restored_files_are_the_newest_5_newest_first() -> None:
    world = World({path: f"content of {path}" for path in MANY})
    shown = restored(Restore(), after(world, *MANY))
    assert named(shown) == ["/repo/7.py", "/repo/6.py", "/repo/5.py", "/repo/4.py", "/repo/3.py"]
    assert shown[1] == "It gave this result:\n     1→content of /repo/7.py"
    shown = restored(Restore(), after(world, *MANY, "/repo/0.py"))
    assert named(shown)[:2] == ["/repo/0.py", "/repo/7.py"]


@pytest.mark.states("CC-51", "SG-04")
def test_restored_files_are_whole_within_50000_and_the_first_that_does_not_fit_says_that_it_is_cut_and_ends_the_loop() -> None:
    lines = "".join(f"{'y' * 78} {number:04}\n" for number in range(250))
    world = World(dict.fromkeys(MANY, "x" * 16_000) | {"/repo/6.py": lines})
    assert named(restored(Restore(total_tokens=4_900), after(world, *MANY))) == ["/repo/7.py"]
    shown = restored(Restore(total_tokens=6_000), after(world, *MANY))
    assert named(shown) == ["/repo/7.py", "/repo/6.py"]
    kept = [int(row.partition("→")[0]) for row in shown[3].split("\n")[1:-1]]
    assert kept == list(range(1, len(kept) + 1))
    rest = f"[Cut here: /repo/6.py has 251 lines, of which {len(kept)} are shown. Read it from line {len(kept) + 1} on for the rest.]"
    assert shown[3].split("\n")[-1] == rest
    whole = restored(Restore(total_tokens=12_000), after(world, *MANY))
    assert named(whole) == ["/repo/7.py", "/repo/6.py", *named(whole)[2:]]
    assert whole[3].count("\n") == 251
    many = tuple(f"/repo/{number}.py" for number in range(30))
    shown = restored(Restore(files=30), after(World(dict.fromkeys(many, "x" * 30_000)), *many))
    assert 4 * 40_000 <= sum(len(text) for text in shown if text.startswith("It gave")) <= 4 * 50_000 + 400


@pytest.mark.states("CC-51")
def test_files_visible_in_kept_messages_are_left_out_and_the_skip_uses_up_one_of_the_5() -> None:
    session = after(World(dict.fromkeys((*MANY, "/repo/8.py"), "text")), *MANY)
    say(session, "go")
    use(session, "late", "Read", '{"file_path":"/repo/8.py"}', "here it is")
    assert named(restored(Restore(), session)) == ["/repo/7.py", "/repo/6.py", "/repo/5.py", "/repo/4.py"]


@pytest.mark.states("CC-51")
def test_a_file_that_is_gone_is_left_out_and_one_alone_is_whole_up_to_50000() -> None:
    world = World({"/repo/7.py": "line of text\n" * 5_000})
    (asked, shown) = restored(Restore(), after(world, *MANY))
    assert "/repo/7.py" in asked
    assert shown.count("line of text") == 5_000


def test_what_was_read_on_a_branch_that_was_left_does_not_come_back() -> None:
    session = claude(world=World({"/a.py": "a", "/b.py": "b"}))
    use(session, "c1", "Read", '{"file_path":"/a.py"}', "a")
    back = session.log.tip
    use(session, "c2", "Read", '{"file_path":"/b.py"}', "b")
    session.log.append(Rewound(back))
    session.log.append(ViewEdited((Fold(session.log.view.items[0].id, session.log.view.items[-1].id),), by="test"))
    assert named(restored(Restore(), session)) == ["/a.py"]


def test_a_read_that_failed_does_not_come_back_and_edited_files_do() -> None:
    session = claude(world=World({"/a.py": "a", "/b.py": "b"}))
    reply(session, ToolCall("c1", "Read", '{"file_path":"/a.py"}'), ToolCall("c2", "Edit", '{"file_path":"/b.py"}'))
    session.log.append(ToolReturned(ToolResult("c1", (Text("no"),), error=True), tool="Read"))
    session.log.append(ToolReturned(ToolResult("c2", (Text("ok"),)), tool="Edit"))
    assert named(restored(Restore(), session)) == ["/b.py"]


@pytest.mark.states("CC-52")
def test_plan_skills_agents_tools_and_session_start_context_come_back_after_a_fold() -> None:
    facts = {
        "plan": "1. lexer 2. parser",
        "skills": json.dumps({"review": "Look at every line.", "long": "word " * 10_000}),
        "agents": "a1 (explore) is running; its result will be in /tmp/a1",
        "deferred_tools": "WebFetch, NotebookEdit",
        "session_start": "Project instructions: use tabs.",
    }
    shown = restored(Restore(), after(World(facts=facts)))
    assert shown[0] == "The plan that was agreed on:\n1. lexer 2. parser"
    assert shown[1] == "Skills that were invoked before:\nreview\nLook at every line."
    assert 19_000 < len(shown[2]) <= 20_200
    assert shown[2].endswith(" of 50,000 characters are shown. Load the skill again for the rest.]")
    assert shown[3].endswith("its result will be in /tmp/a1")
    assert shown[4].endswith("WebFetch, NotebookEdit")
    assert shown[5] == "Project instructions: use tabs."
    assert restored(Restore(), after(World())) == []


@pytest.mark.states("CC-52")
def test_what_the_world_outside_does_not_know_the_log_may_tell() -> None:
    session = claude()
    use(session, "p", "ExitPlanMode", '{"plan":"1. lexer 2. parser"}', "approved")
    use(session, "k", "Skill", '{"skill":"review"}', "Look at every line.")
    use(session, "t", "ToolSearch", '{"query":"web"}', "WebFetch, WebSearch")
    session.log.append(ChildOpened("child-1", role="explore"))
    session.log.append(ChildOpened("child-2", role="test"))
    session.log.append(ChildEnded("child-2", "done", "All 12 tests\npass."))
    session.log.append(ViewEdited((Fold(session.log.view.items[0].id, session.log.view.items[-1].id),), by="test"))
    ended = "child-2 (test): done; the result is in its own session: All 12 tests pass."
    assert restored(Restore(), session) == [
        "The plan that was agreed on:\n1. lexer 2. parser",
        "Skills that were invoked before:\nreview\nLook at every line.",
        f"Agents that work in the background:\n{ended}\nchild-1 (explore): running",
        "Tools that were found before and are at hand again:\nWebFetch, WebSearch",
    ]
    world = World(facts={"plan": "3. docs", "agents": "none is left"})
    session.environment = with_(session.environment, look=world)
    assert restored(Restore(), session)[0] == "The plan that was agreed on:\n3. docs"
    assert restored(Restore(), session)[2] == "Agents that work in the background:\nnone is left"


@pytest.mark.states("CC-52")
def test_they_stand_after_the_summary_and_are_recorded() -> None:
    world = World(facts={"plan": "1. lexer", "session_start": "use tabs"})
    session = fill(claude(world=world), 160_000)
    online(session, run_policies(session, "before_call"), Scripted(SUMMARY))
    shown = texts(session)
    assert shown[1:] == [
        "<system-reminder>\nThe plan that was agreed on:\n1. lexer\n</system-reminder>",
        "<system-reminder>\nuse tabs\n</system-reminder>",
    ]
    assert [edit.by for edit in edits(session)] == ["summarize", "restore"]


@pytest.mark.states("CC-53")
def test_a_restored_file_shows_its_content_on_disk_now_an_oversized_one_only_a_note() -> None:
    policy = Restore(large_files="note", numbering="tab", place="prompt")
    world = World({"/repo/7.py": "new\ncontent", "/repo/6.py": "x" * 36_000})
    assert restored(policy, after(world, *MANY, name=MEASURED)) == [
        'The tool Read was called with this input: {"file_path":"/repo/7.py"}',
        "It gave this result:\n1\tnew\n2\tcontent",
        "/repo/6.py was read before this point. It is too large to be shown again here; read it if you need it.",
    ]


@pytest.mark.states("CC-53")
def test_restored_state_stands_before_the_pending_prompt_and_the_start_of_the_session_before_the_summary() -> None:
    world = World(facts={"plan": "1. lexer", "session_start": "use tabs"})
    session = fill(claude(MEASURED, world=world), 170_000, 5)
    say(session, "the pending prompt")
    online(session, run_policies(session, "before_call"), Scripted(SUMMARY))
    shown = texts(session)
    assert shown[0] == "<system-reminder>\nuse tabs\n</system-reminder>"
    assert shown[1].startswith("This conversation goes on")
    assert shown[2] == "Read them all."
    assert shown[3:] == ["<system-reminder>\nThe plan that was agreed on:\n1. lexer\n</system-reminder>", "the pending prompt"]


def test_in_a_small_window_no_more_comes_back_than_half_of_what_is_left() -> None:
    world = World(dict.fromkeys(MANY, "x" * 8_000))
    assert named(restored(Restore(), after(world, *MANY, used=150_000))) == ["/repo/7.py"]
    assert named(restored(Restore(), after(world, *MANY, used=10_000))) == list(reversed(MANY))[:5]


@pytest.mark.states("CC-53")
def test_a_compaction_shows_files_as_they_are_now() -> None:
    world = World({"/repo/0.py": "changed since", "/repo/1.py": "x" * 36_000})
    session = fill(claude(MEASURED, world=world), 170_000, 5)
    say(session, "the pending prompt")
    online(session, run_policies(session, "before_call"), Scripted(SUMMARY))
    shown = "\n".join(texts(session)[2:])
    assert "1\tchanged since" in shown
    assert "/repo/1.py was read before this point" in shown
    assert texts(session)[-1] == "the pending prompt"
