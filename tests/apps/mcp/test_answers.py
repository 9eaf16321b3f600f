"""What the tools and resources of the MCP server answer."""

from pathlib import Path

import pytest

from pal.mcp.answers import Answers, OfferedResource, answer_or_error
from palimpsest.core.events import ModelReplied, ToolReturned, UserSaid
from palimpsest.core.items import Text, ToolCall, ToolResult
from palimpsest.memory.notebook import Memories, memories_of
from palimpsest.memory.session_memory import project_memory
from palimpsest.memory.writing import NewNote, add_note
from palimpsest.stores.home import FolderHome
from palimpsest.stores.in_memory import FixedClock
from palimpsest.stores.memory_config import MemoryConfig

NOW = 1_780_000_000_000
READING = ["recall", "search_sessions", "show_item", "list_notes"]
SAID = "Please always run the suite with tox -e py311 before a push."


class Place:
    """A home with one session and one note of a project, and the answers about it."""

    def __init__(self, folder: Path, *, write: bool = False) -> None:
        self.home = FolderHome(folder / "home", FixedClock(NOW))
        self.root = folder / "project"
        self.root.mkdir()
        with self.home.new(cwd=str(self.root)) as log:
            self.session = log.session
            log.append(UserSaid((Text(SAID),)))
            log.append(ModelReplied((ToolCall("c1", "bash", '{"command":"tox -e py311"}'),)))
            log.append(ToolReturned(ToolResult("c1", (Text("x" * 30_000 + " 14 passed"),)), "bash"))
        memory = project_memory(self.home, self.root, MemoryConfig())
        assert memory is not None
        self.memories: Memories = memory.memories
        add_note(self.memories.project, NewNote(kind="project", text="The release branch is called stable."), "2026-05-28T20:26:40+00:00")
        self.answers = Answers(self.home, self.root, memory, write=write)

    def call(self, tool: str, /, **arguments: object) -> tuple[str, bool]:
        return answer_or_error(self.answers, tool, arguments)


@pytest.mark.states("MI-14")
def test_a_server_that_only_reads_offers_no_tool_that_changes_notes(tmp_path: Path) -> None:
    place = Place(tmp_path)

    assert list(place.answers.tools) == READING
    assert place.call("forget", name="project_the_release_branch_is_called_stable") == (
        "there is no tool 'forget' here; this server only reads; `pal mcp --write` lets it change notes",
        True,
    )
    assert [note.name for _, note in place.memories.active()] == ["project_the_release_branch_is_called_stable"]


@pytest.mark.states("MI-14")
def test_a_search_names_items_and_sessions_which_show_item_shows_in_pieces(tmp_path: Path) -> None:
    place = Place(tmp_path)
    found, failed = place.call("search_sessions", words="tox push")
    whole, _ = place.call("show_item", id="1.0", session=place.session)
    piece, _ = place.call("show_item", id="3.0", session=place.session)
    rest, _ = place.call("show_item", id="3.0", session=place.session, offset=20_000)

    assert not failed
    assert found.startswith(f"1.0 of session {place.session}, user, ")
    assert whole.splitlines()[1:] == [SAID]
    assert piece.endswith("[bytes 0 to 20,000 of 30,010; go on with offset 20000]")
    assert rest.endswith(" 14 passed")


@pytest.mark.states("MI-14")
def test_recall_answers_from_notes_and_past_sessions_and_names_both(tmp_path: Path) -> None:
    place = Place(tmp_path)

    assert "[project_the_release_branch_is_called_stable]" in place.call("recall", query="which branch is the release made from?")[0]
    assert f"{place.session}:1" in place.call("recall", query="how do I run the suite before a push?")[0]


def test_a_note_of_another_programs_model_is_held_back_unless_it_quotes_the_user(tmp_path: Path) -> None:
    place = Place(tmp_path, write=True)
    held = place.call("remember", text="The tests run with make check.")
    said = place.call("remember", text=SAID, kind="feedback", quote="always run the suite with tox -e py311", session=place.session)
    wrong = place.call("remember", text="Never test.", kind="feedback", quote="never test anything", session=place.session)

    name = "project_the_tests_run_with_make_check"
    advice = f"so it is not used until the user runs `pal memory promote {name}`."
    assert held == (f"Held as {name}: it may come from outside, {advice}", False)
    assert said[0].startswith("Saved as feedback_")
    assert ", stated)" in said[0]
    assert wrong == ("the quotation is not in this session; copy at most 25 words verbatim, or leave it out", True)
    listed = place.call("list_notes")[0].splitlines()
    assert [line.partition(" ")[0] for line in listed] == [note.name for _, note in place.memories.active()]
    assert len(listed) == 2


@pytest.mark.states("MI-14")
def test_what_is_forgotten_is_gone(tmp_path: Path) -> None:
    place = Place(tmp_path, write=True)

    assert place.call("forget", name="project_the_release_branch_is_called_stable") == (
        "Forgotten for good: project_the_release_branch_is_called_stable.",
        False,
    )
    assert place.call("list_notes") == ("there are no notes", False)


def test_resources_are_the_sessions_of_the_project_and_its_notes(tmp_path: Path) -> None:
    place = Place(tmp_path)
    note = "project_the_release_branch_is_called_stable"
    offered = place.answers.resources()

    assert offered == [
        OfferedResource(f"pal://session/{place.session}", place.session, f"2026-05-28 20:26 {SAID}"),
        OfferedResource(f"pal://note/{note}", note, "The release branch is called stable."),
    ]
    assert SAID in place.answers.read(offered[0].uri)
    assert "The release branch is called stable." in place.answers.read(offered[1].uri)


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("recall", {}, "the arguments of recall are not valid: Object missing required field `query`"),
        ("recall", {"query": "x", "more": 1}, "the arguments of recall are not valid: Object contains unknown field `more`"),
        ("show_item", {"id": "1.0", "session": "none"}, "there is no session 'none'; search_sessions names them"),
        ("show_item", {"id": "no_note"}, "there is no note 'no_note'; for an item of a session, name the `session` too"),
        ("show_item", {"id": "99.0", "session": ""}, "there is no note '99.0'; for an item of a session, name the `session` too"),
        ("delete_all", {}, "there is no tool 'delete_all' here; tools/list names them"),
    ],
)
def test_a_call_that_asks_for_what_is_not_there_is_an_error_with_advice(
    name: str, arguments: dict[str, object], words: str, tmp_path: Path
) -> None:
    assert Place(tmp_path).call(name, **arguments) == (words, True)


def test_without_memory_sessions_can_be_searched_and_nothing_be_remembered(tmp_path: Path) -> None:
    place = Place(tmp_path)
    answers = Answers(place.home, place.root, None, write=True)

    assert list(answers.tools) == READING
    assert answer_or_error(answers, "search_sessions", {"words": "nothing like it"}) == ("nothing was found", False)
    assert answer_or_error(answers, "recall", {"query": "x"})[1]
    assert memories_of(place.home, place.root) is not None
