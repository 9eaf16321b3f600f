"""Probes about names in their context: what the agent concluded and used next; a bag of names answers none of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pal.replay.probes import (
    KINDS,
    NamedIn,
    Probe,
    ProbedSession,
    ProbedText,
    RecordedTexts,
    answerable,
    closing_facts,
    decoys_of,
    is_named_in,
    neighbours,
    next_facts,
    probe_after,
    probes_of,
    score,
)
from palimpsest.core.events import Event, ModelReplied, SessionOpened, ToolReturned, UserSaid
from palimpsest.core.items import Content, Text, ToolCall, ToolResult
from palimpsest.policies.named import profile
from palimpsest.wire.models import card

CLOSING = "I raised `RETRY_LIMIT` to 45 in src/shop/cart.py. The cause was parse_header(), not load_config."


def events(*bodies: ModelReplied | ToolReturned | UserSaid) -> tuple[Event, ...]:
    return tuple(Event(seq, seq - 1, 1_000 * seq, "", body) for seq, body in enumerate((SessionOpened("s"), *bodies)))


def replied(*parts: Content) -> ModelReplied:
    return ModelReplied(parts)


def work(number: int) -> tuple[ModelReplied, ToolReturned]:
    call = ToolCall(f"c{number}", "Read", f'{{"file_path": "src/part_{number}.py"}}')
    return replied(Text(f"next I open src/part_{number + 1}.py", "assistant"), call), ToolReturned(
        ToolResult(f"c{number}", (Text(f"value_{number} holds the limit\n" * 40),)), "Read"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I raised `RETRY_LIMIT` to 45", {"raised", "to"}),
        ("RETRY_LIMIT", set()),
        ("OTHER_LIMIT, RETRY_LIMIT, src/a.py", set()),
        ("MY_RETRY_LIMIT is; RETRY_LIMITS are", set()),
        ("(RETRY_LIMIT) Is high; see RETRY_LIMIT.", {"is", "see"}),
    ],
)
def test_the_words_beside_a_name_are_its_context(text: str, words: set[str]) -> None:
    assert neighbours(text, "RETRY_LIMIT") == words


def test_a_closing_message_is_asked_for_by_its_names_paths_and_numbers() -> None:
    assert closing_facts(
        events(replied(Text("I look.", "assistant"), ToolCall("c", "Read", "{}")), replied(Text(CLOSING, "assistant")))
    ) == [
        (
            NamedIn("RETRY_LIMIT", ("raised", "to")),
            NamedIn("45", ("in", "to")),
            NamedIn("src/shop/cart.py", ("in", "the")),
            NamedIn("parse_header", ("not", "was")),
            NamedIn("load_config", ("not",)),
        )
    ]


def test_what_is_used_next_counts_if_it_had_occurred_before() -> None:
    used = events(replied(ToolCall("c", "Edit", '{"file_path": "src/shop/cart.py", "old_string": "never_seen = 1"}')))
    assert next_facts(used, ["we changed src/shop/cart.py today", "src/shop/cart.py\nsrc/shop/till.py"]) == (
        NamedIn("src/shop/cart.py", ("changed", "today")),
    )


def test_a_decoy_is_a_name_in_the_context_of_another() -> None:
    facts = (NamedIn("alpha_one", ("set", "to")), NamedIn("beta_two", ("to", "was")))
    assert decoys_of(facts) == (NamedIn("alpha_one", ("was",)), NamedIn("beta_two", ("set",)))
    assert decoys_of(facts[:1]) == ()


def test_a_view_that_proves_decoys_scores_less() -> None:
    probe = Probe("concluded", "?", (NamedIn("alpha_one", ("set",)),), (NamedIn("alpha_one", ("was",)),))
    assert score([probe], [ProbedText("we set alpha_one")]).total == 1.0
    assert score([probe], [ProbedText("we set alpha_one, and alpha_one was set")]).total == 0.0
    # What the recording says itself is no decoy.
    assert answerable([probe], [ProbedText("we set alpha_one"), ProbedText("alpha_one was 3")])[0].decoys == ()


EDIT = ToolCall("e", "Edit", '{"file_path": "src/shop/cart.py", "old_string": "RETRY_LIMIT = 40", "new_string": "RETRY_LIMIT = 45"}')
SESSION = events(
    UserSaid((Text("Fix the retries in src/shop/cart.py."),)),
    replied(EDIT),
    ToolReturned(ToolResult("e", (Text("changed"),)), "Edit"),
    *(body for number in range(70) for body in work(number)),
    replied(Text(CLOSING, "assistant")),
    *(body for number in range(70, 90) for body in work(number)),
)
PROBED = ProbedSession(SESSION)
BAG = sorted({fact.name for probe in PROBED.probes for fact in probe.facts if isinstance(fact, NamedIn)})


def test_the_last_replies_of_a_long_session_are_held_back_and_asked_for() -> None:
    (asked,) = (probe for probe in PROBED.probes if probe.kind == "next")
    assert [fact.name for fact in asked.facts if isinstance(fact, NamedIn)] == ["src/part_70.py"]
    assert PROBED.events[-1].body == SESSION[144].body
    # A short session is fed whole.
    assert len(ProbedSession(SESSION[:60]).events) == 59


@given(st.permutations(BAG), st.sampled_from([", ", "\n", " ", "\n- ", "` `", " | "]), st.integers(0, 40))
def test_a_bag_of_names_improves_no_score(names: list[str], separator: str, shown: int) -> None:
    texts = RecordedTexts(SESSION).texts[:shown]
    bag = ProbedText(separator.join(names))

    assert {probe.kind for probe in PROBED.probes} >= {"asked", "edited", "values", "concluded", "next"}
    assert score(PROBED.probes, (*texts, bag)) == score(PROBED.probes, texts)


def test_a_view_that_shows_everything_answers_everything_and_a_fold_does_not() -> None:
    model = card("claude-sonnet-4-5", window=200_000)
    whole, folded = (probe_after(PROBED, profile(name), model, 1) for name in ("none", "palimpsest"))

    assert {kind: scores.visible for kind, scores in whole.kinds.items() if kind in ("concluded", "next")} == {
        "concluded": 1.0,
        "next": 1.0,
    }
    assert folded.folds == 1
    assert KINDS[-2:] == ("concluded", "next")
    assert all(probe.facts for probe in probes_of(SESSION))
    assert is_named_in(NamedIn("RETRY_LIMIT", ("raised",)), [CLOSING])
    assert score(PROBED.probes, [ProbedText(CLOSING)]).kinds["concluded"] == 1.0
