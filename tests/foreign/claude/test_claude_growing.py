import json
from pathlib import Path

import pytest
from corpus import golden
from hypothesis import given, settings
from hypothesis import strategies as st
from readings import Home, called, returned, said

from palimpsest.core.events import ContextStated, ModelReplied
from palimpsest.exchange.claude.reader import ClaudeFormat

CLAUDE = ClaudeFormat()
FILES = golden("claude/*/projects/*/*.jsonl")


def step_ends(lines: list[bytes]) -> list[int]:
    """Where a step of the program ends: before a prompt that follows a reply, so neither message nor statements are cut."""
    found, replied = [], False
    for number, data in enumerate(lines):
        line = json.loads(data)
        if replied and line["type"] == "user" and isinstance(line["message"]["content"], str) and not line.get("isMeta"):
            found.append(number)
            replied = False
        replied = replied or line["type"] == "assistant"
    return found


def grown(path: Path, lines: list[bytes], *cuts: int, keep_mark: bool = True) -> Home:
    """A home into which a file was imported while it grew; the last line of each stage is only half there."""
    home = Home()
    for cut in cuts:
        path.write_bytes(b"".join(lines[:cut]) + lines[cut][: len(lines[cut]) // 2])
        home.take(CLAUDE, path)
        if not keep_mark:
            home.done.clear()
    path.write_bytes(b"".join(lines))
    home.take(CLAUDE, path)
    return home


@pytest.mark.parametrize("source", FILES, ids=lambda path: path.stem[:8])
def test_a_file_that_grew_gives_the_same_log_as_the_whole_file_at_once(source: Path, tmp_path: Path) -> None:
    lines = source.read_bytes().splitlines(keepends=True)
    path = tmp_path / source.name
    whole = grown(path, lines).logs()
    ends = step_ends(lines)
    assert ends
    for cut in ends:
        assert grown(path, lines, cut).logs() == whole, f"cut before line {cut + 1}"
    assert grown(path, lines, *ends).logs() == whole


def told(home: Home) -> tuple[object, ...]:
    (session,) = home.store.sessions()
    bodies = home.bodies(session)
    replies = [body for body in bodies if isinstance(body, ModelReplied)]
    stated = [item.text for body in bodies if isinstance(body, ContextStated) for item in body.items]
    parts = [part for body in replies for part in body.parts]
    tokens = [
        sum(body.usage.total for body in replies if body.message == message) for message in dict.fromkeys(body.message for body in replies)
    ]
    return said(bodies), called(bodies), sorted(returned(bodies)), sorted(map(repr, parts)), tokens, sorted(stated)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_wherever_the_file_ended_nothing_is_lost_read_twice_or_counted_twice(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    source = data.draw(st.sampled_from(FILES))
    lines = source.read_bytes().splitlines(keepends=True)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(lines) - 1), min_size=1, max_size=3)))
    path = tmp_path_factory.mktemp("grown") / source.name
    whole = told(grown(path, lines))
    assert told(grown(path, lines, *cuts)) == whole
    assert told(grown(path, lines, *cuts, keep_mark=False)) == whole
