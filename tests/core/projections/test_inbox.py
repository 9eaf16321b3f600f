"""Queued input: it leaves the queue when it is said or withdrawn."""

from histories import new_log

from palimpsest.core.events import InputWithdrawn, UserSaid, UserTyped
from palimpsest.core.items import Text
from palimpsest.core.log import Log
from palimpsest.stores.in_memory import FixedClock, MemorySessions


def test_input_leaves_the_queue_when_it_is_said_or_withdrawn_and_stays_gone_after_a_resume() -> None:
    store = MemorySessions()
    log = new_log(store=store)
    first, second, third = (log.append(UserTyped((Text(text),))).seq for text in ("one", "two", "three"))
    log.append(UserSaid((Text("one"),), typed=first))
    log.append(InputWithdrawn(second, "user", "changed my mind"))
    assert log.inbox == (third,)
    session = log.session
    log.close()
    with Log.open(store, session, FixedClock(0)) as again:
        assert again.inbox == (third,)
        assert [item.id for item in again.view.items] == [f"{third + 1}.0"]
