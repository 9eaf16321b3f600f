"""How a desktop is notified, by what there is."""

from pal.terminal.programs import desktop_command


def present(name: str) -> str:
    return f"/usr/bin/{name}"


def test_a_linux_desktop_is_notified_by_its_program_with_the_text_as_one_word() -> None:
    assert desktop_command("it's $done", "linux", {"DISPLAY": ":0"}, present) == "/usr/bin/notify-send -- pal 'it'\"'\"'s $done'"


def test_a_mac_is_notified_by_a_script_in_which_quotes_are_escaped() -> None:
    expected = '/usr/bin/osascript -e \'display notification "say \\"hi\\"" with title "pal"\''
    assert desktop_command('say "hi"', "darwin", {}, present) == expected


def test_over_ssh_without_a_display_or_without_a_program_the_terminal_is_used() -> None:
    assert desktop_command("x", "linux", {"DISPLAY": ":0", "SSH_CONNECTION": "a"}, present) is None
    assert desktop_command("x", "linux", {}, present) is None
    assert desktop_command("x", "linux", {"DISPLAY": ":0"}, lambda _: None) is None
