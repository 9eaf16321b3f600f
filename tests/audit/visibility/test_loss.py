"""What was visible before an edit and is not after it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palimpsest.audit.loss import loss_of
from palimpsest.audit.visible import VisibleText
from palimpsest.core.items import Cover, Item, Loss, LostEntity, Opaque, Text, ToolCall, ToolResult
from palimpsest.core.view import View

USER = Item("1.0", "user", Text("Please repair src/app/cart.py, the limit is 250."))
CALL = Item("2.0", "call", ToolCall("c", "Bash", '{"command":"pytest -q tests/test_cart.py"}'))
RESULT = Item("3.0", "result", ToolResult("c", (Text("17 failed in 4.25 s, see /srv/out/report.xml"),)))


def test_an_edit_that_hides_nothing_loses_nothing() -> None:
    view = View(items=(USER, CALL, RESULT))
    assert loss_of(view, view) == Loss()


def test_everything_that_nothing_shows_any_more_is_lost() -> None:
    assert loss_of(View(items=(USER, CALL, RESULT)), View()) == Loss(
        paths=("src/app/cart.py", "tests/test_cart.py", "/srv/out/report.xml"),
        commands=("pytest -q tests/test_cart.py",),
        numbers=3,
        user_messages=1,
        ids=("1.0", "2.0", "3.0"),
        path_items=("1.0", "2.0", "3.0"),
        command_items=("2.0",),
    )


def test_the_files_that_a_hidden_command_moved_or_removed_are_lost_before_those_that_were_only_mentioned() -> None:
    said = Item("1.0", "assistant", Text("see docs/guide.md", "assistant"))
    command = "mv src/a.py lib/ && rm src/b.py"
    call = Item("2.0", "call", ToolCall("c", "Bash", msgspec.json.encode({"command": command}).decode()))
    assert loss_of(View(items=(said, call)), View(items=())) == Loss(
        paths=("src/a.py", "lib/a.py", "src/b.py", "docs/guide.md"),
        commands=(command,),
        ids=("1.0", "2.0"),
        path_items=("2.0", "2.0", "2.0", "1.0"),
        command_items=("2.0",),
    )


def test_what_another_text_still_shows_is_not_lost() -> None:
    summary = Item(
        "9.0.0",
        "summary",
        Text("- 1.0: Please repair src/app/cart.py, the limit is 250.\n[1] pytest -q tests/test_cart.py: 17 failed, 4.25"),
    )
    assert loss_of(View(items=(USER, CALL, RESULT)), View(items=(summary,))) == Loss(
        paths=("/srv/out/report.xml",),
        ids=("1.0", "2.0", "3.0"),
        path_items=("3.0",),
    )


def test_a_message_counts_as_shown_by_its_id_and_its_opening_words() -> None:
    long = Item("4.0", "user", Text("Implement the plan that follows in all details. " + "And one more thing. " * 90))
    summary = Item("9.0.0", "summary", Text("- 4.0, yesterday: Implement the plan that follows in all detai"))
    assert loss_of(View(items=(long,)), View(items=(summary,))).user_messages == 0
    summary = Item("9.0.0", "summary", Text("- Implement the plan that follows in all detai"))
    assert loss_of(View(items=(long,)), View(items=(summary,))).user_messages == 1


def test_a_path_counts_as_shown_by_its_last_two_parts() -> None:
    read = Item("2.0", "call", ToolCall("c", "Read", '{"file_path":"/home/me/repo/src/app.py"}'))
    summary = Item("9.0.0", "summary", Text("- /home/me/repo/: src/app.py"))
    assert loss_of(View(items=(read,)), View(items=(summary,))).paths == ()


def test_a_folder_shows_with_a_slash_at_its_end_or_without() -> None:
    visible = VisibleText(["see src/app/ and docs/."])
    assert [visible.shows_path(path) for path in ("src/app", "src/app/", "/repo/src/app", "docs", "/repo/docs")] == [
        True,
        True,
        True,
        True,
        False,
    ]
    hidden, summary = (
        Item("1.0", "assistant", Text("In /repo/src/app and my_parts/")),
        Item("2.0", "summary", Text("src/app/ and my_parts")),
    )
    assert loss_of(View(items=(hidden,)), View(items=(summary,))) == Loss(ids=("1.0",))


def test_a_name_is_credited_to_the_first_item_however_later_ones_write_it() -> None:
    items = (Item("1.0", "assistant", Text("call parse_it now")), Item("2.0", "assistant", Text("parse_it is parse_it.")))
    assert loss_of(View(items=items), View()).symbols == (LostEntity("parse_it", "1.0"),)


def test_numbers_count_without_signs_and_separators_in_what_is_lost_and_in_what_shows() -> None:
    hidden = Item("1.0", "assistant", Text("It is -50 or .75, of 1,234"))
    assert loss_of(View(items=(hidden,)), View()) == Loss(numbers=3, ids=("1.0",))
    for summary in ("50, 75, 1234", "+50 .75 -1,234", "-50 0 75 1,234."):
        assert loss_of(View(items=(hidden,)), View(items=(Item("2.0", "summary", Text(summary)),))).numbers == 0
    assert loss_of(View(items=(hidden,)), View(items=(Item("2.0", "summary", Text("1 and 234")),))).numbers == 3


def test_a_path_on_a_drive_still_shows_where_a_comma_follows_it() -> None:
    hidden, summary = Item("1.0", "assistant", Text("In C:\\a\\b.py, as said")), Item("2.0", "user", Text("Open C:\\a\\b.py"))
    assert loss_of(View(items=(hidden, summary)), View(items=(summary,))) == Loss(ids=("1.0",))


def test_the_cover_of_a_masked_item_still_shows() -> None:
    covered = Item(RESULT.id, RESULT.kind, RESULT.content, mask=Cover("[17 failed, see /srv/out/report.xml]"))
    assert loss_of(View(items=(CALL, RESULT)), View(items=(CALL, covered))) == Loss(numbers=1, ids=("3.0",))


def test_a_path_in_chinese_is_found_where_it_still_shows() -> None:
    read = Item("2.0", "call", ToolCall("c", "Read", '{"file_path":"文档/使用 说明.md"}'))
    assert loss_of(View(items=(read,)), View(items=(Item("9.0", "summary", Text("读过 文档/使用 说明.md。")),))).paths == ()
    assert loss_of(View(items=(read,)), View()).paths == ("文档/使用 说明.md",)


def test_every_kind_of_thing_is_listed_with_the_item_in_which_it_stood() -> None:
    summary = (
        "Edited src/app/main.py and ./README.md (see https://example.org/a?b=1).\n"
        "TypeError: cannot read parseConfig of undefined\n"
        "commit 9f86d081 took 1250 ms, session 123e4567-e89b-12d3-a456-426614174000"
    )
    items = (
        Item("1.0", "user", Text("Never touch the lock file.")),
        Item("2.0", "call", ToolCall("c", "Bash", '{"command":"pytest tests/test_x.py -k \\"my_test\\"","timeout":30000}')),
        Item("3.0", "result", ToolResult("c", (Text(summary),))),
    )
    assert loss_of(View(items=items), View()) == Loss(
        paths=("tests/test_x.py", "src/app/main.py", "README.md"),
        commands=('pytest tests/test_x.py -k "my_test"',),
        numbers=2,
        user_messages=1,
        ids=("1.0", "2.0", "3.0"),
        path_items=("2.0", "3.0", "3.0"),
        command_items=("2.0",),
        symbols=(LostEntity("my_test", "2.0"), LostEntity("TypeError", "3.0"), LostEntity("parseConfig", "3.0")),
        errors=(LostEntity("TypeError: cannot read parseConfig of undefined", "3.0"),),
        urls=(LostEntity("https://example.org/a?b=1", "3.0"),),
        identifiers=(LostEntity("9f86d081", "3.0"), LostEntity("123e4567-e89b-12d3-a456-426614174000", "3.0")),
    )


def test_chinese_around_a_name_is_no_part_of_it() -> None:
    line = "修改src/home/index.vue里的getUserInfo，超时改成30秒，错误：连接失败"
    assert loss_of(View(items=(Item("1.0", "result", ToolResult("c", (Text(line),))),)), View()) == Loss(
        paths=("src/home/index.vue",),
        numbers=1,
        ids=("1.0",),
        path_items=("1.0",),
        symbols=(LostEntity("getUserInfo", "1.0"),),
        errors=(LostEntity(line, "1.0"),),
    )


def test_an_address_is_an_address_and_none_of_its_pieces_a_path() -> None:
    pages = "https://github.com/owner/repo/blob/main/a.py, http://localhost:3138/runs/smoke"
    text = f"{pages}, localhost:3138/runs/smoke and \\u003e-lib/deep/x.py"
    loss = loss_of(View(items=(Item("1.0", "assistant", Text(text)),)), View())
    assert loss.paths == ("lib/deep/x.py",)
    assert [lost.text for lost in loss.urls] == ["https://github.com/owner/repo/blob/main/a.py", "http://localhost:3138/runs/smoke"]


def test_a_path_on_a_drive_is_lost_as_it_was_written() -> None:
    item = Item("1.0", "assistant", Text("It is in C:\\Users\\me\\x.txt now."))
    assert loss_of(View(items=(item,)), View()).paths == ("C:\\Users\\me\\x.txt",)
    assert loss_of(View(items=(item,)), View(items=(Item("2.0", "summary", Text("see me\\x.txt")),))).paths == ()


def test_errors_and_addresses_that_still_show_are_not_lost() -> None:
    line = "ValueError: the total of the cart is not what the customer was told a moment ago, by far"
    hidden = Item("1.0", "result", ToolResult("c", (Text(f"{line}\nsee https://example.org/x"),)))
    again = Item("2.0", "result", ToolResult("d", (Text(f"{line}\nmore"),)))
    summary = Item("9.0.0", "summary", Text(f"open error, {line[:60]}… at https://example.org/x"))
    assert loss_of(View(items=(hidden, again)), View(items=(again,))).errors == ()
    assert loss_of(View(items=(hidden,)), View(items=(summary,))) == Loss(ids=("1.0",))
    assert loss_of(View(items=(hidden, again)), View(items=(again,))).urls == (LostEntity("https://example.org/x", "1.0"),)


def test_of_many_things_the_newest_are_listed_and_the_rest_counted() -> None:
    items = tuple(
        Item(f"{number}.0", "assistant", Text(f"call parse_{number:03} of https://example.org/{number}")) for number in range(100)
    )
    loss = loss_of(View(items=items), View())
    assert [lost.text for lost in loss.symbols] == [f"parse_{number:03}" for number in range(60, 100)]
    assert loss.urls[-1] == LostEntity("https://example.org/99", "99.0")
    assert loss.more == {"symbols": 60, "urls": 60}


def test_a_loss_of_an_older_log_is_read_and_a_new_one_is_written_small() -> None:
    old = b'{"paths":["a.py"],"commands":["make"],"numbers":3,"user_messages":1,"ids":["2.0"]}'
    assert msgspec.json.decode(old, type=Loss) == Loss(("a.py",), ("make",), 3, 1, ("2.0",))
    new = Loss(ids=("2.0",), symbols=(LostEntity("parse_it", "2.0"),), more={"symbols": 7})
    assert msgspec.json.encode(new) == b'{"ids":["2.0"],"symbols":[["parse_it","2.0"]],"more":{"symbols":7}}'
    assert msgspec.json.decode(msgspec.json.encode(new), type=Loss) == new


@given(st.lists(st.text(max_size=60), max_size=6), st.data())
def test_what_is_lost_is_never_still_visible(texts: list[str], data: st.DataObject) -> None:
    items = tuple(Item(f"{number}.0", "user", Text(text)) for number, text in enumerate(texts))
    kept = tuple(item for item in items if data.draw(st.booleans()))
    loss = loss_of(View(items=items), View(items=kept))
    assert loss == loss_of(View(items=items), View(items=kept))
    assert set(loss.ids) == {item.id for item in items} - {item.id for item in kept}
    shown = "\n".join(item.content.text for item in kept if isinstance(item.content, Text))
    assert not any(path in shown.split() for path in loss.paths)


def test_a_command_of_a_tool_that_only_its_declaration_tells_of_is_listed() -> None:
    result = Item("2.0", "result", ToolResult("c", (Text("done"),)))
    call = ToolCall("c", "doit", '{"cmd":"make deploy-prod"}')
    assert loss_of(View(items=(Item("1.0", "call", call), result)), View()).commands == ()
    declared = Item("1.0", "call", replace(call, kind="command"))
    assert loss_of(View(items=(declared, result)), View()).commands == ("make deploy-prod",)


@pytest.mark.states("PV-46", "PV-47")
def test_what_only_the_text_fallback_of_a_sealed_compaction_says_is_lost_and_is_not_lost_a_second_time() -> None:
    evidence = "pytest -q tests/test_cart.py failed, see src/app/cart.py and /srv/out/report.xml; the limit is 250"
    sealed = Item("4.0", "summary", Opaque("openai", "gpt-6.1-sol", '{"type":"compaction","encrypted_content":"gA"}', evidence))
    readable = Item("4.0", "summary", Opaque("anthropic", "claude-opus-5-5", '{"type":"compaction","content":"s"}', evidence))
    before, hidden = View(items=(USER, CALL, RESULT)), ("1.0", "2.0", "3.0")

    assert loss_of(before, View(items=(sealed,))) == loss_of(before, View())
    assert loss_of(before, View(items=(readable,))).paths == ()
    assert loss_of(View(items=(sealed,)), View()) == Loss(ids=("4.0",))
    assert loss_of(before, View(items=(sealed, USER))).ids == hidden[1:]
