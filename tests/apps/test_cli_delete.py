from pal_runs import SMALL, Pal, small


def test_a_session_is_deleted_only_when_one_says_so(pal: Pal) -> None:
    small(pal.home)
    asked = pal("delete", SMALL)
    assert (asked.exit_code, asked.stderr.endswith("would be deleted for good; say --yes to do so\n")) == (2, True)
    assert pal.home.shelf.sessions() == [SMALL]
    assert pal.json("delete", SMALL, "--yes") == {"session": SMALL, "deleted": True}
    assert pal.home.shelf.sessions() == []


def test_a_session_that_a_fork_reads_is_kept(pal: Pal) -> None:
    small(pal.home)
    fork = pal("fork", SMALL).stdout.strip()
    refused = pal("delete", SMALL, "--yes")
    assert (refused.exit_code, refused.stderr) == (2, f"pal: session {SMALL} is read by its forks {fork}; delete those first\n")
    assert pal.home.shelf.sessions() == sorted([SMALL, fork])
