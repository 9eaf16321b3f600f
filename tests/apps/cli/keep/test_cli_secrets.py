"""`pal secrets`: what looks like a secret in sessions, where it stands, and never the secret itself."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from pal_runs import SMALL, Pal, small
from secret_sets import innocents, planted

from pal.cli.export import FORMS
from palimpsest.core.events import ModelReplied, SessionOpened, Titled, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.log import Log
from palimpsest.core.redaction import find_secrets
from palimpsest.exchange.importing import Cursors, SourceCursor
from palimpsest.stores.home import Home
from palimpsest.stores.in_memory import FixedClock

TOKEN = "ghp_" + "a1B2" * 9
PASSWORD = "Bramble.Tin7"
BEGAN = 1_932_800_500_000


def _row(event: int, kind: str, masked: str, item: str, line: int, *, certain: bool) -> dict[str, Any]:
    where = f"item {item}, line {line}" if item else f"event {event}, outside of items"
    return {"session": "s", "event": event, "class": kind, "masked": masked, "where": where, "item": item, "line": line, "certain": certain}


def _session(home: Home, name: str, *texts: str) -> None:
    with Log.create(home.store, SessionOpened(name), FixedClock(BEGAN, 1_000)) as log:
        for text in texts:
            log.append(UserSaid((Text(text),)))
        log.sync()


def _exported(pal: Pal, form: str, *words: str) -> Result:
    """An export with all that was said, after a reply to it: spans have what their calls were sent."""
    with Log.open(pal.home.store, "s", FixedClock(BEGAN + 9_000_000, 1_000), write=True) as log:
        if not isinstance(log.event(log.tip).body, ModelReplied):
            log.append(ModelReplied((Text("Noted.", "assistant"),)))
    return pal("export", "s", "--to", form, *(["--content"] if form == "otel" else []), *words)


@pytest.fixture
def leaked(pal: Pal) -> Pal:
    """A session with a token on the third line of a message, the same in its title, and a guess; and a session without secrets."""
    _session(pal.home, "s", f"one\ntwo\nuse {TOKEN}", f'"password": "{PASSWORD}"')
    with Log.open(pal.home.store, "s", FixedClock(BEGAN + 9_000, 1_000), write=True) as log:
        log.append(Titled(f"about {TOKEN}"))
        log.sync()
    small(pal.home)
    return pal


def test_secrets_are_listed_with_place_and_class_and_masked(leaked: Pal) -> None:
    rows = [
        _row(1, "github", "ghp_… (40 characters)", "1.0", 3, certain=True),
        _row(2, "assignment", "… (12 characters)", "2.0", 1, certain=False),
        _row(3, "github", "ghp_… (40 characters)", "", 0, certain=True),
    ]
    assert leaked.json("secrets", "s", code=1) == rows
    assert leaked.json("secrets", code=1) == rows
    assert leaked.json("secrets", "--all", code=1) == rows
    assert leaked.json("secrets", SMALL) == []


def test_people_read_the_places_and_never_the_secrets(leaked: Pal) -> None:
    shown = leaked("secrets", "s", COLUMNS="120")
    words = [line.split() for line in shown.stdout.splitlines()]
    assert (shown.exit_code, words[0]) == (1, ["session", "event", "class", "text", "where"])
    assert words[1] == ["s", "1", "github", "ghp_…", "(40", "characters)", "item", "1.0,", "line", "3"]
    assert words[2] == ["s", "2", "assignment", "(guess)", "…", "(12", "characters)", "item", "2.0,", "line", "1"]
    assert (TOKEN in shown.stdout, PASSWORD in shown.stdout) == (False, False)

    clean = leaked("secrets", SMALL)
    assert (clean.exit_code, clean.stdout) == (0, "no secrets found\n")


def test_either_sessions_or_all_are_searched_and_an_unknown_one_is_an_error(leaked: Pal) -> None:
    assert leaked("secrets", "s", "--all").exit_code == 2
    assert leaked("secrets", "nowhere").exit_code == 2


def test_a_damaged_log_is_named_and_the_others_are_searched(leaked: Pal) -> None:
    path = Path(leaked.home.store.stat(SMALL).name)
    path.write_bytes(path.read_bytes() + b'{"seq": 99, "text": "' + TOKEN.encode() + b'"}\n')
    shown = leaked("secrets", "--json")
    assert shown.exit_code == 1
    assert SMALL in shown.stderr
    assert TOKEN not in shown.stdout + shown.stderr
    assert shown.stdout.count('"session":"s"') == 3


@pytest.mark.parametrize(
    ("secrets", "state", "code"), [({"assignment": 3, "cookie": 1}, "ok", 0), ({"assignment": 3, "github": 1}, "warn", 1), ({}, "ok", 0)]
)
def test_the_doctor_reports_guesses_and_fails_only_for_what_is_certain(pal: Pal, secrets: dict[str, int], state: str, code: int) -> None:
    small(pal.home)
    cursors = Cursors.load(pal.home.imports)
    cursors.put(SourceCursor("claude", "a.jsonl", "a", SMALL, secrets=secrets))
    cursors.save()
    check = next(check for check in pal.json("doctor", code=code)["checks"] if check["name"] == "secrets")
    assert check["state"] == state
    assert [f"{kind} {count}" in check["message"] for kind, count in secrets.items()] == [True] * len(secrets)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_export_is_free_of_the_secrets_that_are_found(pal: Pal, form: str) -> None:
    texts = [sample.text for sample in planted()]
    found = {text[hit.start : hit.end] for text in texts for hit in find_secrets(text)}
    _session(pal.home, "s", *texts)
    exported = _exported(pal, form, "--redact")
    assert exported.exit_code == 0
    assert [value for value in sorted(found) if len(value) > 6 and value in exported.stdout] == []
    assert exported.stdout.count("[REDACTED:") >= len(texts) * 0.95


@pytest.mark.parametrize("form", FORMS)
def test_redacting_an_export_without_secrets_changes_no_byte(pal: Pal, form: str) -> None:
    _session(pal.home, "s", *(sample.text for sample in innocents()), "\n".join(sample.text for sample in innocents()))
    plain, cleaned = (_exported(pal, form, *words).stdout for words in ((), ("--redact",)))
    assert cleaned == plain
