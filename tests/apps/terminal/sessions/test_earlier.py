"""The preview of a session in the list of `/resume`."""

from pal.terminal.conversation import last_words
from palimpsest.core.events import CallStarted, Interrupted, ModelReplied, SessionOpened, UserSaid
from palimpsest.core.items import Text
from palimpsest.core.log import Log
from palimpsest.stores.in_memory import FixedClock, MemorySessions


def test_the_last_words_of_a_session_include_a_reply_that_was_interrupted() -> None:
    with Log.create(MemorySessions(), SessionOpened("s"), FixedClock(1)) as log:
        log.append(UserSaid((Text("why?"),)))
        log.append(ModelReplied((Text("because"),), log.append(CallStarted("m", "chat")).seq))
        log.append(UserSaid((Text("and then?"),)))
        log.append(Interrupted(log.append(CallStarted("m", "chat")).seq, (Text("then it"),), "the user stopped it"))
        assert last_words(log) == ("❯ why?", "· because", "❯ and then?", "· (interrupted) then it")
