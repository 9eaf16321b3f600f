import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from pal.cli.picker import pick

ROWS = [("a", "aaaa  shop  Fix the parser"), ("b", "bbbb  web  Fix the tests"), ("c", "cccc  shop  Look around")]


@pytest.mark.parametrize(
    ("keys", "value"),
    [("\r", "a"), ("\x1b[B\x1b[B\r", "c"), ("fix web\r", "b"), ("shop\x1b[B\r", "c"), ("shop\x03", None), ("nothing\r\x04", None)],
    ids=["enter", "arrows", "filtered", "filtered and moved", "left", "nothing to take"],
)
def test_a_row_is_filtered_for_and_taken(keys: str, value: str | None) -> None:
    with create_pipe_input() as typed, create_app_session(input=typed, output=DummyOutput()):
        typed.send_text(keys)
        assert pick("Which?", ROWS) == value
