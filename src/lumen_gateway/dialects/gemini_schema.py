"""JSON Schemas as Gemini takes them: in the fields for full JSON Schema, without the few keywords it refuses there.

References, unions with null and `additionalProperties` go as they are. A constant becomes an enumeration of one; what
is left out would only have narrowed the schema. Names of properties are no keywords, whatever they are.

Source: Gemini API reference, "GenerationConfig", `responseJsonSchema`, and "FunctionDeclaration".
"""

from __future__ import annotations

import msgspec

from lumen_gateway.dialects.neutral import Raw

_REFUSED = frozenset({"$schema", "$comment", "strict", "examples", "default", "discriminator", "readOnly", "writeOnly"})
_NAMED = frozenset({"properties", "$defs", "definitions", "patternProperties"})  # hold schemas under names
_LISTED = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SINGLE = frozenset({"items", "additionalProperties", "not"})

_decode = msgspec.json.Decoder().decode


def cleaned(schema: Raw) -> object:
    """Return the schema as it is sent."""
    return _clean(_decode(schema))


def _clean(schema: object) -> object:
    if not isinstance(schema, dict):
        return schema
    fields = {key: _clean_value(key, value) for key, value in schema.items() if key not in _REFUSED}
    if "const" in fields:
        fields["enum"] = [fields.pop("const")]
    return fields


def _clean_value(key: str, value: object) -> object:
    if key in _NAMED and isinstance(value, dict):
        return {name: _clean(each) for name, each in value.items()}
    if key in _LISTED and isinstance(value, list):
        return [_clean(each) for each in value]
    return _clean(value) if key in _SINGLE else value
