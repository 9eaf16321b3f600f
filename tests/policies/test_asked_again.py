"""Repeated requests for compaction without a model: no view grows, and every profile stops editing."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from claude_work import MEASURED, World, claude, edits, fill, texts
from real_work import CLAUDE, Place, at_work, generated, places
from workplace import offline, reply, say, use

from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Session
from palimpsest.audit.working_state import RESTORED
from palimpsest.core.errors import TooFull
from palimpsest.core.items import Text, text_of
from palimpsest.core.plans import Look
from palimpsest.policies.named import PROFILES, profile
from palimpsest.wire.encode import encode

# A request that is too long by its report is folded through all fallback levels; everything else stops much sooner.
MOST = 40
RESTORING = ("claude-code", MEASURED)
SKILL = "Look at every line of the change and say what is wrong with it. " * 250
FACTS = {"plan": "1. lexer 2. parser", "agents": "a1 is running", "session_start": "use tabs"}


def whatever_is_read(want: Look) -> str | None:
    """A world in which every source file is there, and longer than what was read of it."""
    if want.what == "fact":
        return FACTS.get(want.name)
    return None if want.name.startswith(".transcripts/") else f"the content of {want.name}\n" * 300


def tokens_of(session: Session) -> int:
    return session.counter.total(session.log.view)


def bytes_of(session: Session) -> int:
    return len(encode(session.log.view, session.card, session.tools, session.params, session.environment.blobs.get).body)


def ask_until_rest(session: Session, size: Callable[[Session], int]) -> list[int]:
    """The size before the first and after each compaction."""
    sizes = [size(session)]
    for _ in range(MOST):
        try:
            edited = offline(session, run_policies(session, "asked")).edited
        except TooFull:
            return sizes
        if not edited:
            return sizes
        sizes.append(size(session))
    pytest.fail(f"{session.log.session} never rests: {sizes}")


def check(name: str, place: Place, recorded: str, *, world: bool) -> None:
    with at_work(place, recorded, profile(name), CLAUDE) as session:
        if world:
            session.environment = replace(session.environment, look=whatever_is_read)
        sizes = ask_until_rest(session, tokens_of)
        assert sizes == sorted(sizes, reverse=True), (recorded, sizes)
        shown = [(item.source, item.content) for item in session.log.view.items if item.source.startswith(RESTORED) and item.mask is None]
        assert len(shown) == len(set(shown)), recorded


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", PROFILES)
def test_repeated_compaction_without_a_model_never_grows_the_view_and_comes_to_rest(name: str, step: int) -> None:
    for place in places():
        # Profiles that bring nothing back fold alike: a part of the long sessions will do for them.
        for recorded in place.sessions[:: 1 if place is generated() else step if name in RESTORING else 4 * step]:
            check(name, place, recorded, world=False)
    for recorded in generated().sessions:
        check(name, generated(), recorded, world=True)


def with_a_skill(name: str) -> Session:
    """A session in which a skill was loaded long ago, and much has happened since."""
    session = claude(name, world=World({"/repo/0.py": "as it is now"}, FACTS))
    say(session, "review it")
    use(session, "k", "Skill", '{"skill":"review"}', SKILL)
    use(session, "r", "Read", '{"file_path":"/repo/0.py"}', "as it was")
    for number in range(40):
        use(session, f"c{number}", "Bash", '{"command":"ls"}', f"line {number}\n" * 900)
    reply(session, Text("done", "assistant"))
    return session


@pytest.mark.parametrize("name", RESTORING)
def test_what_a_fold_brought_back_stands_once_however_often_it_is_asked_for(name: str) -> None:
    session = with_a_skill(name)
    sizes = ask_until_rest(session, bytes_of)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 4 * sizes[-1]
    shown = texts(session)
    brought = [text_of(item.content) for item in session.log.view.items if item.source.startswith(RESTORED)]
    assert sum("Skills that were invoked before:\nreview" in text for text in shown) == 1
    # The fold may keep the old call too, with a stub in place of its result.
    assert sum('{"file_path":"/repo/0.py"}' in text for text in brought) == 1
    assert sum("as it is now" in text for text in shown) == 1
    assert not any("as it was" in text for text in shown)
    assert sum("1. lexer 2. parser" in text for text in shown) == 1
    assert sum("use tabs" in text for text in shown) == 1


@pytest.mark.parametrize("name", RESTORING)
def test_a_copy_that_is_out_of_date_goes_when_the_new_one_comes(name: str) -> None:
    session = with_a_skill(name)
    offline(session, run_policies(session, "asked"))
    world = World({"/repo/0.py": "as it is later"}, FACTS | {"plan": "3. docs"})
    session.environment = replace(session.environment, look=world)
    for number in range(40, 60):
        use(session, f"c{number}", "Bash", '{"command":"ls"}', f"line {number}\n" * 900)
    offline(session, run_policies(session, "asked"))
    shown = texts(session)
    assert sum("as it is later" in text for text in shown) == 1
    assert sum("3. docs" in text for text in shown) == 1
    assert not any("as it is now" in text or "1. lexer" in text for text in shown)


def test_what_a_kept_message_still_shows_does_not_come_back() -> None:
    session = fill(claude(), 100_000)
    use(session, "k", "Skill", '{"skill":"review"}', SKILL)
    use(session, "p", "ExitPlanMode", '{"plan":"1. lexer\\n2. parser"}', "approved")
    offline(session, run_policies(session, "folded"))
    assert edits(session) == []


def test_a_fold_without_a_model_is_not_grown_over_by_what_comes_back() -> None:
    session = claude(world=World(dict.fromkeys((f"/repo/{number}.py" for number in range(5)), "long line of a file\n" * 900)))
    say(session, "look")
    for number in range(5):
        use(session, f"c{number}", "Read", f'{{"file_path":"/repo/{number}.py","limit":3}}', "three lines\n" * 3)
    for number in range(30):
        use(session, f"b{number}", "Bash", f'{{"command":"make {number}"}}', "built\n" * 500)
    before = bytes_of(session)
    assert offline(session, run_policies(session, "asked")).folded
    assert bytes_of(session) < before
