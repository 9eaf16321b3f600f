"""The program that looks at every view: it sees each branch as it was, it sees a seal that went astray, and it finds nothing else."""

import subprocess
import sys
from pathlib import Path

import every_view
from corpus import GOLDEN
from every_view import strange_seals, views

from palimpsest.core.events import Event, ModelReplied, Rewound, SessionOpened, Usage, UserSaid
from palimpsest.core.items import Signature, Text, Thinking
from palimpsest.core.log import Log
from palimpsest.stores.in_memory import FixedClock, MemorySessions


def test_the_views_are_those_of_the_branch_that_each_event_is_on() -> None:
    with Log.create(MemorySessions(), SessionOpened("s"), FixedClock(1)) as log:
        log.append(UserSaid((Text("one"),)))
        log.append(UserSaid((Text("two"),)))
        log.append(Rewound(1))
        log.append(UserSaid((Text("three"),)))
        told = [(event.seq, view) for event, view in views(log)]
        assert told == [(seq, log.state_at(seq).view) for seq in range(log.tip + 1)]
        assert [[item.id for item in view.items] for _, view in told] == [[], ["1.0"], ["1.0", "2.0"], ["1.0"], ["1.0", "4.0"]]


def test_a_seal_of_another_provider_is_a_fault_and_a_word_that_looks_like_one_is_none() -> None:
    thought = Thinking("hm", Signature("openai", "gpt-5.5", "SEALED"))
    event = Event(3, 2, 1, "", ModelReplied((thought,), 2, Usage(), "end_turn", "gpt-5.5"))
    assert list(strange_seals(event, "anthropic", b'{"signature":"SEALED"}')) == ["a seal of openai is sent to anthropic"]
    assert list(strange_seals(event, "anthropic", b'[{"text":"it was SEALED"},{"text":"SEALED"}]')) == []
    assert list(strange_seals(event, "openai", b'{"encrypted_content":"SEALED"}')) == []


def test_the_program_counts_what_it_looked_at(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, every_view.__file__, GOLDEN / "pi"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("2 sessions, 45 events, 81 different requests, 0 faults, ")
