"""The JSON schema of a reply, in the form that every provider accepts."""

from typing import Any, Final

import msgspec

# Bounds that providers refuse in a schema; the description states them instead.
_BOUNDS: Final = ("minItems", "maxItems", "minLength", "maxLength", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
# What a reader of our own makes of a field that is not there; in a reply every field is.
_DROPPED: Final = frozenset({*_BOUNDS, "default", "discriminator", "required"})


def reply_schema(reply: type[msgspec.Struct]) -> str:
    """Return the schema of a reply as JSON.

    Anthropic and OpenAI (in strict mode) want every object closed, every field required, an object at the top, unions without a
    discriminator, a reference without anything beside it, and no bounds of lengths and numbers.
    """
    schema = msgspec.json.schema(reply)
    definitions = {name: _accepted(each) for name, each in schema.get("$defs", {}).items()}
    top = definitions.pop(reply.__name__)
    return msgspec.json.encode({**top, **({"$defs": definitions} if definitions else {})}).decode()


def _accepted(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    accepted = {key: value for key, value in schema.items() if key not in _DROPPED}
    bounds = ", ".join(f"{key}: {schema[key]}" for key in _BOUNDS if key in schema)
    if bounds:
        accepted["description"] = "\n\n".join(text for text in (schema.get("description", ""), f"{{{bounds}}}") if text)
    if "anyOf" in schema:
        accepted["anyOf"] = [_accepted(each) for each in schema["anyOf"]]
    if "items" in schema:
        accepted["items"] = _accepted(schema["items"])
    if "properties" in schema:
        accepted["properties"] = {name: _accepted(each) for name, each in schema["properties"].items()}
        accepted["required"] = list(schema["properties"])
        accepted["additionalProperties"] = False
    return accepted
