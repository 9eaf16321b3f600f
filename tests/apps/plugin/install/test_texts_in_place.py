"""JSON with comments and TOML, changed in place: what is put in can be taken out, and all else stays as it is."""

import json
import tomllib
from typing import Any

import pytest
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st

from pal.plugin.edit_config import parsed, with_member, with_table, without_member, without_table
from palimpsest.core.errors import BadInput

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "hooks", "mcp", "x y", '"', "//"]), VALUES, max_size=4)
SPACES = st.sampled_from(["", " ", "\n", "\r\n  ", ' // a comment, with { and "\n', "/* { */", "\t"])


@st.composite
def json_texts(draw: st.DrawFn) -> str:
    """A JSON object with comments and white space of any kind between its members."""

    def written(value: Any) -> str:
        if isinstance(value, dict):
            members = [f"{space()}{json.dumps(key)}{space()}:{space()}{written(each)}{space()}" for key, each in value.items()]
            return "{" + (",".join(members) + trailing(members) or space()) + "}"
        if isinstance(value, list):
            elements = [f"{space()}{written(each)}{space()}" for each in value]
            return "[" + (",".join(elements) + trailing(elements) or space()) + "]"
        return json.dumps(value)

    def space() -> str:
        return draw(SPACES)

    def trailing(parts: list[str]) -> str:
        return draw(st.sampled_from(["", ",", ",\n"])) if parts else ""

    return f"{space()}{written(draw(OBJECTS))}{space()}"


@given(json_texts())
def test_a_member_that_was_added_is_there_and_its_piece_taken_out_leaves_the_text_as_it_was(text: str) -> None:
    before = parsed(text)
    if "new" in before or not isinstance(before.get("hooks", {}), dict):
        return
    after, piece = with_member(text, ("hooks", "pal", "deep"), {"on": True})

    wanted = json.loads(json.dumps(before))
    place = wanted.setdefault("hooks", {}).setdefault("pal", {})
    if isinstance(place, dict):
        place["deep"] = {"on": True}
        assert parsed(after) == wanted
    assert after.replace(piece, "", 1) == text or after.count(piece) > 1


@given(json_texts(), st.sampled_from([("a",), ("hooks", "a"), ("mcp",), ("x y",)]))
def test_a_member_that_is_removed_is_gone_and_no_other(text: str, path: tuple[str, ...]) -> None:
    wanted = json.loads(json.dumps(parsed(text)))
    after = parsed(without_member(text, path))
    place = wanted
    for key in path[:-1]:
        place = place.get(key) if isinstance(place, dict) else None
    if isinstance(place, dict) and path[-1] in place:
        del place[path[-1]]
        if len(path) > 1 and not place and path[0] not in after:
            # The object that it leaves empty goes with it, unless there is a comment in it.
            del wanted[path[0]]

    assert after == wanted


def test_an_element_is_put_first_into_an_array_and_found_again_by_its_mark() -> None:
    text = '{\n  "hooks": {\n    "Stop": [\n      {"command": "mine"} // keep\n    ]\n  }\n}\n'
    after, piece = with_member(text, ("hooks", "Stop"), {"command": "/home/pal hook"})

    assert parsed(after) == {"hooks": {"Stop": [{"command": "/home/pal hook"}, {"command": "mine"}]}}
    assert after.replace(piece, "") == text
    assert parsed(without_member(after, ("hooks", "Stop"), "/home/pal")) == parsed(text)
    assert "// keep" in without_member(after, ("hooks", "Stop"), "/home/pal")


@every_case("text", ["", "[]", "null", "{", '{"a" 1}', '{"a": 1} {}', '{"a": }', "{,}", '{"a": [1 2]}', "{" * 5_000, "// only a comment"])
def test_what_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        with_member(text, ("a",), 1)


def test_what_is_another_value_on_the_path_is_refused() -> None:
    with pytest.raises(BadInput, match="is something else in this file"):
        with_member('{"hooks": "none"}', ("hooks", "Stop"), 1)


TOML = (
    "",
    "# only a comment\n",
    'model = "gpt-5.5"',
    '[mcp_servers.other] # theirs\ncommand = "x"\n\n\n',
    '[mcp_servers]\n[mcp_servers.other]\ncommand = "x"\r\n',
    '[[profiles]]\nname = "a"\n\n[tui]\nnotes = """\n[mcp_servers.pal]\n"""\n# end',
)


@pytest.mark.parametrize("text", TOML)
def test_a_table_that_was_added_is_there_and_taken_out_leaves_the_text_as_it_was(text: str) -> None:
    after, piece = with_table(text, ("mcp_servers", "pal"), 'command = "/pal"\nargs = ["mcp"]\n')
    wanted = tomllib.loads(text)
    wanted.setdefault("mcp_servers", {})["pal"] = {"command": "/pal", "args": ["mcp"]}

    assert tomllib.loads(after) == wanted
    assert after == text + piece


def test_a_table_is_removed_with_those_below_it_and_comments_of_others_stay() -> None:
    text = (
        '# top\n[mcp_servers.a]\nx = 1\n\n# ours\n[mcp_servers.pal]\ncommand = "/pal"\n\n[mcp_servers.pal.tools.recall]\n'
        'approval_mode = "approve"\n\n# about b\n[mcp_servers.b] # b\ny = 2\n'
    )

    assert without_table(text, ("mcp_servers", "pal")) == (
        "# top\n[mcp_servers.a]\nx = 1\n\n# ours\n\n# about b\n[mcp_servers.b] # b\ny = 2\n"
    )


@pytest.mark.parametrize(
    "text", ['mcp_servers = { a = { command = "x" } }\n', "[mcp_servers.pal]\ncommand = 'mine'\n", "mcp_servers = 3\n", "[broken\n"]
)
def test_a_file_that_cannot_take_the_table_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        with_table(text, ("mcp_servers", "pal"), 'command = "/pal"\n')
