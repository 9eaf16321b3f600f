"""Citation blocks of Codex are taken out of what is shown, and notes that a reply cites are found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.agent.note_citations import CitationFilter, Uncited, cited_notes, without_citations

ONE, TWO = "0194f5a6-89ab-7cde-8123-456789abcdef", "01a1ddf5-2e2f-7100-9d45-93fb0cf6fa03"
BLOCK = (
    "<oai-mem-citation>\n<citation_entries>\nMEMORY.md:3-9|note=[the port]\nnotes/project_port.md:1-2|note=[it]\n</citation_entries>\n"
    f"<rollout_ids>\n{ONE}\nnot an id\n{TWO}\n{ONE}\n</rollout_ids>\n</oai-mem-citation>"
)


@pytest.mark.states("CX-60")
def test_a_citation_block_is_not_shown_and_its_ids_count_once() -> None:
    assert without_citations(f"The port is 9090.\n\n{BLOCK}\n") == Uncited(
        "The port is 9090.", (ONE, TWO), ("MEMORY.md", "notes/project_port.md")
    )
    other = BLOCK.replace("rollout_ids", "thread_ids")
    assert without_citations(f"One {other} two") == Uncited("One  two", (ONE, TWO), ("MEMORY.md", "notes/project_port.md"))


@pytest.mark.states("CX-60")
def test_a_block_that_is_cut_off_is_not_shown_either() -> None:
    whole = f"The port is 9090.\n{BLOCK}"
    for end in range(len("The port is 9090.\n<oa"), len(whole)):
        assert without_citations(whole[:end]).text.rstrip() == "The port is 9090.", end
    assert without_citations(whole[: whole.index(TWO)]).ids == (ONE,)
    assert without_citations("if a <").text == "if a <"
    assert without_citations("plain text\n").text == "plain text\n"


@given(
    st.lists(st.sampled_from(("a ", "<", "oai", "<oai-mem-citation>", "</oai-mem-citation>", BLOCK, "x < y\n", "<b>"))), st.integers(1, 9)
)
@pytest.mark.states("CX-60")
def test_a_stream_shows_what_the_whole_text_shows(pieces: list[str], size: int) -> None:
    text = "".join(pieces)
    shows = CitationFilter()
    shown = "".join(shows.feed(text[at : at + size]) for at in range(0, len(text), size)) + shows.end()
    assert shown.rstrip() == without_citations(text).text.rstrip()


def test_notes_are_cited_by_their_name_in_brackets_or_their_file() -> None:
    names = ("project_port", "user_name", "feedback_tabs")
    assert cited_notes("As [user_name] says, not feedback_tabs. [unknown_note]", names) == {"user_name"}
    assert cited_notes(f"yes {BLOCK}", names) == {"project_port"}
