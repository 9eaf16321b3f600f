"""A peer as a policy: what it changes in tool results is what a replay shows and bills, and nothing else."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from situations import situation, used, words

from pal_lab.bench.peers import DROPPED, Messages, PeerPolicy, PeerProcess, message_list
from palimpsest.core.items import Cover, Item, Mask, Unmask
from palimpsest.core.plans import Proposal

ITEMS = (words("1.0", 10), *used(2, "Read", '{"path": "a.py"}', 7_000), *used(4, "Bash", '{"command": "ls"}', 30))
GIVEN: Messages = [
    {"role": "user", "content": [{"type": "text", "text": "x10"}]},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c2", "name": "Read", "input": {"path": "a.py"}}]},
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c2", "content": "x7000", "cache_control": {"type": "ephemeral"}}],
    },
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c4", "name": "Bash", "input": {"command": "ls"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c4", "content": "x30", "cache_control": {"type": "ephemeral"}}]},
]


class Edited:
    """An editor that does what it is told, and keeps what it was given."""

    def __init__(self, change: Callable[[Messages], Messages]) -> None:
        self.change = change
        self.given: list[Messages] = []

    def edit(self, messages: Messages) -> tuple[Messages, float]:
        self.given.append(messages)
        return self.change(messages), 1.0


def with_text(text: str) -> Callable[[Messages], Messages]:
    """Change the text of the first result."""
    result = {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": text}]}
    return lambda messages: [*messages[:2], {"role": "user", "content": [result]}, *messages[3:]]


def shown_as(text: str) -> tuple[Item, ...]:
    return (*ITEMS[:2], replace(ITEMS[2], mask=Cover(text)), *ITEMS[3:])


def test_items_become_messages_with_the_breakpoints_of_a_client() -> None:
    assert message_list(ITEMS) == GIVEN
    assert message_list(shown_as("[cut]"))[2]["content"][0]["content"] == "[cut]"
    assert message_list(shown_as("[cut]"), frozenset({"3.0"})) == GIVEN


def test_a_list_that_comes_back_as_it_was_is_no_edit() -> None:
    assert PeerPolicy(Edited(lambda messages: messages)).plan(situation(ITEMS)) == ()


def test_a_result_that_a_peer_shortens_is_masked_once_and_unmasked_when_it_comes_back() -> None:
    editor = Edited(with_text("[cut]"))
    policy = PeerPolicy(editor)
    first = policy.plan(situation(ITEMS))
    same = policy.plan(situation(shown_as("[cut]")))
    editor.change = with_text("[shorter]")
    other = policy.plan(situation(shown_as("[cut]")))
    editor.change = lambda messages: messages
    back = policy.plan(situation(shown_as("[shorter]")))

    assert first == Proposal((Mask(("3.0",), "[cut]"),), "what the peer forwards")
    assert same == ()
    assert other == Proposal((Mask(("3.0",), "[shorter]"),), "what the peer forwards")
    assert back == Proposal((Unmask(("3.0",)),), "what the peer forwards")
    # A peer is given what its client sends: the original.
    assert editor.given == [GIVEN] * 4


def test_a_result_that_a_peer_drops_is_shown_as_left_out() -> None:
    policy = PeerPolicy(Edited(lambda messages: messages[3:]))
    assert policy.plan(situation(ITEMS)) == Proposal((Mask(("3.0",), DROPPED),), "what the peer forwards")
    assert policy.left_out == 1


def test_what_the_client_has_masked_is_not_touched() -> None:
    editor = Edited(with_text("[cut]"))
    assert PeerPolicy(editor).plan(situation(shown_as("[cleared by the client]"))) == ()
    assert editor.given[0][2]["content"][0]["content"] == "[cleared by the client]"


@pytest.fixture
def python(tmp_path: Path) -> str:
    """A Python with a peer of the name `llmtrim`, which cuts results after 5 characters, and fails for a single message."""
    packages = tmp_path / "packages"
    (packages / "llmtrim-9.1.dist-info").mkdir(parents=True)
    (packages / "llmtrim-9.1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: llmtrim\nVersion: 9.1\n")
    (packages / "llmtrim.py").write_text(
        "import json, types\n"
        "Provider = types.SimpleNamespace(ANTHROPIC=1)\n"
        "def compress(body, provider, preset):\n"
        "    print('noise on standard output')\n"
        "    messages = json.loads(body)['messages']\n"
        "    if len(messages) == 1: raise ValueError('too short')\n"
        "    for message in messages:\n"
        "        for block in message['content']:\n"
        "            if 'content' in block: block['content'] = block['content'][:5]\n"
        "    return types.SimpleNamespace(request_json=json.dumps({'messages': messages}))\n"
    )
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{packages}" exec "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    return str(script)


def test_a_peer_edits_lists_in_a_python_of_its_own_and_a_list_that_it_cannot_edit_stays_as_it_is(python: str) -> None:
    with PeerProcess("llmtrim", python) as peer:
        edited, ms = peer.edit(
            [*GIVEN[:2], {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c2", "content": "123456"}]}]
        )
        failed, _ = peer.edit(GIVEN[:1])
        assert (peer.version, peer.failures) == ("9.1", 1)

    assert edited[2]["content"][0]["content"] == "12345"
    assert failed == GIVEN[:1]
    assert ms > 0


def test_a_peer_that_is_not_installed_has_no_version() -> None:
    with PeerProcess("llmtrim", sys.executable) as peer:
        assert peer.version == ""


def test_a_peer_that_has_ended_leaves_lists_as_they_are() -> None:
    with PeerProcess("llmtrim", sys.executable) as peer:
        assert [peer.edit(GIVEN) for _ in range(2)] == [(GIVEN, 0.0), (GIVEN, 0.0)]
        assert peer.failures == 2
