"""State that comes back after a fold: files as they are now, and facts that the world outside knows."""

import json

from claude_work import MEASURED, SUMMARY, World, claude, edits, fill, texts
from workplace import online, say, use

from palimpsest.core.edits import Put, into_of
from palimpsest.core.items import Text
from palimpsest.core.policy import Look, Proposal, Want, run_plan
from palimpsest.core.situation import Evidence, Situation
from palimpsest.engine.moments import look
from palimpsest.engine.session import Session
from palimpsest.policies.restore import Restore
from palimpsest.providers.scripted import Scripted

MANY = tuple(f"/repo/{number}.py" for number in range(8))


def folded(session: Session, read: tuple[str, ...] = MANY) -> Situation:
    situation = session.situation("folded")
    values = {name: getattr(situation, name) for name in Situation.__slots__}
    return Situation(**{**values, "evidence": Evidence(read=read)})


def restored(policy: Restore, situation: Situation, world: World) -> list[str]:
    """What a plan brings back, each text without its frame."""

    def answer(want: Want) -> str | None:
        assert isinstance(want, Look)
        return world(want)

    outcome = run_plan(policy.plan(situation), answer)
    assert isinstance(outcome, Proposal)
    pieces = [piece for edit in outcome.edits for piece in into_of(edit)]
    found = [piece.content.text for piece in pieces if isinstance(piece, Put) and isinstance(piece.content, Text)]
    assert all(text.startswith("<system-reminder>\n") and text.endswith("\n</system-reminder>") for text in found)
    return [text.removeprefix("<system-reminder>\n").removesuffix("\n</system-reminder>") for text in found]


def named(shown: list[str]) -> list[str]:
    """The files whose contents came back, in order."""
    return [json.loads(text.partition(": ")[2])["file_path"] for text in shown if text.startswith("The tool Read was called")]


def test_cc_51_restored_files_are_the_newest_5_newest_first() -> None:
    world = World({path: f"content of {path}" for path in MANY})
    shown = restored(Restore(), folded(claude()), world)
    assert named(shown) == ["/repo/7.py", "/repo/6.py", "/repo/5.py", "/repo/4.py", "/repo/3.py"]
    assert shown[1] == "It gave this result:\n     1→content of /repo/7.py"


def test_cc_51_restored_files_stay_within_50000_and_the_first_that_does_not_fit_ends_the_loop() -> None:
    world = World(dict.fromkeys(MANY, "x" * 16000) | {"/repo/6.py": "y" * 19_900})
    assert named(restored(Restore(total=8_900), folded(claude()), world)) == ["/repo/7.py"]
    assert named(restored(Restore(total=9_000), folded(claude()), world)) == ["/repo/7.py", "/repo/6.py"]
    world = World(dict.fromkeys(MANY, "x" * 400000))
    shown = restored(Restore(files=20), folded(claude(), tuple(f"/repo/{number % 8}.py" for number in range(8))), world)
    assert sum(len(text) for text in shown) <= 4 * 50_000


def test_cc_51_files_visible_in_kept_messages_are_left_out_and_the_skip_uses_up_one_of_the_5() -> None:
    session = claude()
    say(session, "go")
    use(session, "c1", "Read", '{"file_path":"/repo/6.py"}', "here it is")
    shown = restored(Restore(), folded(session), World(dict.fromkeys(MANY, "text")))
    assert named(shown) == ["/repo/7.py", "/repo/5.py", "/repo/4.py", "/repo/3.py"]


def test_cc_51_a_file_that_is_gone_is_left_out_and_one_that_is_too_large_is_cut() -> None:
    world = World({"/repo/7.py": "line of text\n" * 5_000})
    (asked, shown) = restored(Restore(), folded(claude()), world)
    assert "/repo/7.py" in asked
    assert 3_000 < len(shown) // 4 < 8_000


def test_cc_52_plan_skills_agents_tools_and_session_start_context_come_back_after_a_fold() -> None:
    facts = {
        "plan": "1. lexer 2. parser",
        "skills": json.dumps({"review": "Look at every line.", "long": "word " * 10_000}),
        "agents": "a1 (explore) is running; its result will be in /tmp/a1",
        "deferred_tools": "WebFetch, NotebookEdit",
        "session_start": "Project instructions: use tabs.",
    }
    shown = restored(Restore(), folded(claude(), ()), World(facts=facts))
    assert shown[0] == "The plan that is being carried out:\n1. lexer 2. parser"
    assert shown[1] == "Skills that were invoked before:\nreview\nLook at every line."
    assert 19_000 < len(shown[2]) <= 20_050
    assert shown[3].endswith("its result will be in /tmp/a1")
    assert shown[4].endswith("WebFetch, NotebookEdit")
    assert shown[5] == "Project instructions: use tabs."
    assert restored(Restore(), folded(claude(), ()), World()) == []


def test_cc_52_they_stand_after_the_summary_and_are_recorded() -> None:
    world = World(facts={"plan": "1. lexer", "session_start": "use tabs"})
    session = fill(claude(world=world), 160_000)
    online(session, look(session, "before_call"), Scripted(SUMMARY))
    shown = texts(session)
    assert shown[1:] == [
        "<system-reminder>\nThe plan that is being carried out:\n1. lexer\n</system-reminder>",
        "<system-reminder>\nuse tabs\n</system-reminder>",
    ]
    assert [edit.by for edit in edits(session)] == ["summarize", "restore"]


def test_cc_53_v_a_restored_file_shows_its_content_on_disk_now_an_oversized_one_only_a_note() -> None:
    policy = Restore(big="note", lines="tab", place="prompt")
    world = World({"/repo/7.py": "new\ncontent", "/repo/6.py": "x" * 36_000})
    assert restored(policy, folded(claude(MEASURED)), world) == [
        'The tool Read was called with this input: {"file_path":"/repo/7.py"}',
        "It gave this result:\n1\tnew\n2\tcontent",
        "/repo/6.py was read before this point. It is too large to be shown again here; read it if you need it.",
    ]


def test_cc_53_v_restored_state_stands_before_the_pending_prompt_and_the_start_of_the_session_before_the_summary() -> None:
    world = World(facts={"plan": "1. lexer", "session_start": "use tabs"})
    session = fill(claude(MEASURED, world=world), 170_000, 5)
    say(session, "the pending prompt")
    online(session, look(session, "before_call"), Scripted(SUMMARY))
    shown = texts(session)
    assert shown[0] == "<system-reminder>\nuse tabs\n</system-reminder>"
    assert shown[1].startswith("This conversation goes on")
    assert shown[2] == "Read them all."
    assert shown[3:] == ["<system-reminder>\nThe plan that is being carried out:\n1. lexer\n</system-reminder>", "the pending prompt"]


def test_in_a_small_window_no_more_comes_back_than_half_of_what_is_left() -> None:
    session = fill(claude(), 150_000)
    world = World(dict.fromkeys(MANY, "x" * 8000))
    assert named(restored(Restore(), folded(session), world)) == ["/repo/7.py"]
