"""What can be handed in as a schema or a list of tools: classes, OpenAPI documents, MCP tool definitions, registries.

Everything here turns one notation into plain JSON Schema (or a plain list of tools) and nothing else: what a keyword
means is for the kernel to say. Nothing is ever fetched.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gramary.compiler.errors import InvalidSchema

#: Methods of a path in an OpenAPI document that are operations.
_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_DRAFT_4 = "http://json-schema.org/draft-04/schema#"
_SCHEMAS = "#/components/schemas/"


def schema_of(source: Any) -> Any:
    """The JSON Schema of a class or of a Pydantic `TypeAdapter`; anything else is given back as it is.

    Classes: a Pydantic model needs nothing; a dataclass, a `TypedDict` and any other annotation are described by
    Pydantic (`pip install pydantic`), the way it would validate JSON.

    >>> schema_of({"type": "null"})
    {'type': 'null'}
    """
    if source is None or isinstance(source, str | bytes | bool | Mapping):
        return source
    for method in ("model_json_schema", "json_schema"):
        describe = getattr(source, method, None)
        if describe is not None:
            return describe()
    if not isinstance(source, type) and not hasattr(source, "__origin__") and not hasattr(source, "__args__"):
        return source
    try:
        from pydantic import TypeAdapter
    except ImportError:
        name = getattr(source, "__name__", repr(source))
        raise TypeError(f"{name} is not a Pydantic model, and Pydantic is not installed") from None
    return TypeAdapter(source).json_schema()


def registry_text(registry: Any) -> str:
    """A registry as the one JSON object that the kernel reads: documents by their URIs, sorted by URI.

    `registry`: a mapping of URIs to schemas, or the `referencing` package's `Registry`, of which every resource that it
    already holds is taken (its `retrieve` is never called).

    >>> registry_text({"urn:b": True, "urn:a": {"type": "null"}})
    '{"urn:a": {"type": "null"}, "urn:b": true}'
    """
    documents: dict[str, str] = {}
    for uri in registry:
        found = registry[uri]
        content = getattr(found, "contents", found)
        if isinstance(content, bytes):
            content = content.decode()
        documents[str(uri)] = content if isinstance(content, str) else json.dumps(content)
    members = (f"{json.dumps(uri)}: {text}" for uri, text in sorted(documents.items()))
    return "{" + ", ".join(members) + "}" if documents else ""


def openapi_schema(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The schema `name` of an OpenAPI document's components, with all that it refers to.

    3.1 is JSON Schema as it stands (its `jsonSchemaDialect` counts). 3.0 is draft 4 with `nullable`, which adds null to
    the `type` beside it, as 3.0.3 has it. Raises `InvalidSchema` if there is no such schema.

    >>> pets = {"openapi": "3.0.3", "components": {"schemas": {"Pet": {"type": "string", "nullable": True}}}}
    >>> openapi_schema(pets, "Pet")["components"]["schemas"]["Pet"]["type"]
    ['string', 'null']
    """
    if name not in _components(document):
        raise InvalidSchema(
            f"the document has no schema {name!r} (at /components/schemas)", pointer="/components/schemas"
        )
    return _closed(document, {"$ref": _SCHEMAS + _token(name)})


def openapi_tools(document: Mapping[str, Any], operations: Iterable[str] | None = None) -> list[dict[str, Any]]:
    """An OpenAPI document's operations as tools: `{"name", "description", "parameters"}`.

    A tool is called like its `operationId` (without one: method and path, `get_pets_id`). Its arguments are the
    operation's parameters by name and, if it takes JSON, the request body as `body`. `operations` picks some by name,
    in that order; one that is not there raises `InvalidSchema`.
    """
    found = {tool["name"]: tool for tool in _operations(document)}
    if operations is None:
        return list(found.values())
    chosen = []
    for name in operations:
        if name not in found:
            raise InvalidSchema(f"the document has no operation {name!r} (at /paths)", pointer="/paths")
        chosen.append(found[name])
    return chosen


def mcp_tools(tools: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Tool definitions of the Model Context Protocol (`inputSchema`), or the answer to `tools/list` that holds them.

    >>> mcp_tools({"tools": [{"name": "now", "inputSchema": {"type": "object"}}]})
    [{'name': 'now', 'parameters': {'type': 'object'}}]
    """
    listed = tools
    if isinstance(listed, Mapping):
        answer = listed.get("result", listed)
        listed = answer.get("tools", []) if isinstance(answer, Mapping) else []
    return [_from_mcp(tool) for tool in listed]


def tools_of(tools: Any) -> Any:
    """A list of tools with whatever is not of OpenAI's shape brought into it; text is given back as it is."""
    if isinstance(tools, str | bytes):
        return tools
    if isinstance(tools, Mapping):
        return mcp_tools(tools)
    return [_from_mcp(t) if isinstance(t, Mapping) and "inputSchema" in t else t for t in tools]


def _from_mcp(tool: Mapping[str, Any]) -> dict[str, Any]:
    plain = {k: tool[k] for k in ("name", "description") if k in tool}
    return {**plain, "parameters": tool.get("inputSchema", {"type": "object"})}


# ------------------------------------------------------------------------------------------------ OpenAPI


def _components(document: Mapping[str, Any]) -> Mapping[str, Any]:
    schemas = _member(_member(document, "components"), "schemas")
    return schemas


def _member(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = holder.get(key, {})
    return value if isinstance(value, Mapping) else {}


def _is_3_0(document: Mapping[str, Any]) -> bool:
    return str(document.get("openapi", "3.1")).startswith("3.0")


def _token(name: str) -> str:
    """A name as part of a reference."""
    return name.replace("~", "~0").replace("/", "~1").replace("%", "%25")


def _closed(document: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema made a document of its own, with the components that it reaches."""
    old = _is_3_0(document)
    all_schemas = _components(document)
    reached: dict[str, Any] = {}
    work = list(_references(schema))
    while work:
        name = work.pop()
        if name in reached or name not in all_schemas:
            continue
        reached[name] = all_schemas[name]
        work.extend(_references(all_schemas[name]))
    # In the order of the document, so that one schema has one text.
    kept = {name: _from_3_0(s) if old else s for name, s in all_schemas.items() if name in reached}
    whole: dict[str, Any] = {}
    dialect = _DRAFT_4 if old else document.get("jsonSchemaDialect")
    if isinstance(dialect, str) and "json-schema.org" in dialect:
        whole["$schema"] = dialect
    body = _from_3_0(schema) if old else dict(schema)
    if old and "$ref" in body:
        # Nothing stands beside a reference in draft 4, the dialect and the components excepted.
        body = {"allOf": [body]}
    whole |= body
    if kept:
        whole["components"] = {"schemas": kept}
    return whole


def _references(value: Any) -> Iterator[str]:
    """Names of the components that a schema refers to."""
    work = [value]
    while work:
        at = work.pop()
        if isinstance(at, Mapping):
            ref = at.get("$ref")
            if isinstance(ref, str) and ref.startswith(_SCHEMAS):
                name = ref[len(_SCHEMAS) :].split("/")[0]
                yield name.replace("%25", "%").replace("~1", "/").replace("~0", "~")
            work.extend(at.values())
        elif isinstance(at, list | tuple):
            work.extend(at)


#: Keywords of 3.0 that hold schemas: one, a list of them, or a mapping to them.
_ONE = ("not", "items", "additionalProperties")
_MANY = ("allOf", "anyOf", "oneOf")
_NAMED = ("properties",)


def _from_3_0(schema: Any) -> Any:
    """A schema of OpenAPI 3.0 as draft 4."""
    if not isinstance(schema, Mapping):
        return schema
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _ONE:
            out[key] = _from_3_0(value)
        elif key in _MANY and isinstance(value, list):
            out[key] = [_from_3_0(s) for s in value]
        elif key in _NAMED and isinstance(value, Mapping):
            out[key] = {name: _from_3_0(s) for name, s in value.items()}
        elif key != "nullable":
            out[key] = value
    kind = schema.get("type")
    if schema.get("nullable") is True and isinstance(kind, str):
        out["type"] = [kind, "null"]
    return out


def _resolved(document: Mapping[str, Any], value: Any) -> Mapping[str, Any]:
    """A parameter, request body or path, its `$ref` within the document followed."""
    for _ in range(32):
        if not isinstance(value, Mapping):
            return {}
        ref = value.get("$ref")
        if not isinstance(ref, str):
            return value
        if not ref.startswith("#/"):
            raise InvalidSchema(f"the reference {ref!r} leads out of the document; resolve it first", pointer="")
        at: Any = document
        for token in ref[2:].split("/"):
            token = token.replace("~1", "/").replace("~0", "~")
            if not isinstance(at, Mapping) or token not in at:
                raise InvalidSchema(f"the reference {ref!r} leads nowhere", pointer="")
            at = at[token]
        value = at
    raise InvalidSchema("references that only lead to each other", pointer="")


def _operations(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for path, at_path in _member(document, "paths").items():
        item = _resolved(document, at_path)
        for method in _METHODS:
            operation = item.get(method)
            if isinstance(operation, Mapping):
                yield _tool(document, method, path, item, operation)


def _tool(
    document: Mapping[str, Any], method: str, path: str, item: Mapping[str, Any], operation: Mapping[str, Any]
) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    # An operation's parameter replaces the path's of the same name and place.
    parameters: dict[tuple[Any, Any], Mapping[str, Any]] = {}
    for listed in (item.get("parameters"), operation.get("parameters")):
        for parameter in listed if isinstance(listed, list) else []:
            p = _resolved(document, parameter)
            parameters[p.get("name"), p.get("in")] = p
    for (name, _), p in parameters.items():
        if not isinstance(name, str):
            continue
        content = _member(p, "content")
        described: Any = p.get("schema") or next(
            (m.get("schema") for m in content.values() if isinstance(m, Mapping)), {}
        )
        properties[name] = described or {}
        if p.get("required") is True and name not in required:
            required.append(name)
    body = _resolved(document, operation.get("requestBody", {}))
    media = _member(body, "content")
    json_body = next((m for kind, m in media.items() if "json" in kind and isinstance(m, Mapping)), None)
    if json_body is not None:
        name = "body" if "body" not in properties else "requestBody"
        properties[name] = json_body.get("schema", {})
        if body.get("required") is True:
            required.append(name)
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    name = operation.get("operationId")
    if not isinstance(name, str):
        name = "_".join([method, *("".join(c if c.isalnum() else " " for c in path).split())])
    tool = {"name": name}
    description = operation.get("description") or operation.get("summary")
    if isinstance(description, str):
        tool["description"] = description
    return {**tool, "parameters": _closed(document, schema)}
