"""Every schema that memory asks a model for is one that the official clients send as it is."""

import copy
from typing import Any

import msgspec
import pytest
from anthropic.lib._parse._transform import transform_schema
from openai.lib._pydantic import _ensure_strict_json_schema

from palimpsest.memory.extract import Changes, ProposedSkills, SessionReply, StandingLines, changes_schema, session_schema
from palimpsest.memory.shown import PickedNotes
from palimpsest.wire.reply import reply_schema

SCHEMAS = {reply.__name__: reply_schema(reply) for reply in (Changes, SessionReply, PickedNotes, StandingLines, ProposedSkills)}


@pytest.mark.states("SG-09")
def test_the_requests_of_memory_state_these_schemas() -> None:
    assert (SCHEMAS["Changes"], SCHEMAS["SessionReply"]) == (changes_schema(), session_schema())


@pytest.mark.states("SG-09")
@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_what_the_official_clients_would_make_of_it(name: str) -> None:
    schema: dict[str, Any] = msgspec.json.decode(SCHEMAS[name])
    assert transform_schema(schema) == schema
    strict = copy.deepcopy(schema)
    assert _ensure_strict_json_schema(strict, path=(), root=strict) == schema
    assert schema["type"] == "object"


@pytest.mark.states("SG-09")
@pytest.mark.parametrize("name", SCHEMAS)
def test_no_schema_has_what_a_provider_refuses(name: str) -> None:
    def objects(value: object) -> list[dict[str, Any]]:
        if isinstance(value, dict):
            return [value, *(found for each in value.values() for found in objects(each))]
        return [found for each in value for found in objects(each)] if isinstance(value, list) else []

    found = [each for each in objects(msgspec.json.decode(SCHEMAS[name])) if each.get("type") == "object"]
    assert found
    assert all(each["additionalProperties"] is False and each["required"] == list(each["properties"]) for each in found)
    assert not any(word in SCHEMAS[name] for word in ('"discriminator"', '"default"', '"maxItems":', '"minimum":', '"oneOf"'))


def test_bounds_that_a_provider_refuses_stand_in_the_description() -> None:
    assert '"description":"{maxItems: 200}"' in SCHEMAS["PickedNotes"].replace("\\n", "")
