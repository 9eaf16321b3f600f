"""Evidence beside a summary by a model: only if the setting is on, once, and right behind the summary."""

import pytest
from workplace import offline, online, reply, say, use, work

from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Session
from palimpsest.audit.fold_texts import EVIDENCE, EVIDENCE_TITLE
from palimpsest.core.items import Item, Text, text_of
from palimpsest.policies.named import profile
from palimpsest.providers.scripted import Scripted

IMITATING = ("claude-code", "claude-code-2.1.325", "opencode", "opencode-1.18", "classroom")
ON = {"PAL_EVIDENCE": "on"}
SUMMARY = "<summary>The parser is faster now.</summary>"


def busy(name: str, settings: dict[str, str]) -> Session:
    session = work(profile(name, settings))
    for number in range(4):
        say(session, f"make the parser faster, part {number}")
        use(session, f"e{number}", "Edit", f'{{"file_path":"/repo/part{number}.py","old_string":"a","new_string":"b"}}', "done")
        use(session, f"c{number}", "Bash", f'{{"command":"pytest part{number}"}}', "1 failed, 2 passed\n" * 900, exit_code=1)
        reply(session, Text("on to the next", "assistant"))
    return session


def proofs(session: Session) -> list[Item]:
    return [item for item in session.log.view.items if item.source == EVIDENCE and item.mask is None]


@pytest.mark.parametrize("name", IMITATING)
def test_asked_for_by_a_setting_it_stands_right_behind_the_summary(name: str) -> None:
    session = busy(name, ON)
    assert online(session, run_policies(session, "asked"), Scripted(SUMMARY)).folded
    (proof,) = proofs(session)
    items = session.log.view.items
    assert items[items.index(proof) - 1].kind == "summary"
    assert EVIDENCE_TITLE in text_of(proof.content)
    assert all(f"/repo/part{number}.py" in text_of(proof.content) for number in range(4))
    assert "[1] pytest part3" in text_of(proof.content)


@pytest.mark.parametrize("name", IMITATING)
def test_after_the_next_summary_it_stands_there_once_and_tells_the_newest(name: str) -> None:
    session = busy(name, ON)
    online(session, run_policies(session, "asked"), Scripted(SUMMARY))
    say(session, "and the lexer")
    use(session, "late", "Edit", '{"file_path":"/repo/lexer.py","old_string":"a","new_string":"b"}', "done " * 4_000)
    for number in range(3):
        use(session, f"b{number}", "Bash", '{"command":"make"}', "ok\n" * 9_000, exit_code=0)
    reply(session, Text("done", "assistant"))
    assert online(session, run_policies(session, "asked"), Scripted(SUMMARY)).folded
    (proof,) = proofs(session)
    assert "/repo/lexer.py" in text_of(proof.content)


@pytest.mark.parametrize("name", IMITATING)
def test_unasked_a_summary_stands_as_in_the_original(name: str) -> None:
    session = busy(name, {})
    assert online(session, run_policies(session, "asked"), Scripted(SUMMARY)).folded
    assert proofs(session) == []


@pytest.mark.parametrize("name", IMITATING)
def test_a_fold_without_a_model_has_it_already(name: str) -> None:
    session = busy(name, ON)
    # The working set and the tail of the fold have room for all before these.
    for number in range(5):
        use(session, f"b{number}", "Bash", '{"command":"make"}', "ok\n" * 9_000, exit_code=0)
    assert offline(session, run_policies(session, "asked")).folded
    assert len(proofs(session)) == 1
