from pathlib import Path

from pal_runs import LONG, SMALL, Pal, long, small


def _damage(pal: Pal, old: bytes, new: bytes) -> Path:
    path = pal.home.store.path_of(SMALL)
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    return path


def test_a_whole_log_is_verified(pal: Pal) -> None:
    small(pal.home)

    assert pal.json("verify", SMALL) == {"ok": True, "events": 14, "errors": [], "repaired": False, "session": SMALL, "redacted": []}
    assert pal("verify", SMALL).stdout == f"ok    {SMALL}  14 events\n"


def test_a_changed_word_is_found_and_named(pal: Pal) -> None:
    small(pal.home)
    path = _damage(pal, b"What is in a.py?", b"What is in b.py?")
    found = pal.json("verify", str(path), code=1)

    assert (found["ok"], found["events"], found["repaired"]) == (False, 14, False)
    assert [error["kind"] for error in found["errors"]] == ["hash"]
    assert found["errors"][0]["where"].startswith(f"{path}, byte ")


def test_a_repair_keeps_the_damaged_file_and_leaves_a_log_that_verifies(pal: Pal) -> None:
    small(pal.home)
    path = _damage(pal, b'"type":"tool_started"', b'"type":"tool_st\xffrted"')
    damaged = path.read_bytes()
    repaired = pal.json("verify", SMALL, "--repair")

    assert (repaired["ok"], repaired["repaired"]) == (True, True)
    assert Path(repaired["copy"]).read_bytes() == damaged
    assert pal("verify", SMALL).exit_code == 0
    assert pal("show", SMALL).exit_code == 0


def test_a_torn_last_line_is_a_finding_until_it_is_repaired(pal: Pal) -> None:
    small(pal.home)
    path = pal.home.store.path_of(SMALL)
    with path.open("ab") as file:
        file.write(b'{"seq":14,"parent":13,"at"')

    assert [error["kind"] for error in pal.json("verify", SMALL, code=1)["errors"]] == ["torn"]
    assert pal("verify", SMALL, "--repair").exit_code == 0
    assert pal.json("verify", SMALL)["ok"] is True


def test_all_sessions_are_verified_when_none_is_named(pal: Pal) -> None:
    small(pal.home)
    long(pal.home, events=60)
    _damage(pal, b"Be brief.", b"Be grief.")
    found = pal.json("verify", code=1)

    assert (found["ok"], found["events"]) == (False, 75)
    assert [(each["session"], each["ok"]) for each in found["sessions"]] == [(SMALL, False), (LONG, True)]
    assert pal.json("verify", str(pal.home.store.folder), code=1) == found


def test_a_repair_needs_a_session_or_all(pal: Pal) -> None:
    small(pal.home)
    result = pal("verify", "--repair")

    assert result.exit_code == 2
    assert result.stderr == "pal: verify: --repair needs a session, or --all; see `pal verify --help`\n"


def test_a_missing_blob_is_found_and_no_repair_claims_to_mend_it(pal: Pal) -> None:
    small(pal.home)
    for address in list(pal.home.blobs.addresses()):
        pal.home.blobs.path(address).unlink()
    result = pal("verify", SMALL, "--repair")

    assert result.exit_code == 1
    assert "1 findings remain that cannot be repaired" in result.stdout


def test_something_that_is_no_log_at_all_is_a_finding_and_no_crash(pal: Pal) -> None:
    small(pal.home)
    pal.home.store.path_of("noise").write_bytes(bytes(range(256)) * 40)
    pal.home.store.path_of("empty").write_bytes(b"")

    assert pal("verify", "noise").exit_code == 1
    assert [error["kind"] for error in pal.json("verify", "empty", code=1)["errors"]][:1] == ["empty"]
    assert pal("verify", "--all").exit_code == 1


def test_an_empty_home_has_nothing_to_verify(pal: Pal) -> None:
    assert pal("verify").stdout == "no sessions to verify\n"
