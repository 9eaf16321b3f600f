from hypothesis import given
from hypothesis import strategies as st

from palimpsest.exchange.claude.lines import ConversationPath, LineGroup

Step = tuple[int, bool]


def _path_to(parents: dict[str, str], tip: str) -> list[str]:
    """The way from the root to a group, walked link by link."""
    way = [tip]
    while way[-1] in parents:
        way.append(parents[way[-1]])
    return way[::-1]


@given(st.lists(st.tuples(st.integers(0, 60), st.booleans()), min_size=1, max_size=60))
def test_a_path_with_shortcuts_answers_as_one_that_is_walked(steps: list[Step]) -> None:
    path = ConversationPath(LineGroup("note", key="root"))
    parents: dict[str, str] = {}
    messages: set[str] = set()
    tip = "root"
    for number, (place, is_message) in enumerate(steps):
        uuid = f"u{number}"
        known = [f"u{each}" for each in range(number)]
        parent = known[place % number] if number and place % 3 == 0 else tip
        way = _path_to(parents, tip)
        newest = max((index for index, each in enumerate(way) if each in messages), default=-1)
        leaves = parent not in way or (is_message and way.index(parent) < newest)
        target = path.rewind_target({"parentUuid": "" if parent == "root" else parent}, is_message=is_message)
        if parent != "root":
            assert (None if target is None else target.key) == (parent if leaves else None)
        if target is not None:
            path.rewind(target)
            tip = target.key
        path.append(uuid, LineGroup("text", key=uuid), is_message=is_message)
        parents[uuid], tip = tip, uuid
        if is_message:
            messages.add(uuid)
    way = [each for each in _path_to(parents, tip) if each != "root"]
    for first in range(len(steps)):
        begins = f"u{first}"
        expected = way[way.index(begins) :] if begins in way else []
        assert [group.key for group in path.between(begins, tip)] == expected
