"""The digest of a transcript: read step by step, kept, and thrown away when the file is another one."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import rollouts
from claude_session import Line, boundary, call, prompt, reply, result, summary, text, written
from corpus import golden
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from palimpsest.apps.plugin.hooks import digest
from palimpsest.apps.plugin.hooks.digest import Digest, advanced, digest_slot, kept_digest, newest, refresh
from palimpsest.core.situation import CommandRun, Evidence

TURNS: tuple[Line, ...] = (
    prompt("u1", None, "Fix the parser, please."),
    reply("a1", "u1", "m1", call("c1", "Read", file_path="/repo/parser.py")),
    result("r1", "a1", "c1", "def parse(): ..."),
    reply("a2", "r1", "m2", call("c2", "Edit", file_path="/repo/parser.py", old_string="...", new_string="pass")),
    result("r2", "a2", "c2", "The file has been updated."),
    reply("a3", "r2", "m3", text("Done.")),
    prompt("u2", "a3", "Now run the tests."),
    reply("a4", "u2", "m4", call("c3", "Bash", command="pytest -q tests/test_parser.py")),
    result("r3", "a4", "c3", "3 passed in 0.1s"),
    reply("a5", "r3", "m5", text("They pass.")),
)


def contents(found: Digest) -> tuple[list[str], tuple[str, ...], tuple[str, ...], list[str]]:
    evidence = found.evidence
    return [said.text for said in found.messages], evidence.edited, evidence.read, [ran.command for ran in evidence.commands]


def test_a_digest_has_messages_paths_commands_and_the_last_test(tmp_path: Path) -> None:
    found = advanced(Digest(), written(tmp_path, *TURNS), digest.STEP_BYTES)

    said = ["Fix the parser, please.", "Now run the tests."]
    assert contents(found) == (said, ("/repo/parser.py",), (), ["pytest -q tests/test_parser.py"])
    assert found.evidence.tests is not None
    assert replace(found.evidence.tests, seq=-1) == CommandRun("pytest -q tests/test_parser.py", None, -1, "3 passed in 0.1s")
    assert (found.offset, found.skipped) == ((tmp_path / "11111111-2222-3333-4444-555555555555.jsonl").stat().st_size, 0)


@settings(max_examples=20)
@given(st.lists(st.integers(1, len(TURNS) - 1), unique=True))
def test_however_often_a_growing_transcript_was_read_the_digest_is_the_same(stops: list[int]) -> None:
    with TemporaryDirectory() as folder:
        whole = advanced(Digest(), written(Path(folder), *TURNS, name="whole"), digest.STEP_BYTES)
        found = Digest()
        for stop in (*sorted(stops), len(TURNS)):
            found = advanced(found, written(Path(folder), *TURNS[:stop], name="grown"), digest.STEP_BYTES)

    assert contents(found) == contents(whole)


def test_what_the_user_took_back_is_not_in_it(tmp_path: Path) -> None:
    again = (prompt("u3", "a3", "No: run the linter."), reply("a6", "u3", "m6", text("It is clean.")))
    found = advanced(Digest(), written(tmp_path, *TURNS, *again), digest.STEP_BYTES)

    assert contents(found) == (["Fix the parser, please.", "No: run the linter."], ("/repo/parser.py",), (), [])


def test_a_compaction_in_the_transcript_loses_nothing_of_it(tmp_path: Path) -> None:
    compacted = (boundary("b1", "a5"), summary("s1", "b1", "They fixed the parser."), prompt("u3", "s1", "Go on."))
    found = advanced(Digest(), written(tmp_path, *TURNS, *compacted), digest.STEP_BYTES)

    assert contents(found)[0] == ["Fix the parser, please.", "Now run the tests.", "Go on."]


def test_a_rollout_of_codex_is_read_in_steps_too(tmp_path: Path) -> None:
    lines = (
        rollouts.meta(),
        rollouts.context(),
        rollouts.said("List the files."),
        rollouts.called("c1", "exec_command", json.dumps({"cmd": "ls src"})),
        rollouts.output("c1", "Process exited with code 0\nOutput:\na.py"),
        rollouts.answered("One file."),
        rollouts.said("Thanks."),
    )
    found = advanced(Digest(), rollouts.write(tmp_path, *lines[:6]), digest.STEP_BYTES)
    found = advanced(found, rollouts.write(tmp_path, *lines), digest.STEP_BYTES)

    assert contents(found) == (["List the files.", "Thanks."], (), (), ["ls src"])


def test_a_kept_digest_goes_on_where_it_stopped_and_one_of_a_replaced_file_is_thrown_away(tmp_path: Path) -> None:
    path = written(tmp_path, *TURNS[:6])
    slot = digest_slot(tmp_path / "home", path)
    first = refresh(slot, path)
    path = written(tmp_path, *TURNS)

    assert kept_digest(slot, path) == first
    assert contents(newest(slot, path)) == contents(refresh(slot, path)) == contents(advanced(Digest(), path, digest.STEP_BYTES))
    written(tmp_path, prompt("x1", None, "Something else." * 500))
    assert kept_digest(slot, path) == Digest()
    slot.save(b"\xff{")
    assert kept_digest(slot, path) == Digest()


def test_a_hook_reads_the_end_of_a_long_transcript_and_says_how_much_it_left_out(tmp_path: Path) -> None:
    filler = (result(f"f{number}", None, f"c{number}", "x" * 1_000_000) for number in range(10, 15))
    path = written(tmp_path, *filler, *TURNS)
    found = newest(digest_slot(tmp_path / "home", path), path)

    assert found.offset == path.stat().st_size
    assert found.offset - found.skipped <= digest.HOOK_BYTES
    assert found.skipped > 1_000_000
    assert contents(found)[0] == ["Fix the parser, please.", "Now run the tests."]


def test_a_line_that_is_too_long_is_passed_over(tmp_path: Path) -> None:
    path = written(tmp_path, *TURNS[:1], prompt("long", "u1", "y" * 5_000), prompt("u9", "long", "After it."))
    found = Digest()
    while (read := advanced(found, path, 2_000)) is not found:
        found = read

    assert [said.text for said in found.messages] == ["Fix the parser, please.", "After it."]
    assert 5_000 < found.skipped < 6_000


def test_of_many_messages_the_newest_are_kept(tmp_path: Path) -> None:
    prompts = (prompt(f"u{number}", f"u{number - 1}" if number else None, f"{number} " + "z" * 9_000) for number in range(20))
    path = written(tmp_path, *prompts)
    found = advanced(Digest(), path, digest.STEP_BYTES)

    assert [said.text[:3] for said in found.messages] == ["14 ", "15 ", "16 ", "17 ", "18 ", "19 "]
    assert {len(said.text) for said in found.messages} == {digest.MESSAGE_CHARS}
    assert len(found.evidence.user_messages) == 20


def test_an_empty_file_and_one_without_a_line_end_have_no_evidence(tmp_path: Path) -> None:
    for data in (b"", b'{"type":"user"', b"\x00" * 5_000, b"\n\n\n"):
        path = tmp_path / "odd.jsonl"
        path.write_bytes(data)
        found = newest(digest_slot(tmp_path / "home", path), path)

        assert (found.evidence, found.messages) == (Evidence(), ())


def test_real_transcripts_have_the_messages_that_their_users_typed() -> None:
    path = golden("claude/2.1.325/projects/-repo-project/69901b92*.jsonl")[0]
    found = advanced(Digest(), path, digest.STEP_BYTES)

    assert found.messages
    assert all(said.at > 0 and said.text for said in found.messages)
