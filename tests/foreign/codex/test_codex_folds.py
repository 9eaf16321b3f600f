from pathlib import Path
from typing import Any

import pytest
from codex_homes import CODEX, GOLDEN, PUBLIC, SESSION
from corpus import WITHOUT
from readings import Home, faults
from readings import said as said_in
from rollouts import (
    THREAD,
    Line,
    answered,
    called,
    context,
    counted,
    ended,
    event,
    item,
    line,
    message,
    meta,
    output,
    read,
    said,
    started,
    write,
)

from palimpsest.core.events import ModelReplied, Rewound, UserSaid, ViewEdited
from palimpsest.core.items import Fold, Insert, Keep, Opaque, Put, Text, text_of
from palimpsest.core.log import Log
from palimpsest.core.view import View
from palimpsest.stores.in_memory import FixedClock

ENVIRONMENT = "<environment_context>\n<cwd>/repo</cwd>\n</environment_context>"


def logged(path: Path) -> tuple[Home, Log]:
    home = Home()
    *_, done = home.take(CODEX, path)
    assert done.problems == ()
    return home, Log.open(home.store, done.session, FixedClock(1))


def shown(view: View) -> list[tuple[str, str]]:
    return [(each.kind, text_of(each.content)) for each in view.items]


def edits(home: Home, session: str) -> list[ViewEdited]:
    return [body for body in home.bodies(session) if isinstance(body, ViewEdited)]


def compacted(summary: str, *history: Line) -> Line:
    return line("compacted", {"message": summary, "replacement_history": list(history)})


def replayed(path: Path) -> list[str]:
    """What Codex would send after this rollout, by its own rules: the items, replaced whole by each fold."""
    history: list[Any] = []
    for each in read(path):
        payload = each["payload"]
        if each["type"] == "response_item" and payload.get("type") in {"message", "reasoning", "compaction"}:
            history.append(payload)
        elif each["type"] == "response_item" and "call_id" in payload:
            history.append({"content": [{"text": str(payload["call_id"])}]})
        elif each["type"] == "compacted":
            history = payload["replacement_history"]
    return [part["text"] for entry in history for part in entry.get("content") or [] if part.get("text")]


@pytest.mark.parametrize("path", [path for path in GOLDEN if "47-36" not in path.name], ids=lambda path: path.stem[-12:])
def test_the_last_view_of_a_session_is_what_codex_would_send(path: Path) -> None:
    _, log = logged(path)
    mine = [text_of(each.content) for each in log.view.items if each.kind not in {"call", "result", "thinking"} and text_of(each.content)]
    calls = {each.content.call_id for each in log.view.items if hasattr(each.content, "call_id")}
    assert mine == [text for text in replayed(path) if text not in calls and not text.startswith("[image")]


@pytest.mark.skipif(not PUBLIC, reason=WITHOUT)
@pytest.mark.parametrize("path", PUBLIC[:-1], ids=lambda path: path.stem[-12:])
def test_a_fold_keeps_what_is_known_and_stores_only_what_is_new(path: Path) -> None:
    home, log = logged(path)
    for edited in edits(home, log.session):
        (fold,) = edited.edits
        assert isinstance(fold, Fold)
        puts = [piece for piece in fold.into if isinstance(piece, Put)]
        assert [piece for piece in puts if piece.kind == "user"] == []
        assert len([piece for piece in puts if isinstance(piece.content, Opaque)]) <= 1
        assert len(fold.into) > len(puts)
        assert edited.tokens_before > edited.tokens_after > 0


def test_the_folds_of_a_session_say_when_and_what_they_saved() -> None:
    path = next(path for path in GOLDEN if "47-30" in path.name)
    home, log = logged(path)
    assert [(each.by, each.why, each.moment, each.tokens_before, each.tokens_after > 0) for each in edits(home, log.session)] == [
        ("codex", "compaction", "after_call", 100_015, True),
        ("codex", "compaction", "turn_starts", 100_015, True),
        ("codex", "compaction", "asked", 100_015, True),
    ]


def test_a_fold_of_an_old_file_is_rebuilt_from_its_summary(tmp_path: Path) -> None:
    big = "x" * 28_896
    texts = [f"{letter}{big[1:]}" for letter in "abcd"]
    path = write(
        tmp_path,
        meta(),
        *(each for text in texts for each in (said(text), answered("ok"))),
        said("short e"),
        line("compacted", {"message": "PREFIX\nsum"}),
    )
    home, log = logged(path)
    (edited,) = edits(home, SESSION)
    (fold,) = edited.edits
    assert isinstance(fold, Fold)
    cut, *kept, summary = fold.into
    assert isinstance(cut, Put)
    assert text_of(cut.content) == texts[1][:11_100] + "…1674 tokens truncated…" + texts[1][-11_100:]
    assert [text_of(log.view[piece.id].content) for piece in kept if isinstance(piece, Keep)] == [texts[2], texts[3], "short e"]
    assert summary == Put("summary", Text("PREFIX\nsum"))


def test_a_summary_is_known_by_the_fold_that_made_it_and_is_not_kept_by_the_next(tmp_path: Path) -> None:
    first, second = message("user", "PREFIX\none"), message("user", "PREFIX\ntwo")
    path = write(
        tmp_path,
        meta(),
        said("a"),
        answered("b"),
        compacted("PREFIX\none", message("user", "a"), first),
        said("c"),
        compacted("PREFIX\ntwo", message("user", "a"), message("user", "c"), second),
    )
    home, log = logged(path)
    assert shown(log.view) == [("user", "a"), ("user", "c"), ("summary", "PREFIX\ntwo")]
    assert said_in(home.bodies(SESSION)) == ["a", "c"]


def test_a_fold_of_nothing_puts_its_pieces_in_place(tmp_path: Path) -> None:
    home, log = logged(write(tmp_path, meta(), compacted("S", message("user", "S"))))
    assert [each.edits for each in edits(home, SESSION)] == [(Insert((Put("summary", Text("S"), "summary"),)),)]
    assert shown(log.view) == [("summary", "S")]


@pytest.mark.states("CX-65")
def test_resume_yields_the_view_of_the_live_session(tmp_path: Path) -> None:
    for path in GOLDEN:
        home, log = logged(path)
        live = log.view
        log.close()
        again = Log.open(home.store, log.session, FixedClock(1))
        assert again.view == live


@pytest.mark.states("CX-65")
def test_a_fold_after_the_last_turn_context_forces_full_context(tmp_path: Path) -> None:
    opening = [meta(), context(), item(**message("developer", "<permissions instructions>x")), said(ENVIRONMENT), said("a"), answered("b")]
    _, log = logged(write(tmp_path / "one", *opening))
    assert sorted(log.view.facts) == ["environment", "permissions"]
    _, log = logged(write(tmp_path / "two", *opening, compacted("S", message("user", "a"), message("user", "S"))))
    assert log.view.facts == {}


@pytest.mark.states("CX-66")
def test_fork_cuts_strictly_before_the_nth_real_user_message(tmp_path: Path) -> None:
    home, log = logged(write(tmp_path, meta(), context(), said(ENVIRONMENT), said("a"), answered("b"), said("c"), answered("d")))
    cuts = [each.parent for each in log.events() if isinstance(each.body, UserSaid)]
    forks = [log.fork(home.store, f"fork-{cut}", cut).view for cut in cuts]
    assert [shown(view) for view in forks] == [[("context", ENVIRONMENT)], [("context", ENVIRONMENT), ("user", "a"), ("assistant", "b")]]


@pytest.mark.states("CX-66")
def test_a_referenced_fork_reads_the_same_view_as_a_copied_one(tmp_path: Path) -> None:
    other = "01a1ddf6-1c5d-7981-8c3c-46ff52b2b4c8"
    base = [
        meta(),
        context(),
        said("a"),
        called("x"),
        output("x"),
        answered("b"),
        compacted("S", message("user", "a"), message("user", "S")),
        said("late"),
    ]
    numbered = [{**each, "ordinal": place} for place, each in enumerate(base)]
    write(tmp_path / "by-reference", *numbered)
    reference = meta(other, forked_from_id=THREAD, history_base={"thread_id": THREAD, "end_ordinal_exclusive": 7})
    referenced = write(tmp_path / "by-reference", {**reference, "ordinal": 0}, {**said("c"), "ordinal": 1}, thread=other)
    copied = write(tmp_path / "by-copy", meta(other, forked_from_id=THREAD), *base[:7], said("c"), thread=other)
    _, first = logged(referenced)
    _, second = logged(copied)
    assert shown(first.view) == shown(second.view) == [("user", "a"), ("summary", "S"), ("user", "c")]
    assert first.opened.meta["forked_from"] == THREAD


def test_a_real_fork_reads_through_its_base_and_pays_only_for_itself() -> None:
    base = next(path for path in GOLDEN if "47-30" in path.name)
    home, log = logged(next(path for path in GOLDEN if "47-36" in path.name))
    told = home.bodies(log.session)
    assert said_in(told)[-3:] == ["NINTH-USER-MSG after", "TENTH-USER-MSG after manual", "FORK-MSG"]
    assert "AFTER-ROLLBACK-MSG" not in said_in(told)
    _, other = logged(base)
    shared = [pair for pair in shown(other.view) if pair[1] not in {"AFTER-ROLLBACK-MSG", "Rolled back answer."}]
    assert shown(log.view) == [*shared, ("user", "FORK-MSG"), ("assistant", "Forked answer.")]
    assert [body.usage.prompt for body in told if isinstance(body, ModelReplied) and body.usage.prompt] == [15_000]


def test_a_fork_whose_base_is_gone_says_so_and_goes_on(tmp_path: Path) -> None:
    path = write(tmp_path, meta(history_base={"thread_id": "01a1ddf6-1c5d-7981-8c3c-46ff52b2b4c8", "end_ordinal_exclusive": 7}), said("c"))
    home = Home()
    (done,) = home.take(CODEX, path)
    assert [each.why for each in done.problems] == [
        "the rollout of 01a1ddf6-1c5d-7981-8c3c-46ff52b2b4c8, which this one continues, is not beside it"
    ]
    assert said_in(home.bodies(SESSION)) == ["c"]


def turns(*texts: str) -> list[Line]:
    return [each for text in texts for each in (started(), said(text), answered(f"{text}!"), counted(110, 100), ended())]


@pytest.mark.parametrize(("count", "left"), [(1, ["a", "b", "new"]), (2, ["a", "new"]), (3, ["new"]), (9, ["new"])])
@pytest.mark.states("CX-67")
def test_rollback_of_n_turns_keeps_what_preceded_the_first_turn(tmp_path: Path, count: int, left: list[str]) -> None:
    rolled = event("thread_rolled_back", num_turns=count)
    home, log = logged(write(tmp_path, meta(), said(ENVIRONMENT), context(), *turns("a", "b", "c"), rolled, *turns("new")))
    expected = [("context", ENVIRONMENT), *(pair for text in left for pair in (("user", text), ("assistant", f"{text}!")))]
    assert shown(log.view) == expected
    assert sum(isinstance(body, Rewound) for body in home.bodies(SESSION)) == 1
    assert said_in(home.bodies(SESSION)) == ["a", "b", "c", "new"]
    assert faults(home, SESSION) == []


@pytest.mark.states("CX-67")
def test_rollback_works_past_a_fold(tmp_path: Path) -> None:
    folded = compacted("S", message("user", "a"), message("user", "b"), message("user", "S"))
    rolled = event("thread_rolled_back", num_turns=2)
    home, log = logged(write(tmp_path, meta(), *turns("a", "b"), folded, *turns("c"), rolled, *turns("new")))
    assert shown(log.view) == [("user", "a"), ("user", "new"), ("assistant", "new!")]
    assert [each.why for each in edits(home, SESSION)] == ["compaction", "rolled back 2 turns"]
    assert faults(home, SESSION) == []


def test_a_rollback_of_a_numbered_rollout_takes_the_context_above_it_too(tmp_path: Path) -> None:
    lines = [meta(), *turns("a"), said(ENVIRONMENT), *turns("b"), event("thread_rolled_back", num_turns=1)]
    _, log = logged(write(tmp_path, *({**each, "ordinal": place} for place, each in enumerate(lines))))
    assert shown(log.view) == [("user", "a"), ("assistant", "a!")]
