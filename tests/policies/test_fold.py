"""A fold that is computed from the log: what stays, in which order, and when it happens."""

from workplace import offline, say, use, work

from palimpsest.core.edits import Fold
from palimpsest.core.events import ViewEdited
from palimpsest.engine.moments import look
from palimpsest.profiles.named import profile


def test_a_fold_that_is_asked_for_keeps_what_the_user_said_and_the_last_round() -> None:
    session = work(profile("palimpsest"))
    say(session, "read all of it, and never touch a.py")
    for number in range(30):
        use(session, f"c{number}", "Read", f'{{"file_path":"f{number}.py"}}', f"value_{number} = 1\n" * 400)
    looked = offline(session, look(session, "asked"))
    body = looked.edited[0].body
    assert isinstance(body, ViewEdited)
    assert isinstance(body.edits[0], Fold)
    assert body.tokens_after < body.tokens_before / 2
    assert session.log.view.items[0].id == "1.0"
    assert session.log.view.ids[-2:] == ("90.0", "91.0")
    assert offline(session, look(session, "asked")).events == ()
