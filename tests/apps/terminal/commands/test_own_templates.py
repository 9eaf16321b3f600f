"""Command files as values: their fields, arguments in their places, and the commands inside of them."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pal.terminal.own_commands import (
    CommandFolder,
    OwnCommand,
    command_folders,
    filled,
    find_own_commands,
    read_own_command,
    shell_lines,
    with_outputs,
)


def command(body: str) -> OwnCommand:
    return OwnCommand("name", "user", "", "", body, "")


def test_a_file_without_front_matter_is_helped_by_its_first_line() -> None:
    assert read_own_command("fix", "project", "\n# Fix it\n\nNow.\n", "p") == OwnCommand(
        "fix", "project", "Fix it", "", "# Fix it\n\nNow.", "p"
    )


def test_an_empty_file_and_a_name_that_cannot_be_typed_are_no_commands() -> None:
    assert read_own_command("a", "user", "---\ndescription: d\n---\n\n", "p") is None
    assert read_own_command("two words", "user", "text", "p") is None


def test_arguments_stand_in_their_places_and_missing_ones_are_empty() -> None:
    assert filled(command("$1-$2-$10 $ARGUMENTS $1x $$"), "a 'b c'") == "a-b c- a 'b c' $1x $$"


def test_without_a_place_the_arguments_follow_the_body() -> None:
    assert filled(command("Do it."), "soon") == "Do it.\n\nsoon"
    assert filled(command("Do it."), "") == "Do it."


def test_an_apostrophe_in_a_sentence_is_no_quote() -> None:
    assert filled(command("[$1][$2]"), "don't stop") == "[don't][stop]"


@given(st.text(max_size=50))
def test_what_stands_in_an_argument_is_never_replaced_again(argument: str) -> None:
    assert filled(command("<$ARGUMENTS>"), f"$1 {argument}") == f"<$1 {argument}>"


def test_commands_inside_of_a_text_are_found_and_replaced_by_their_output() -> None:
    text = "a !`git status` b !`ls` c !`git status` `no`"
    assert shell_lines(text) == ("git status", "ls")
    assert with_outputs(text, {"git status": "clean"}) == "a clean b (run `ls` with bash and use its output) c clean `no`"


def test_the_users_own_files_win_and_links_out_of_a_project_are_left_out(tmp_path: Path) -> None:
    home, project, secret = tmp_path / "home", tmp_path / "project", tmp_path / "secret.md"
    for folder in (home / ".palimpsest" / "commands", project / ".claude" / "commands"):
        folder.mkdir(parents=True)
    secret.write_text("secret")
    (home / ".palimpsest" / "commands" / "fix.md").write_text("mine")
    (project / ".claude" / "commands" / "fix.md").write_text("theirs")
    (project / ".claude" / "commands" / "link.md").symlink_to(secret)
    found = find_own_commands(command_folders(home / ".palimpsest", home, project, {}))
    assert {name: (each.scope, each.body) for name, each in found.items()} == {"fix": ("user", "mine")}


def test_a_project_that_is_the_home_folder_has_no_commands_of_a_project(tmp_path: Path) -> None:
    folders = command_folders(None, tmp_path, tmp_path, {"CODEX_HOME": str(tmp_path / "codex")})
    assert [folder for folder in folders if folder.path == tmp_path / ".claude/commands"] == [
        CommandFolder(tmp_path / ".claude/commands", "user")
    ]
    assert CommandFolder(tmp_path / "codex" / "prompts", "user") in folders
