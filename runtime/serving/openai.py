"""From an OpenAI-style request (`tools`, `tool_choice`, `response_format`) to a grammar for its answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gramary.compiler.compiler import Compiler
from gramary.compiler.errors import InvalidSchema
from gramary.runtime._core import CompiledGrammar, Limits
from gramary.runtime.serving.source import JSON_OBJECT_SCHEMA, CompileOptions, Kind, compile_here


@dataclass(frozen=True)
class ToolFormat:
    """How a model writes a call. `{name}` in `begin` stands for the tool's name; `trigger` begins `begin`.

    The default is what Hermes and Qwen models are trained on.
    """

    begin: str = '<tool_call>\n{"name": "{name}", "arguments": '
    end: str = "}\n</tool_call>"
    trigger: str = "<tool_call>"
    separator: str = "\n"
    style: str = "json"
    """Of the arguments: a `json_schema` style of structural tags."""


def structural_tag_for_request(
    tools: Sequence[Mapping[str, Any]] = (),
    tool_choice: str | Mapping[str, Any] = "auto",
    response_format: Mapping[str, Any] | None = None,
    *,
    parallel_tool_calls: bool = True,
    tool_format: ToolFormat | None = None,
) -> dict[str, Any] | None:
    """The structural tag that an answer must match; None where nothing constrains it.

    `tools` are `{"type": "function", "function": {"name", "parameters", "strict"}}` or their inner part. Arguments are
    held to `parameters` unless `strict` is false. `tool_choice`: "none", "auto", "required", a named function, or
    `allowed_tools`. With "auto" calls may stand in free text; where a `response_format` forbids free text, the answer
    is calls or that format. `parallel_tool_calls=False` allows one call.

    Raises `InvalidSchema` with a pointer into the request.

    >>> tag = structural_tag_for_request([{"name": "now", "parameters": {"type": "object"}}], "required")
    >>> tag["format"]["type"], tag["format"]["at_least_one"]
    ('tags_with_separator', True)
    >>> structural_tag_for_request([], "auto", {"type": "text"}) is None
    True
    """
    shape = tool_format or ToolFormat()
    listed = [_tool(tool, f"/tools/{i}") for i, tool in enumerate(tools)]
    mode, names = _choice(tool_choice, [name for name, _ in listed])
    called = [tool for tool in listed if tool[0] in names]
    answer = _answer(response_format)
    if mode == "none" or not called:
        if mode == "required":
            raise InvalidSchema("tool_choice demands a call, and there is no tool to call", pointer="/tool_choice")
        return None if answer is None else _tagged(answer)
    tags = [_tag(name, schema, shape) for name, schema in called]
    only = {
        "type": "tags_with_separator",
        "tags": tags,
        "separator": shape.separator,
        "at_least_one": True,
        "stop_after_first": not parallel_tool_calls or mode == "named",
    }
    if mode in ("required", "named"):
        return _tagged(only)
    if answer is not None:
        return _tagged({"type": "or", "elements": [only, answer]})
    return _tagged(
        {
            "type": "triggered_tags",
            "triggers": [shape.trigger],
            "tags": tags,
            "at_least_one": False,
            "stop_after_first": not parallel_tool_calls,
        }
    )


def grammar_for_request(
    compiler: Compiler,
    tools: Sequence[Mapping[str, Any]] = (),
    tool_choice: str | Mapping[str, Any] = "auto",
    response_format: Mapping[str, Any] | None = None,
    *,
    parallel_tool_calls: bool = True,
    tool_format: ToolFormat | None = None,
    limits: Limits | None = None,
) -> CompiledGrammar | None:
    """`structural_tag_for_request`, compiled; None where nothing constrains the answer. Raises `CompileError`s."""
    tag = structural_tag_for_request(
        tools, tool_choice, response_format, parallel_tool_calls=parallel_tool_calls, tool_format=tool_format
    )
    if tag is None:
        return None
    options = CompileOptions(limits=limits)
    if tag["format"]["type"] == "json_schema":
        return compile_here(compiler, Kind.JSON_SCHEMA, json.dumps(tag["format"]["json_schema"]), options)
    return compile_here(compiler, Kind.STRUCTURAL_TAG, json.dumps(tag, ensure_ascii=False), options)


def _tagged(form: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "structural_tag", "format": dict(form)}


def _tool(tool: Mapping[str, Any], pointer: str) -> tuple[str, Any]:
    """A tool's name, and the schema of its arguments."""
    function = tool.get("function") if isinstance(tool, Mapping) and "function" in tool else tool
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(name, str) or not name:
        raise InvalidSchema(f"{pointer}: a tool needs a function with a name", pointer=pointer)
    schema = function.get("parameters")
    if schema is None or function.get("strict") is False:
        schema = json.loads(JSON_OBJECT_SCHEMA)
    if not isinstance(schema, (Mapping, bool)):
        raise InvalidSchema(f"{pointer}: parameters of {name!r} are no JSON Schema", pointer=pointer)
    return name, schema


def _tag(name: str, schema: Any, shape: ToolFormat) -> dict[str, Any]:
    spelled = json.dumps(name, ensure_ascii=False)[1:-1]  # within the quotes of JSON; other formats take plain names
    content = {"type": "json_schema", "json_schema": schema, "style": shape.style}
    return {"type": "tag", "begin": shape.begin.replace("{name}", spelled), "content": content, "end": shape.end}


def _choice(tool_choice: str | Mapping[str, Any], known: list[str]) -> tuple[str, list[str]]:
    """One of none, auto, required, named; and the tools that may be called."""
    if len(set(known)) < len(known):
        twice = next(name for name in known if known.count(name) > 1)
        raise InvalidSchema(f"two tools are named {twice!r}", pointer="/tools")
    if isinstance(tool_choice, str):
        if tool_choice not in ("none", "auto", "required"):
            raise InvalidSchema(f"tool_choice {tool_choice!r} is none of none, auto, required", pointer="/tool_choice")
        return tool_choice, known
    if tool_choice.get("type") == "allowed_tools":
        allowed = tool_choice.get("allowed_tools", tool_choice)
        names = [_named(one, f"/tool_choice/tools/{i}", known) for i, one in enumerate(allowed.get("tools", []))]
        mode = allowed.get("mode", "auto")
        if mode not in ("auto", "required"):
            raise InvalidSchema(f"mode {mode!r} is neither auto nor required", pointer="/tool_choice/mode")
        return mode, names
    return "named", [_named(tool_choice, "/tool_choice", known)]


def _named(choice: Mapping[str, Any], pointer: str, known: list[str]) -> str:
    function = choice.get("function", choice)
    name = function.get("name") if isinstance(function, Mapping) else None
    if name not in known:
        raise InvalidSchema(f"{pointer} names {name!r}, which is none of the tools", pointer=pointer)
    return str(name)


def _answer(response_format: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The format of an answer without calls; None if it is free text."""
    kind = "text" if response_format is None else response_format.get("type")
    if response_format is None or kind == "text":
        return None
    if kind == "json_object":
        return {"type": "json_schema", "json_schema": json.loads(JSON_OBJECT_SCHEMA)}
    if kind == "json_schema":
        inner = response_format.get("json_schema", response_format)
        schema = inner.get("schema") if isinstance(inner, Mapping) else None
        if isinstance(schema, (Mapping, bool)):
            return {"type": "json_schema", "json_schema": schema}
        raise InvalidSchema("response_format has no schema", pointer="/response_format/json_schema/schema")
    if kind == "structural_tag" and isinstance(response_format.get("format"), Mapping):
        return dict(response_format["format"])
    raise InvalidSchema(f"response_format of type {kind!r} is not known", pointer="/response_format/type")
