"""The user messages that a hand-over keeps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.items import Image, Into, Item, Keep, Put, Text
from palimpsest.policies.handoff import keep_parts, keep_texts, messages_of, tokens_of

BIG = "x" * 28_895


def said(number: int, text: str, kind: str = "user") -> Item:
    return Item(f"{number}.0", "steering" if kind == "steering" else "summary" if kind == "summary" else "user", Text(text))


def letters() -> tuple[Item, ...]:
    return (*(said(number, letter + BIG) for number, letter in enumerate("abcd", 1)), said(5, "short e"))


@pytest.mark.states("CX-36")
def test_the_newest_within_20000_tokens_stay_in_order_and_the_one_that_crosses_is_cut_in_its_middle() -> None:
    cut, *rest = keep_texts(messages_of(letters()), 20_000)
    text = "b" + BIG
    assert tokens_of(text) == 7_224
    assert cut == (Put("user", Text(text[:11_100] + "…1674 tokens truncated…" + text[-11_100:])),)
    assert rest == [(Keep("3.0"),), (Keep("4.0"),), (Keep("5.0"),)]


@pytest.mark.states("CX-36")
def test_the_newer_version_shows_the_cut_one_as_three_parts_of_one_message() -> None:
    cut = keep_texts(messages_of(letters()), 20_000, in_parts=True)[0]
    pieces = [piece.content for piece in cut if isinstance(piece, Put) and isinstance(piece.content, Text)]
    assert [len(piece.text) for piece in pieces] == [11_100, len("…1674 tokens truncated…"), 11_100]
    assert len({piece.ref for piece in pieces}) == 1
    assert pieces[0].ref.startswith("msg_")


@pytest.mark.states("CX-36")
def test_nothing_is_kept_of_what_lies_before_a_bound_that_is_spent() -> None:
    items = (said(1, "a" * 40), said(2, "b" * 40))
    assert keep_texts(messages_of(items), 10) == ((Keep("2.0"),),)
    assert keep_texts(messages_of(items), 0) == ()


@pytest.mark.states("CX-37")
def test_earlier_summaries_and_context_are_no_messages_of_the_user() -> None:
    context = Item("3.0", "context", Text("<environment_context>"), "environment")
    items = (said(1, "a"), said(2, "sum", "summary"), context, said(4, "b", "steering"))
    assert [message.text for message in messages_of(items)] == ["a", "b"]


def test_the_parts_of_one_message_stay_together_and_pictures_are_left_behind_or_free() -> None:
    items = (Item("1.0", "user", Text("look")), Item("1.1", "user", Image("image/png", "blob")), Item("1.2", "user", Text("here")))
    (message,) = messages_of(items)
    assert message.text == "look\nhere"
    assert keep_texts((message,), 100) == ((Keep("1.0"), Keep("1.2")),)
    assert keep_parts((message,), 2) == ((Keep("1.0"), Keep("1.1"), Keep("1.2")),)


def test_the_marks_round_a_picture_go_with_it() -> None:
    opening, closing = Text('<image name=[Image #1] path="a.png">'), Text("</image>")
    parts: tuple[Text | Image, ...] = (opening, Image("image/png", "blob"), closing, Text("what is this?"))
    (message,) = messages_of(tuple(Item(f"1.{number}", "user", part) for number, part in enumerate(parts)))
    assert message.text == "what is this?"
    assert keep_texts((message,), 100) == ((Keep("1.3"),),)
    assert keep_parts((message,), 100) == ((Keep("1.0"), Keep("1.1"), Keep("1.2"), Keep("1.3")),)
    (plain,) = messages_of((Item("2.0", "user", closing),))
    assert plain.text == "</image>"


def test_a_message_too_long_for_the_rest_is_cut_part_by_part_and_keeps_its_picture() -> None:
    items = (Item("1.0", "user", Text("a" * 40)), Item("1.1", "user", Image("image/png", "blob")), Item("1.2", "user", Text("b" * 400)))
    assert keep_parts(messages_of(items), 30) == (
        (Keep("1.0"), Keep("1.1"), Put("user", Text("b" * 40 + "…80 tokens truncated…" + "b" * 40))),
    )


def test_a_message_without_words_costs_one_token() -> None:
    items = (said(1, "a" * 8), Item("2.0", "user", Image("image/png", "blob")))
    assert keep_parts(messages_of(items), 2) == ((Put("user", Text("aa…1 tokens truncated…aa")),), (Keep("2.0"),))


def put_tokens(kept: tuple[Into, ...], items: tuple[Item, ...]) -> int:
    text_parts = {item.id: item.content.text for item in items if isinstance(item.content, Text)}
    whole = sum(tokens_of(text_parts[piece.id]) for message in kept for piece in message if isinstance(piece, Keep))
    puts = [piece.content for message in kept for piece in message if isinstance(piece, Put) and isinstance(piece.content, Text)]
    # The marker is not charged.
    return whole + sum(tokens_of(put.text) - 10 for put in puts)


@given(st.lists(st.text(min_size=1, max_size=200), max_size=8), st.integers(0, 120), st.booleans())
def test_what_is_kept_is_a_suffix_within_the_bound_whatever_the_texts_are(text_parts: list[str], bound: int, in_parts: bool) -> None:
    items = tuple(said(number, text) for number, text in enumerate(text_parts))
    kept = keep_texts(messages_of(items), bound, in_parts=in_parts)
    whole = [message for message in kept if isinstance(message[0], Keep)]
    assert whole == [(Keep(item.id),) for item in items[len(items) - len(whole) :]]
    assert put_tokens(kept, items) <= bound + 4
    assert len(kept) - len(whole) <= 1
