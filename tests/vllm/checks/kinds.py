"""Check 1: every kind of request through the OpenAI server; outputs validate."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema

from tests.vllm.checks.common import ROOT, Failed, Server, expect, serving

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12, "pattern": "^[A-Z][a-z ]*$"},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Rome", "Lima"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TIME = {"type": "object", "properties": {"zone": {"enum": ["UTC", "CET"]}}, "additionalProperties": False}


def _tools(*, strict: bool) -> list[dict[str, Any]]:
    return [
        {"type": "function", "function": {"name": name, "strict": strict, "parameters": schema}}
        for name, schema in (("get_weather", CITY), ("get_time", TIME))
    ]


EBNF = 'root ::= "SELECT " column (", " column)? " FROM " table\ncolumn ::= [a-c]\ntable ::= "t" [0-9]{1,2}'
TAG = {
    "type": "structural_tag",
    "format": {
        "type": "sequence",
        "elements": [
            {"type": "const_string", "value": "plan: "},
            {"type": "tag", "begin": "<go>", "content": {"type": "json_schema", "json_schema": CITY}, "end": "</go>"},
        ],
    },
}
CALLS = {"get_weather": CITY, "get_time": TIME}


def _completion(server: Server, structured: dict[str, Any], **more: Any) -> str:
    body = {"model": "model", "prompt": "Answer: ", "max_tokens": 120, "temperature": 0.7, "seed": 1} | more
    status, answer = server.post("/v1/completions", {**body, "structured_outputs": structured})
    expect(status == 200, f"HTTP {status}: {answer}")
    choices = answer["choices"]
    expect(all(choice["finish_reason"] == "stop" for choice in choices), f"not ended: {choices}")
    return str(choices[0]["text"])


def _chat(server: Server, **more: Any) -> dict[str, Any]:
    status, answer = server.post("/v1/chat/completions", _chat_body(**more))
    expect(status == 200, f"HTTP {status}: {answer}")
    return dict(answer["choices"][0]["message"])


def _chat_body(**more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "What is the weather in Oslo for 3 days? Call a function."}]
    return {"model": "model", "messages": messages, "max_tokens": 160, "temperature": 0, "seed": 1} | more


def _check_calls(calls: list[dict[str, Any]], *, at_least: int = 1) -> None:
    expect(len(calls) >= at_least, f"{len(calls)} calls")
    for call in calls:
        function = call["function"]
        jsonschema.validate(json.loads(function["arguments"]), CALLS[function["name"]])


def json_schema(server: Server) -> None:
    jsonschema.validate(json.loads(_completion(server, {"json": PERSON})), PERSON)


def json_object(server: Server) -> None:
    status, answer = server.post(
        "/v1/chat/completions", _chat_body(response_format={"type": "json_object"}, max_tokens=400)
    )
    expect(status == 200, f"HTTP {status}: {answer}")
    choice = answer["choices"][0]
    expect(
        choice["finish_reason"] == "length" or isinstance(json.loads(choice["message"]["content"]), dict),
        f"no object: {choice}",
    )


def regex(server: Server) -> None:
    pattern = "(yes|no), [A-Z][a-z]{2,6} [0-9]{3}"
    expect(re.fullmatch(pattern, _completion(server, {"regex": pattern})), "no match")


def choice(server: Server) -> None:
    choices = ["left", "right", "straight on"]
    expect(_completion(server, {"choice": choices}) in choices, "none of the choices")


def ebnf(server: Server) -> None:
    text = _completion(server, {"grammar": EBNF})
    expect(re.fullmatch(r"SELECT [a-c](, [a-c])? FROM t[0-9]{1,2}", text), f"no sentence: {text!r}")


def structural_tag(server: Server) -> None:
    text = _completion(server, {"structural_tag": json.dumps(TAG)})
    found = re.fullmatch(r"plan: <go>(.*)</go>", text, re.DOTALL)
    if found is None:
        raise Failed(f"no such text: {text!r}")
    jsonschema.validate(json.loads(found[1]), CITY)


def several_at_once(server: Server) -> None:
    body = {"model": "model", "prompt": "Answer: ", "max_tokens": 60, "n": 4, "temperature": 1.0, "seed": 3}
    status, answer = server.post("/v1/completions", {**body, "structured_outputs": {"json": CITY}})
    expect(status == 200 and len(answer["choices"]) == 4, f"HTTP {status}: {answer}")
    for one in answer["choices"]:
        jsonschema.validate(json.loads(one["text"]), CITY)


def tools_required(server: Server) -> None:
    _check_calls(_chat(server, tools=_tools(strict=True), tool_choice="required")["tool_calls"])


def tools_named(server: Server) -> None:
    named = {"type": "function", "function": {"name": "get_time"}}
    calls = _chat(server, tools=_tools(strict=True), tool_choice=named)["tool_calls"]
    _check_calls(calls)
    expect({call["function"]["name"] for call in calls} == {"get_time"}, f"another tool: {calls}")


def tools_auto_strict(server: Server) -> None:
    message = _chat(server, tools=_tools(strict=True), tool_choice="auto")
    _check_calls(message.get("tool_calls") or [], at_least=0)
    # Begun for it, the call must be finished as the tool demands.
    body = _chat_body(tools=_tools(strict=True), tool_choice="auto", temperature=1.0, n=6)
    status, answer = server.post("/v1/chat/completions", body)
    expect(status == 200, f"HTTP {status}: {answer}")
    for one in answer["choices"]:
        if one["finish_reason"] in ("tool_calls", "stop"):
            _check_calls(one["message"].get("tool_calls") or [], at_least=0)


def tools_without_strict(server: Server) -> None:
    """Arguments are any JSON then, of which a small model may write more than it has tokens for: that is cut, not
    wrong.
    """
    body = _chat_body(tools=_tools(strict=False), tool_choice="required", max_tokens=300)
    status, answer = server.post("/v1/chat/completions", body)
    expect(status == 200, f"HTTP {status}: {answer}")
    choice = answer["choices"][0]
    calls = choice["message"].get("tool_calls") or []
    expect(bool(calls) or choice["finish_reason"] == "length", f"no call, and not cut: {choice}")
    expect(all(call["function"]["name"] in CALLS for call in calls), f"unknown tools: {calls}")


def tools_streaming(server: Server) -> None:
    events = server.stream("/v1/chat/completions", _chat_body(tools=_tools(strict=True), tool_choice="required"))
    calls: dict[int, dict[str, str]] = {}
    for event in events:
        for piece in event["choices"][0]["delta"].get("tool_calls") or [] if event.get("choices") else []:
            call = calls.setdefault(piece["index"], {"name": "", "arguments": ""})
            call["name"] += piece["function"].get("name") or ""
            call["arguments"] += piece["function"].get("arguments") or ""
    _check_calls([{"function": call} for call in calls.values()])


def refused(server: Server) -> None:
    """What cannot be served is HTTP 400, with a reason, and the server stays up."""
    cases: list[tuple[dict[str, Any], str]] = [
        ({"json": {"type": "objec"}}, "InvalidSchema"),
        ({"json": {"type": "integer", "minimum": 3, "maximum": 2}}, "UnsatisfiableSchema"),
        ({"regex": "(a"}, "InvalidPattern"),
        ({"grammar": "root ::= (("}, "InvalidGrammar"),
        ({"structural_tag": '{"type": "structural_tag", "format": {"type": "no such"}}'}, ""),
        ({"choice": []}, ""),
    ]
    for structured, reason in cases:
        status, answer = server.post(
            "/v1/completions", {"model": "model", "prompt": "x", "max_tokens": 5, "structured_outputs": structured}
        )
        expect(status == 400 and reason in json.dumps(answer), f"{structured}: HTTP {status}: {answer}")


PARTS = [
    *(json_schema, json_object, regex, choice, ebnf, structural_tag, several_at_once, tools_required, tools_named),
    *(tools_auto_strict, tools_without_strict, tools_streaming, refused),
]


def run() -> dict[str, Any]:
    arguments = (
        *("--structured-outputs-config", '{"backend": "gramary"}', "--enable-auto-tool-choice"),
        *("--tool-call-parser", "hermes", "--chat-template", str(ROOT / "tests/vllm/tools.jinja")),
    )
    errors: dict[str, str] = {}
    with serving(*arguments, log="kinds") as server:

        def one(part: Any) -> None:
            try:
                part(server)
            except Exception as error:
                errors.setdefault(part.__name__, f"{type(error).__name__}: {str(error)[:300]}")

        for part in PARTS:
            one(part)
        mixed = [PARTS[i % len(PARTS)] for i in range(50)]
        with ThreadPoolExecutor(50) as pool:
            list(pool.map(one, mixed))
        alive = server.is_up()
        built = "gramary backend_ready" in server.log_text()
    return {
        "ok": not errors and alive and built,
        "parts": len(PARTS),
        "concurrent": len(mixed),
        "engine_up": alive,
        "errors": errors,
    }
