"""What was visible before an edit and is not after it."""

import time

from hypothesis import given
from hypothesis import strategies as st

from palimpsest.audit.loss import loss_of
from palimpsest.core.events import Loss
from palimpsest.core.items import Cover, Item, Text, ToolCall, ToolResult
from palimpsest.core.view import View

USER = Item("1.0", "user", Text("Please repair src/app/cart.py, the limit is 250."))
CALL = Item("2.0", "call", ToolCall("c", "Bash", '{"command":"pytest -q tests/test_cart.py"}'))
RESULT = Item("3.0", "result", ToolResult("c", (Text("17 failed in 4.25 s, see /tmp/out/report.xml"),)))


def test_an_edit_that_hides_nothing_loses_nothing() -> None:
    view = View(items=(USER, CALL, RESULT))
    assert loss_of(view, view) == Loss()


def test_everything_that_nothing_shows_any_more_is_lost() -> None:
    assert loss_of(View(items=(USER, CALL, RESULT)), View()) == Loss(
        paths=("src/app/cart.py", "tests/test_cart.py", "/tmp/out/report.xml"),  # noqa: S108 - a path in a text
        commands=("pytest -q tests/test_cart.py",),
        numbers=3,
        user_messages=1,
        ids=("1.0", "2.0", "3.0"),
    )


def test_what_another_text_still_shows_is_not_lost() -> None:
    told = Item(
        "9.0.0",
        "summary",
        Text("- 1.0: Please repair src/app/cart.py, the limit is 250.\n[1] pytest -q tests/test_cart.py: 17 failed, 4.25"),
    )
    assert loss_of(View(items=(USER, CALL, RESULT)), View(items=(told,))) == Loss(
        paths=("/tmp/out/report.xml",),  # noqa: S108 - a path in a text
        ids=("1.0", "2.0", "3.0"),
    )


def test_a_message_counts_as_shown_by_its_id_and_its_opening_words() -> None:
    long = Item("4.0", "user", Text("Implement the plan that follows in all details. " + "And one more thing. " * 90))
    told = Item("9.0.0", "summary", Text("- 4.0, yesterday: Implement the plan that follows in all detai"))
    assert loss_of(View(items=(long,)), View(items=(told,))).user_messages == 0
    told = Item("9.0.0", "summary", Text("- Implement the plan that follows in all detai"))
    assert loss_of(View(items=(long,)), View(items=(told,))).user_messages == 1


def test_a_path_counts_as_shown_by_its_last_two_parts() -> None:
    read = Item("2.0", "call", ToolCall("c", "Read", '{"file_path":"/home/me/repo/src/app.py"}'))
    told = Item("9.0.0", "summary", Text("- /home/me/repo/: src/app.py"))
    assert loss_of(View(items=(read,)), View(items=(told,))).paths == ()


def test_the_cover_of_a_masked_item_still_shows() -> None:
    covered = Item(RESULT.id, RESULT.kind, RESULT.content, mask=Cover("[17 failed, see /tmp/out/report.xml]"))
    assert loss_of(View(items=(CALL, RESULT)), View(items=(CALL, covered))) == Loss(numbers=1, ids=("3.0",))


def test_a_path_in_chinese_is_found_where_it_still_shows() -> None:
    read = Item("2.0", "call", ToolCall("c", "Read", '{"file_path":"文档/使用 说明.md"}'))
    assert loss_of(View(items=(read,)), View(items=(Item("9.0", "summary", Text("读过 文档/使用 说明.md。")),))).paths == ()
    assert loss_of(View(items=(read,)), View()).paths == ("文档/使用 说明.md",)


def test_the_audit_of_a_fold_of_200k_tokens_takes_at_most_50_ms_of_work() -> None:
    line = "src/part_{0}/module_{0}.py:{0}: error in function_{0} after {0} ms while reading value {1}\n"
    results = [
        Item(f"{number}.0", "result", ToolResult(f"c{number}", (Text("".join(line.format(number % 97, place) for place in range(60))),)))
        for number in range(180)
    ]
    before, after = View(items=tuple(results)), View(items=tuple(results[-10:]))
    took = []
    for _ in range(5):
        start = time.process_time()
        loss_of(before, after)
        took.append(time.process_time() - start)
    assert min(took) <= 0.05


@given(st.lists(st.text(max_size=60), max_size=6), st.data())
def test_what_is_lost_is_never_still_visible(texts: list[str], data: st.DataObject) -> None:
    items = tuple(Item(f"{number}.0", "user", Text(text)) for number, text in enumerate(texts))
    kept = tuple(item for item in items if data.draw(st.booleans()))
    loss = loss_of(View(items=items), View(items=kept))
    assert loss == loss_of(View(items=items), View(items=kept))
    assert set(loss.ids) == {item.id for item in items} - {item.id for item in kept}
    shown = "\n".join(item.content.text for item in kept if isinstance(item.content, Text))
    assert not any(path in shown.split() for path in loss.paths)
