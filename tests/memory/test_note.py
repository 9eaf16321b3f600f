"""Notes: their fields, their files, and files of Claude Code."""

import msgspec
import pytest
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.errors import BadInput
from palimpsest.memory.note import KINDS, Note, check_note, decode_note, encode_note, fitting, from_claude, name_of, slug, to_claude

TABS = Note(
    name="user_tabs",
    kind="user",
    about="prefers tabs",
    backstory="said so when reviewing a.py",
    when="2026-05-04T10:00:00Z",
    evidence=("s1:17",),
    trust="stated",
    body="The user prefers tabs.\n",
)
FILE = """\
---
name: user_tabs
kind: user
about: prefers tabs
person: user
relationship: self
backstory: said so when reviewing a.py
when: 2026-05-04T10:00:00Z
status: active
evidence: [s1:17]
trust: stated
---
The user prefers tabs.
"""
line = st.text(st.characters(blacklist_categories=("Cs", "Cc", "Zl", "Zp")), min_size=1, max_size=40).map(str.strip).filter(bool)


def test_a_note_is_a_file_that_a_person_can_read() -> None:
    assert encode_note(TABS) == FILE
    assert decode_note(FILE, "user_tabs.md") == TABS


@pytest.mark.parametrize("field", ["about", "person", "relationship", "backstory", "body"])
@pytest.mark.states("ME-01")
def test_a_note_without_a_required_text_is_refused(field: str) -> None:
    with pytest.raises(BadInput, match=f"the field {field} is required"):
        check_note(msgspec.structs.replace(TABS, **{field: " "}))


@pytest.mark.parametrize("field", ["name", "kind", "about", "backstory", "when", "evidence", "trust"])
@pytest.mark.states("ME-01")
def test_a_file_without_a_required_field_is_refused(field: str) -> None:
    lines = [each for each in FILE.split("\n") if not each.startswith(f"{field}:")]
    with pytest.raises(BadInput, match=field):
        decode_note("\n".join(lines), "user_tabs.md")


@every_case(
    ("changed", "why"),
    [
        ({"name": "user-tabs"}, "a name is"),
        ({"name": "user_" + "a" * 60}, "a name is"),
        ({"name": "project_tabs"}, "must begin with the kind"),
        ({"when": "yesterday"}, "a time with a zone"),
        ({"when": "2026-05-04T10:00:00"}, "a time with a zone"),
        ({"valid_to": "soon"}, "are dates"),
        ({"valid_to": "2026-13-45"}, "are dates"),
        ({"when": "2026-02-31T10:00:00Z"}, "a time with a zone"),
        ({"last_used": "never"}, "last_used is a time"),
        ({"attribute": "a b"}, "an attribute is a key"),
        ({"valid_from": "2026-13-45"}, "are dates"),
        ({"valid_to": "9999-12-31"}, "within 100 years of the evidence"),
        ({"valid_from": "2026-06-01", "valid_to": "2026-05-31T10:00:00Z"}, "valid_to lies before valid_from"),
        ({"evidence": ()}, "at least one event"),
        ({"evidence": ("somewhere",)}, "at least one event"),
        ({"about": "a" * 151}, "at most 150"),
        ({"about": "a\nb"}, "one line"),
        ({"intensity": 1.5}, "from 0 to 1"),
        ({"trust": "observed"}, "needs a statement of the user"),
        ({"body": "word " * 5_000}, "at most 1,200 fit"),
    ],
)
@pytest.mark.states("ME-01", "ME-16")
def test_a_note_that_breaks_a_rule_is_refused(changed: dict[str, object], why: str) -> None:
    assert check_note(TABS) == TABS
    with pytest.raises(BadInput, match=why):
        check_note(msgspec.structs.replace(TABS, **changed))


notes = st.builds(
    lambda kind, texts, names, intensity, *, pinned: msgspec.structs.replace(
        TABS,
        name=f"{kind}_x",
        kind=kind,
        about=texts[0],
        person=texts[1],
        body=texts[2],
        stands_for=tuple(slug(name) for name in names),
        intensity=float(f"{intensity:g}"),
        pinned=pinned,
        valid_to="2026-06-01",
        rev=3,
    ),
    st.sampled_from(KINDS),
    st.tuples(line, line, line),
    st.lists(line, max_size=2),
    st.floats(0, 1, width=16),
    pinned=st.booleans(),
)


@given(notes)
@pytest.mark.states("ME-01")
def test_decoding_the_file_of_a_note_gives_the_note(note: Note) -> None:
    assert decode_note(encode_note(note), "x.md") == note


@pytest.mark.states("ME-01")
def test_unknown_fields_stay_where_they_are() -> None:
    text = FILE.replace("kind: user\n", "tags:\n  - one\n  - two\nkind: user\nmood: good # today\n")
    note = decode_note(text, "x.md")
    assert note.other == (("tags", "tags:\n  - one\n  - two"), ("mood", "mood: good # today"))
    assert encode_note(note) == text
    assert encode_note(msgspec.structs.replace(note, rev=2)) == text.replace("trust: stated\n", "trust: stated\nrev: 2\n")


@pytest.mark.parametrize(
    "text",
    [
        "---\nname: prefs\ndescription: indentation preferences of the user\ntype: user\n---\nSYNTH-TOPIC prefers tabs\n",
        "---\nname: user_prefs\ndescription: short\nmetadata:\n  type: user\n  other: 1\n---\n\nbody [[link]]\n",
        f"---\ntype: user\nname: prefs\ndescription: {'long ' * 60}end\n---\nbody",
    ],
)
@pytest.mark.states("ME-02", "CC-55")
def test_a_topic_file_of_claude_code_imports_and_exports_unchanged(text: str) -> None:
    note = from_claude(text, "user_prefs", when="2026-05-04T10:00:00Z", evidence="import:1")
    assert (note.name, note.kind, note.trust) == ("user_prefs", "user", "stated")
    assert note.about in ("indentation preferences of the user", "short", ("long " * 60)[:150])
    assert to_claude(note) == text
    kept = decode_note(encode_note(check_note(note)), "user_prefs.md")
    assert to_claude(kept) == text


@pytest.mark.parametrize(
    "text",
    [
        "no front matter",
        "---\nname: a\ntype: user\n---\n",
        "---\nname: a\ndescription: b\ntype: other\n---\n",
        "---\ndescription: b\ntype: user\n---\n",
    ],
)
@pytest.mark.states("CC-55")
def test_a_note_needs_name_description_and_one_of_four_kinds(text: str) -> None:
    with pytest.raises(BadInput):
        from_claude(text, "a", when="2026-05-04T10:00:00Z", evidence="import:1")


@pytest.mark.states("ME-15")
def test_a_secret_is_redacted_before_a_note_is_kept() -> None:
    note = msgspec.structs.replace(TABS, body="the key is sk-abcdefghijklmnopqrstuvwxyz0123", backstory="Bearer abcdefghijklmnop0123456789")
    kept = check_note(note)
    assert "sk-abc" not in kept.body
    assert "abcdefghijklmnop" not in kept.backstory
    assert check_note(kept) == kept


@pytest.mark.states("ME-16")
def test_fields_that_can_be_cut_are_cut_and_others_refused() -> None:
    assert fitting(TABS) == TABS
    with pytest.raises(BadInput, match="the fields have more than 400 tokens"):
        fitting(msgspec.structs.replace(TABS, backstory="word " * 2_000))


def test_names_are_ascii_bounded_and_not_taken_twice() -> None:
    assert slug("Prefers  Tabs, über alles!") == "prefers_tabs_uber_alles"
    assert slug("记住") == "8bb0_4f4f"
    assert slug("…") == "note"
    assert name_of("user", "tabs") == "user_tabs"
    assert name_of("user", "tabs", frozenset({"user_tabs", "user_tabs_2"})) == "user_tabs_3"
    assert len(name_of("reference", "word " * 50)) <= 60


@pytest.mark.states("ME-15")
def test_a_secret_becomes_no_part_of_a_name() -> None:
    assert name_of("project", "The token is ghp_abcdefghijklmnopqrstuvwxyz0123456789.") == "project_the_token_is_redacted_github"
