"""A credential does not print, in whatever way it is shown."""

import pickle
import traceback

import msgspec
import pytest

from palimpsest.core.redaction import Credential

KEY = "sk-0123456789"


def test_no_representation_contains_the_text() -> None:
    credential = Credential(KEY)
    shown = [repr(credential), str(credential), f"{credential}", f"{credential!r:>30}".strip(), repr({"key": [credential]})]
    assert shown == [*["Credential(***)"] * 4, "{'key': [Credential(***)]}"]
    assert credential.reveal() == KEY


def test_it_is_compared_by_its_text_and_empty_if_that_is() -> None:
    assert Credential(KEY) == Credential(KEY)
    assert Credential(KEY) != Credential("other")
    assert Credential(KEY) != KEY
    assert len({Credential(KEY), Credential(KEY)}) == 1
    assert [bool(Credential("")), bool(Credential(KEY))] == [False, True]


def test_it_is_not_serialised() -> None:
    with pytest.raises(TypeError, match="not serialised"):
        pickle.dumps(Credential(KEY))
    with pytest.raises(TypeError) as raised:
        msgspec.json.encode({"key": Credential(KEY)})
    assert KEY not in "".join(traceback.format_exception(raised.value))
