"""The table of the wires names every wire, and says of each what its encoder, its rules and its lists say too."""

from typing import get_args

from msgspec import json

from palimpsest.core.items import Item, Text
from palimpsest.core.view import View
from palimpsest.follow.shapes import shape_of
from palimpsest.stores.in_memory import MemoryBlobs
from palimpsest.wire.encode import card_on_wire, encode
from palimpsest.wire.models import WireName, card
from palimpsest.wire.request import LONGEST_NAME
from palimpsest.wire.wires import WIRES, check_request, wire_called

VIEW = View(head=(Item("0.0", "context", Text("Be brief.", "system")),), items=(Item("1.0", "user", Text("hi")),))


def test_every_wire_has_a_row_under_its_name() -> None:
    assert {name: wire.name for name, wire in WIRES.items()} == {name: name for name in get_args(WireName)}
    assert set(LONGEST_NAME) == set(WIRES)
    assert [wire_called(name) for name in (*WIRES, "smoke signals")] == [*WIRES.values(), None]


def test_a_row_names_the_fields_that_its_encoder_writes_and_its_rules_ask_for() -> None:
    for name, wire in WIRES.items():
        body = encode(VIEW, card(wire.model)).body
        sent = json.decode(body)
        assert isinstance(sent[wire.messages], list), name
        assert bool(wire.system) == (wire.system in sent), name
        assert check_request(name, body) == (), name
        assert any(line.startswith(wire.messages) for line in wire.violations({"max_tokens": 1})), name


def test_the_default_model_of_a_wire_is_served_on_it_by_its_provider() -> None:
    for name, wire in WIRES.items():
        model = card(wire.model)
        assert (model.wire, model.provider) == (name, wire.provider)
        assert shape_of(name, card_on_wire(model, name), MemoryBlobs()).wire == name
