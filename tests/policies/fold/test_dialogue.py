"""The dialogue that a fold keeps: who said what, in its order, whole or by opening words, and valid for every provider."""

import json
from collections.abc import Callable, Iterator

import pytest
from again import again, bodies, pauses
from corpus import GOLDEN
from msgspec.structs import replace
from readings import CARDS
from real_work import CLAUDE, Place, faults, generated, recorded
from workplace import offline, reply, say, use, work

from palimpsest.agent.editing import run_policies
from palimpsest.agent.session import Session
from palimpsest.audit.fold_texts import MESSAGES
from palimpsest.core.events import Interrupted, ModelReplied, UserSaid, items_of
from palimpsest.core.items import Item, Opaque, Text, seq_of, text_of
from palimpsest.policies.fold import FoldFromLog
from palimpsest.policies.fold_parts import Bounds, older_messages, tail_start
from palimpsest.policies.named import profile
from palimpsest.policies.profile import Profile
from palimpsest.wire.encode import encode

ROOMY = replace(CLAUDE, window=3_000_000)
TIMES = 3
# So little stays that also short sessions are folded.
SMALL = Bounds(messages=400, said=30, evidence=200, commands=0, results=0, calls=0, tail=200)


def folding(bounds: Bounds) -> Profile:
    return Profile("ours", (FoldFromLog(bounds=bounds),), profile("palimpsest").budget, strictness="full")


def fold(session: Session) -> tuple[Item, ...]:
    assert offline(session, run_policies(session, "asked")).folded
    return session.log.view.items


def turn(session: Session, number: int, answer: str) -> None:
    say(session, f"do part {number} of the work on the parser now")
    reply(session, Text(f"I look at part {number}.", "assistant"))
    use(session, f"c{number}", "Bash", f'{{"command":"make {number}"}}', f"line {number} of the output\n" * 300)
    reply(session, Text(answer, "assistant"))


def four_turns(said: int = 45) -> Session:
    """Four turns and a message: two of their messages fit, and one of their answers."""
    session = work(folding(Bounds(messages=40, said=said, evidence=0, commands=0, results=0, calls=0, tail=100)))
    for number in range(3):
        turn(session, number, f"Part {number}\nis   done: {'rule_of_grammar ' * 20}")
    turn(session, 3, "Part 3 is done as well.")
    say(session, "go on")
    reply(session, Text("I go on with all of it: " + "and look " * 200, "assistant"))
    return session


def dialogue_of(items: tuple[Item, ...]) -> list[tuple[str, str]]:
    return [(item.kind, text_of(item.content)) for item in items[:-1] if item.kind in ("user", "assistant") or item.source == MESSAGES]


TITLE = "[Earlier messages of the user, with the agent's answers: id, time and opening words; `recall` with the id shows one whole]"
WORDS = "rule_of_grammar rule_of_grammar rule_of_grammar rule_of_grammar"


@pytest.mark.states("PA-11")
def test_an_answer_without_room_shows_by_opening_words_behind_the_message_that_it_answers() -> None:
    session = four_turns()
    first = f"""{TITLE}
- 1.0, 2023-11-14 22:13: do part 0 of the work on the parser now
  - answer 8.0, 2023-11-14 22:13: Part 0 is done: {WORDS}
- 9.0, 2023-11-14 22:13: do part 1 of the work on the parser now
  - answer 16.0, 2023-11-14 22:13: Part 1 is done: {WORDS}"""
    assert dialogue_of(fold(session)) == [
        ("summary", first),
        ("assistant", "I look at part 1."),
        ("user", "do part 2 of the work on the parser now"),
        ("assistant", "I look at part 2."),
        ("summary", f"[Your answer 24.0, 2023-11-14 22:13: Part 2 is done: {WORDS}]"),
        ("user", "do part 3 of the work on the parser now"),
        ("assistant", "I look at part 3."),
        ("assistant", "Part 3 is done as well."),
        ("user", "go on"),
    ]
    turn(session, 4, "Part 4 is done.")
    second = f"""{first}
- 17.0, 2023-11-14 22:13: do part 2 of the work on the parser now
  - answer 24.0, 2023-11-14 22:13: Part 2 is done: {WORDS}"""
    opening = "I go on with all of it: and look and look and look and look and look and look an"
    assert dialogue_of(fold(session)) == [
        ("summary", second),
        ("assistant", "I look at part 1."),
        ("assistant", "I look at part 2."),
        ("user", "do part 3 of the work on the parser now"),
        ("assistant", "Part 3 is done as well."),
        ("user", "go on"),
        ("summary", f"[Your answer 35.0, 2023-11-14 22:13: {opening}]"),
        ("user", "do part 4 of the work on the parser now"),
        ("assistant", "I look at part 4."),
    ]


def test_without_room_for_texts_of_the_agent_none_is_listed() -> None:
    session = four_turns(said=0)
    items = fold(session)
    assert [text_of(item.content).count("answer ") for item in items if item.source == MESSAGES] == [0]
    assert [kind for kind, _ in dialogue_of(items)] == ["summary", "user", "user", "user"]


@pytest.mark.parametrize(("room", "listed", "answered"), [(500, 4, 4), (270, 4, 2), (180, 4, 0), (145, 3, 0)])
@pytest.mark.states("PA-12")
def test_messages_of_the_user_are_listed_before_answers_and_the_newest_of_both_stay(room: int, listed: int, answered: int) -> None:
    situation = four_turns().situation("asked")
    closing = [(message.id, message.closing) for message in reversed(situation.evidence.user_messages[:4]) if message.closing is not None]
    older = older_messages(situation, frozenset({"33.0"}), closing, room)
    assert older.answers == {}
    lines = text_of(older.listed[0].content).split("\n")
    assert [line.split(",")[0] for line in lines if line.startswith("- ") and "before them" not in line] == [
        f"- {1 + 8 * number}.0" for number in range(4 - listed, 4)
    ]
    assert [line.split(",")[0] for line in lines if line.startswith("  - ")] == [
        f"  - answer {8 + 8 * number}.0" for number in range(4 - answered, 4)
    ]
    assert situation.tokens.content(older.listed[0].content) <= room


def folded(place: Place) -> Iterator[Session]:
    """Each session after each of three folds."""
    for name in place.sessions:
        session = again(place, folding(SMALL), ROOMY)
        told = bodies(place, name)
        due = [len(told) * part // TIMES for part in range(1, TIMES + 1)]
        for number in pauses(session, told):
            if due and number >= due[0]:
                del due[0]
                if offline(session, run_policies(session, "asked")).folded:
                    yield session


def closing_messages(session: Session) -> dict[str, Item]:
    """The last text of each turn by the message that began it, as the log has them."""
    found: dict[str, Item] = {}
    message = ""
    for event in session.log.events():
        if isinstance(event.body, UserSaid | ModelReplied | Interrupted):
            for item in items_of(event.seq, event.body):
                if item.kind == "user":
                    message = item.id
                elif message and item.kind == "assistant" and isinstance(item.content, Text) and item.content.text.strip():
                    found[message] = item
    return found


def spoken(body: bytes) -> list[tuple[str, str]]:
    """Role and text of all that is said in a request, whatever its wire."""
    request = json.loads(body)
    said = []
    for message in request.get("messages") or request["input"]:
        content = message.get("content") or ()
        parts = [{"text": content}] if isinstance(content, str) else content
        said += [(message["role"], part["text"].strip()) for part in parts if "role" in message and isinstance(part.get("text"), str)]
    return said


def missing_in_order(wanted: list[tuple[str, str]], said: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """What is wanted and not said, each behind the one before it."""
    rest = iter(said)
    return [(role, text) for role, text in wanted if not any(role == speaker and text in words for speaker, words in rest)]


@pytest.mark.parametrize("place", [generated, lambda: recorded(GOLDEN)], ids=["made up", "golden"])
@pytest.mark.states("PA-11")
def test_a_folded_dialogue_misses_no_answer_and_is_valid_for_every_provider(place: Callable[[], Place]) -> None:
    whole = by_opening = 0
    for session in folded(place()):
        view = session.log.view
        shown = {item.id for item in view.items}
        listed = "\n".join(text_of(item.content) for item in view.items if item.source == MESSAGES)
        for item in closing_messages(session).values():
            whole += item.id in shown
            if item.id not in shown:
                opening = " ".join(text_of(item.content).split())[:40]
                assert f"nswer {item.id}, " in listed
                assert opening in listed
                by_opening += 1
        dialogue = [
            item
            for item in view.items
            if item.kind in ("user", "assistant") and isinstance(item.content, Text) and item.content.text.strip()
        ]
        places = [seq_of(item.id) for item in dialogue]
        assert places == sorted(places)
        assert faults(session) == []
        wanted = [("assistant" if item.kind == "assistant" else "user", text_of(item.content).strip()) for item in dialogue]
        for model in CARDS:
            request = encode(view, model, session.tools, session.params, session.environment.blobs.get)
            assert (model.wire, missing_in_order(wanted, spoken(request.body))) == (model.wire, [])
    assert whole > 5
    assert by_opening > 20


def test_the_tail_divides_no_reply_and_no_message() -> None:
    session = work(folding(Bounds()))
    session.log.append(UserSaid((Text("look it up " * 20), Text("and tell me " * 20))))
    for number in range(3):
        call = f'{{"type":"server_tool_use","id":"s{number}","name":"web_search","input":{{"query":"{"rounding " * 20}"}}}}'
        found = f'{{"type":"web_search_tool_result","tool_use_id":"s{number}","content":[]}}'
        parts = (Text("I search. " * 20, "assistant"), Opaque("anthropic", CLAUDE.name, call), Opaque("anthropic", CLAUDE.name, found))
        session.log.append(ModelReplied((*parts, Text("Found it. " * 20, "assistant"))))
        session.log.append(UserSaid((Text("once more " * 20), Text("please " * 20))))
    situation = session.situation("asked")
    items = situation.view.items
    starts = {tail_start(situation, bound) for bound in range(0, 2_000, 20)}
    assert {cut for cut in starts if 0 < cut < len(items) and seq_of(items[cut - 1].id) == seq_of(items[cut].id)} == set()
    assert len(starts) == 6
