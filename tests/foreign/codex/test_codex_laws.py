import json
import os
from pathlib import Path

import pytest
from codex_homes import CODEX, GOLDEN, PUBLIC, SESSION, imported
from corpus import WITHOUT
from every_case import every_case
from readings import Home, check_growth, check_repeat, faults, own_ids
from readings import called as calls_of
from readings import returned as results_of
from readings import said as said_in
from rollouts import answered, called, context, counted, ended, items, meta, output, read, said, spoken, started, write

from palimpsest.core.events import Body, ModelReplied
from palimpsest.core.items import Text, text_of
from palimpsest.core.log import Log
from palimpsest.core.verify import verify
from palimpsest.stores.in_memory import FixedClock

needs_corpus = pytest.mark.skipif(not PUBLIC, reason=WITHOUT)


@every_case("path", [*GOLDEN, *PUBLIC])
def test_no_message_call_or_result_is_lost_or_read_twice(path: Path) -> None:
    home, session = imported(path)
    told = home.bodies(session)
    base = len(said_in(told)) - len(spoken(path))
    kinds = {"function_call", "custom_tool_call", "local_shell_call", "tool_search_call"}
    outputs = {"function_call_output", "custom_tool_call_output", "tool_search_output"}
    assert said_in(told)[base:] == spoken(path)
    if "history_base" not in json.dumps(read(path)[0]):
        assert base == 0
        calls, results = own_ids(told)
        assert calls == [each["call_id"] for each in items(path) if each["type"] in kinds]
        assert sorted(results) == sorted(each["call_id"] for each in items(path) if each["type"] in outputs)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem[-12:])
def test_the_view_at_every_event_is_a_request_that_every_provider_takes(path: Path) -> None:
    home, session = imported(path)
    assert faults(home, session) == []


@needs_corpus
@pytest.mark.parametrize("path", PUBLIC, ids=lambda path: path.stem[-12:])
def test_views_of_public_sessions_are_requests_that_every_provider_takes(path: Path) -> None:
    home, session = imported(path)
    assert faults(home, session, every=97) == []


@pytest.mark.parametrize("path", [*GOLDEN, *PUBLIC[:1]], ids=lambda path: path.stem[-12:])
def test_importing_again_changes_nothing(path: Path) -> None:
    check_repeat(CODEX, path)


@pytest.mark.parametrize("path", [*GOLDEN, *PUBLIC[-1:]], ids=lambda path: path.stem[-12:])
def test_a_rollout_that_grows_gives_the_log_of_the_whole_one(path: Path, tmp_path: Path) -> None:
    check_growth(CODEX, path, tmp_path)


def test_an_incomplete_reply_of_an_idle_file_is_read_and_its_later_lines_are_not_lost(tmp_path: Path) -> None:
    lines = [meta(), started(), context(), said("go"), answered("I look."), called("a"), output("a"), counted(110, 100), ended()]
    path = write(tmp_path, *lines[:5])
    os.utime(path, (1, 1))
    home = Home()
    home.take(CODEX, path)
    assert [body.parts for body in home.bodies(SESSION) if isinstance(body, ModelReplied)] == [(Text("I look.", "assistant"),)]
    write(tmp_path, *lines)
    home.take(CODEX, path)
    told = home.bodies(SESSION)
    assert (said_in(told), calls_of(told), results_of(told)) == (["go"], ["a"], ["a"])
    assert [body.usage.prompt for body in told if isinstance(body, ModelReplied)] == [0, 100]
    assert faults(home, SESSION) == []
    events = len(told)
    home.take(CODEX, path)
    assert len(home.bodies(SESSION)) == events


@pytest.mark.parametrize("path", [path for path in GOLDEN if "47-36" not in path.name], ids=lambda path: path.stem[-12:])
def test_a_quiet_rollout_that_grows_in_many_steps_loses_and_repeats_nothing(path: Path, tmp_path: Path) -> None:
    whole, session = imported(path)
    data = path.read_bytes()
    home, target = Home(), tmp_path / path.name
    for part in range(data.index(b"\n") + 1, len(data) + 3_000, 3_000):
        target.write_bytes(data[:part])
        os.utime(target, (1, 1))
        home.take(CODEX, target)
    told, expected = home.bodies(session), whole.bodies(session)
    assert (said_in(told), calls_of(told), results_of(told)) == (said_in(expected), calls_of(expected), results_of(expected))
    assert spent(told) == spent(expected)
    assert seen(home, session) == seen(whole, session)
    assert faults(home, session, every=11) == []


def spent(told: list[Body]) -> int:
    return sum(body.usage.total for body in told if isinstance(body, ModelReplied))


def seen(home: Home, session: str) -> list[tuple[str, str]]:
    return [(each.kind, text_of(each.content)) for each in Log.open(home.store, session, FixedClock(1)).view.items]


@pytest.mark.parametrize("path", [path for path in GOLDEN if b"call_output" in path.read_bytes()], ids=lambda path: path.stem[-12:])
def test_a_rollout_of_which_any_lines_are_missing_verifies_right_after_its_import(path: Path, tmp_path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    answer = next(number for number, line in enumerate(lines) if b"call_output" in line)

    for number, trimmed in enumerate((lines[:1] + lines[answer:], lines[: answer - 1] + lines[answer:], lines[: answer + 1])):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / path.name).write_bytes(b"".join(trimmed))
        home = Home()
        (done,) = home.take(CODEX, tmp_path / str(number) / path.name)
        assert verify(home.store, done.session, home.blobs).findings == ()
