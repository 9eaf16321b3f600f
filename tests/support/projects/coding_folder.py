"""A folder with two sessions of a coding agent: an error that is fixed, and an equal error elsewhere on the next day."""

from pathlib import Path

from claude_session import Line, call, prompt, reply, result, text, written

FIXED = "11111111-2222-3333-4444-555555555555"
LATER = "66666666-7777-8888-9999-000000000000"


def write_sessions(folder: Path) -> Path:
    """Write the sessions and return the folder."""
    written(folder, *_fixed(), name=FIXED)
    written(folder, *_later(), name=LATER)
    return folder


def _run(session: str, number: int, parent: str, command: str, output: str, *, day: int, failed: bool = False) -> list[Line]:
    at = {"sessionId": session, "timestamp": f"2026-01-{day:02d}T03:{number:02d}:00.000Z"}
    answer = {"sessionId": session, "timestamp": f"2026-01-{day:02d}T03:{number:02d}:30.000Z"}
    asked = reply(f"a{number}", parent, f"m{number}", call(f"c{number}", command=command), **at)
    back = result(f"r{number}", f"a{number}", f"c{number}", f"Exit code 2\n{output}" if failed else output, **answer)
    back["message"]["content"][0]["is_error"] = failed
    if not failed:
        # By this the program says that the command succeeded.
        back["toolUseResult"] = {"stdout": output, "stderr": "", "interrupted": False, "isImage": False}
    return [asked, back]


def _fixed() -> list[Line]:
    at = {"sessionId": FIXED}
    edit = call("c3", "Edit", file_path="/repo/src/window.c", old_string="a", new_string="b")
    return [
        prompt("u1", None, "please build the window", timestamp="2026-01-02T03:01:00.000Z", **at),
        *_run(FIXED, 2, "u1", "make", "src/window.c:7: error: unknown type name 'foo'", day=2, failed=True),
        reply("a3", "r2", "m3", text("A header is missing there."), edit, timestamp="2026-01-02T03:03:00.000Z", **at),
        result("r3", "a3", "c3", "done", timestamp="2026-01-02T03:03:30.000Z", **at),
        *_run(FIXED, 4, "r3", "make", "fine", day=2),
        reply("a5", "r4", "m5", text("The window is built."), timestamp="2026-01-02T03:05:00.000Z", **at),
    ]


def _later() -> list[Line]:
    at = {"sessionId": LATER}
    return [
        prompt("u1", None, "now the door", timestamp="2026-01-03T03:01:00.000Z", **at),
        *_run(LATER, 2, "u1", "make door", "lib/door.c:99: error: unknown type name 'bar'", day=3, failed=True),
        reply("a3", "r2", "m3", text("I will look."), timestamp="2026-01-03T03:03:00.000Z", **at),
    ]
