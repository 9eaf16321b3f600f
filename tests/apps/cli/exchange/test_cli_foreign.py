from corpus import GOLDEN
from pal_runs import Pal


def test_a_request_of_another_program_is_shown_as_far_as_its_file_tells(pal: Pal) -> None:
    pal("import", str(GOLDEN / "claude" / "2.1.325" / "projects"))
    whole = pal("show", "claude-69901b92", "--request", "5")
    assert (whole.exit_code, whole.stderr) == (0, "what claude-code showed its model at event 53, as far as its file shows\n")


def test_what_the_file_of_another_program_does_not_hold_is_said(pal: Pal) -> None:
    pal("import", str(GOLDEN / "claude" / "2.1.19" / "projects"))
    shown = pal("show", "claude-c5073ae2", "--request", "1")
    assert shown.exit_code == 0
    assert shown.stderr.endswith("as far as its file shows; its file lacks the instructions and the tools\n")
