"""Schemas and tools from other notations."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from gramary.compiler import Compiler, InvalidSchema
from gramary.compiler.sources import mcp_tools, openapi_schema, openapi_tools, registry_text
from gramary.runtime._core import CompiledGrammar


def accepts(grammar: CompiledGrammar, value: Any) -> bool:
    matcher = grammar.matcher()
    return matcher.accept_bytes(json.dumps(value)) and matcher.is_complete()


@dataclasses.dataclass
class Box:
    at: tuple[int, int]
    name: str = ""


def test_classes(byte_compiler: Compiler) -> None:
    pydantic = pytest.importorskip("pydantic")

    class Pet(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=3)
        friends: list[Pet] = pydantic.Field(default_factory=list)

    Pet.model_rebuild(_types_namespace={"Pet": Pet})
    grammar = byte_compiler.compile_json_schema(Pet)
    assert accepts(grammar, {"name": "Tim", "friends": [{"name": "Bo"}]})
    assert not accepts(grammar, {"name": "Timmy"})
    for source in (pydantic.TypeAdapter(list[Pet]), list[Pet]):
        grammar = byte_compiler.compile_json_schema(source)
        assert accepts(grammar, [{"name": "Tim"}])
        assert not accepts(grammar, {"name": "Tim"})
    # Pydantic wants this one before Python 3.12.
    typing_extensions = pytest.importorskip("typing_extensions")
    grammar = byte_compiler.compile_json_schema(typing_extensions.TypedDict("Point", {"x": int, "y": int}))
    assert accepts(grammar, {"x": 1, "y": 2})
    assert not accepts(grammar, {"x": 1})
    grammar = byte_compiler.compile_json_schema(Box)
    assert accepts(grammar, {"at": [1, 2], "name": "b"})
    assert not accepts(grammar, {"at": [1]})
    grammar = byte_compiler.compile_json_schema(int | None)
    assert accepts(grammar, None)
    assert not accepts(grammar, "1")


OPENAPI_3_0: dict[str, Any] = {
    "openapi": "3.0.3",
    "components": {
        "schemas": {
            "Pet": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "age": {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "nullable": True},
                    "owner": {"$ref": "#/components/schemas/Person", "description": "ignored beside a reference"},
                    "nullable": {"type": "boolean", "example": True},
                },
                "additionalProperties": False,
            },
            "Person": {"type": "string", "enum": ["Ann", "Bob"]},
            "Odd/~%": {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}},
            "Other": {"type": "null"},
        },
        "parameters": {"id": {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}},
    },
    "paths": {
        "/pets/{id}": {
            "parameters": [{"$ref": "#/components/parameters/id"}],
            "get": {
                "summary": "One pet",
                "parameters": [{"name": "full", "in": "query", "schema": {"type": "boolean"}}],
            },
            "put": {
                "operationId": "replace",
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}},
                },
            },
        }
    },
}


def test_openapi_3_0(byte_compiler: Compiler) -> None:
    schema = openapi_schema(OPENAPI_3_0, "Pet")
    assert list(schema["components"]["schemas"]) == ["Pet", "Person"]
    grammar = byte_compiler.compile_json_schema(schema, property_order="any")
    for value in (
        {"name": "a"},
        {"name": "a", "age": None, "owner": "Ann", "nullable": False},
        {"name": "a", "age": 1},
    ):
        assert accepts(grammar, value), value
    for value in (
        {},
        {"name": None},
        {"name": "a", "age": 0},
        {"name": "a", "owner": "Eve"},
        {"name": "a", "nullable": None},
    ):
        assert not accepts(grammar, value), value
    assert accepts(byte_compiler.compile_json_schema(openapi_schema(OPENAPI_3_0, "Odd/~%")), [{"name": "a"}])
    with pytest.raises(InvalidSchema):
        openapi_schema(OPENAPI_3_0, "Nothing")


def test_openapi_3_1(byte_compiler: Compiler) -> None:
    document = {
        "openapi": "3.1.0",
        "components": {
            "schemas": {
                "A": {"type": ["string", "null"], "maxLength": 2},
                "B": {"$ref": "#/components/schemas/A", "minLength": 1},
            }
        },
    }
    grammar = byte_compiler.compile_json_schema(openapi_schema(document, "B"))
    for value, right in (("a", True), ("", False), ("abc", False), (None, True), (1, False)):
        assert accepts(grammar, value) == right


def test_operations_as_tools(byte_compiler: Compiler) -> None:
    tools = openapi_tools(OPENAPI_3_0)
    assert [t["name"] for t in tools] == ["get_pets_id", "replace"]
    grammar = byte_compiler.compile_tools(tools, property_order="any")
    right = {"get_pets_id": {"id": 1, "full": True}, "replace": {"id": 1, "body": {"name": "a", "owner": "Bob"}}}
    wrong = {"get_pets_id": {"full": True}, "replace": {"id": 1}}
    for calls, ok in ((right, True), (wrong, False)):
        for name, arguments in calls.items():
            text = f"<function={name}>{json.dumps(arguments)}</function>"
            assert grammar.matcher().accept_bytes(text) == ok, text
    assert [t["name"] for t in openapi_tools(OPENAPI_3_0, ["replace"])] == ["replace"]
    with pytest.raises(InvalidSchema):
        openapi_tools(OPENAPI_3_0, ["nothing"])


def test_tools_of_mcp(byte_compiler: Compiler) -> None:
    listed = [
        {
            "name": "add",
            "description": "Sum",
            "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}},
        }
    ]
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"tools": listed}}
    assert mcp_tools(listed) == mcp_tools({"tools": listed}) == mcp_tools(answer)
    for tools in (listed, answer):
        grammar = byte_compiler.compile_tools(tools)
        assert grammar.matcher().accept_bytes('<function=add>{"a": 1}</function>')
        assert not grammar.matcher().accept_bytes('<function=add>{"a": "1"')


def test_registry(byte_compiler: Compiler) -> None:
    documents: dict[str, Any] = {
        "https://example.com/name": {"type": "string", "maxLength": 3},
        "https://example.com/pet": {"properties": {"name": {"$ref": "name"}}, "required": ["name"]},
    }
    schema = {"$ref": "https://example.com/pet"}
    with pytest.raises(Exception, match=r"example\.com"):
        byte_compiler.compile_json_schema(schema)
    registries: list[Any] = [documents, dict(reversed(documents.items()))]
    referencing = pytest.importorskip("referencing")
    jsonschema = pytest.importorskip("referencing.jsonschema")
    resources = [(u, jsonschema.DRAFT202012.create_resource(s)) for u, s in documents.items()]
    registries.append(referencing.Registry().with_resources(resources))
    for registry in registries:
        grammar = byte_compiler.compile_json_schema(schema, registry=registry)
        assert accepts(grammar, {"name": "Tim"})
        assert not accepts(grammar, {"name": "Timmy"})
        assert registry_text(registry) == registry_text(documents)
    # Another registry is another source, under the same text.
    other = {**documents, "https://example.com/name": {"type": "integer"}}
    assert accepts(byte_compiler.compile_json_schema(schema, registry=other), {"name": 1})
    tools = [{"name": "f", "parameters": {"type": "object", "properties": {"p": schema}}}]
    grammar = byte_compiler.compile_tools(tools, registry=documents)
    assert not grammar.matcher().accept_bytes('<function=f>{"p": {"name": 1')


def test_draft_overrides_the_schema(byte_compiler: Compiler) -> None:
    schema: dict[str, Any] = {"$ref": "#/definitions/s", "maxLength": 2, "definitions": {"s": {"type": "string"}}}
    for draft, right in (("4", True), ("6", True), ("7", True), ("2019-09", False), ("2020-12", False)):
        grammar = byte_compiler.compile_json_schema(
            {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema},
            draft=draft,  # type: ignore[arg-type]  # a literal of the list above
        )
        assert accepts(grammar, "abc") == right, draft
    assert not accepts(byte_compiler.compile_json_schema({"type": "integer"}, draft="4"), 1.0)
