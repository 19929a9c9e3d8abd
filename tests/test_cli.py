"""The command line: results, JSON, exit codes and messages."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gramary.cluster.cli import app

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["age"],
    "additionalProperties": False,
}
TOOLS = [
    {"name": "now", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}, "call": {}},
    {"name": "person", "parameters": SCHEMA, "call": {"age": 3}},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Sources and texts of every kind."""
    (tmp_path / "person.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "broken.json").write_text('{"type": "object",\n "properties": ]}')
    (tmp_path / "never.json").write_text('{"type": "integer", "minimum": 2, "maximum": 1}')
    (tmp_path / "tools.jsonl").write_text("".join(json.dumps(tool) + "\n" for tool in TOOLS))
    (tmp_path / "date.regex").write_text("[0-9]{4}-[0-9]{2}\n")
    (tmp_path / "good.txt").write_text('{"name": "Ann",\n "age": 3}')
    (tmp_path / "bad.txt").write_text('{"name": "Ann",\n "age": 3x}')
    (tmp_path / "short.txt").write_text('{"name": "Änn",\n "age"')
    return tmp_path


@pytest.fixture
def tokenizer(folder: Path) -> str:
    """A tokenizer.json of the 256 bytes, a few longer tokens and an end token, byte-level BPE."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in plain]
    letters = {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(rest)}
    vocab = {letters[byte]: byte for byte in range(256)} | {"age": 256, "name": 257, '":': 258}
    end = {"id": 259, "content": "</s>", "special": True, "single_word": False, "lstrip": False, "rstrip": False}
    content = {
        "version": "1.0",
        "added_tokens": [{**end, "normalized": False}],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": vocab, "merges": [["a", "g"], ["ag", "e"]]},
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    return str(folder / "tokenizer.json")


def run(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def run_json(*arguments: object, code: int = 0, stdin: str | None = None) -> dict[str, Any]:
    result = run(*arguments, "--json", stdin=stdin)
    assert result.exit_code == code, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_compile_tells_digest_and_cost(folder: Path, tokenizer: str) -> None:
    answer = run_json("compile", folder / "person.json", "-t", tokenizer)
    assert answer["kind"] == "schema"
    assert len(bytes.fromhex(answer["digest"])) == 32
    assert answer["tokenizer"]["tokens"] == 260
    assert answer["compile_us"] > 0
    assert answer["warnings"] == []
    table = run("compile", folder / "person.json", "-t", tokenizer)
    assert table.exit_code == 0
    assert answer["digest"] in table.stdout


@pytest.mark.parametrize(
    ("name", "kind"), [("tools.jsonl", "tools"), ("date.regex", "regex"), ("person.json", "schema")]
)
def test_the_kind_is_told_by_the_name(folder: Path, tokenizer: str, name: str, kind: str) -> None:
    assert run_json("compile", folder / name, "-t", tokenizer)["kind"] == kind


def test_the_tokenizer_may_come_from_the_environment(
    folder: Path, tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAMARY_TOKENIZER", tokenizer)
    assert run_json("compile", folder / "person.json")["tokenizer"]["path"] == tokenizer


def test_sources_may_come_from_standard_input_or_packed(folder: Path, tokenizer: str) -> None:
    assert run_json("compile", "-", "-t", tokenizer, stdin=json.dumps(TOOLS))["kind"] == "tools"
    (folder / "tools.jsonl.gz").write_bytes(gzip.compress((folder / "tools.jsonl").read_bytes()))
    packed = run_json("compile", folder / "tools.jsonl.gz", "-t", tokenizer)
    assert packed["digest"] == run_json("compile", folder / "tools.jsonl", "-t", tokenizer)["digest"]


def test_check_accepts(folder: Path) -> None:
    result = run("check", folder / "person.json", folder / "good.txt")
    assert result.exit_code == 0
    assert result.stdout == "matches: all 26 bytes\n"
    assert run_json("check", folder / "person.json", folder / "good.txt")["matches"] is True


def test_check_tells_where_a_text_stops_and_what_was_allowed(folder: Path) -> None:
    answer = run_json("check", folder / "person.json", folder / "bad.txt", code=1)
    assert (answer["matches"], answer["stopped"], answer["offset"]) == (False, True, 25)
    assert (answer["line"], answer["column"]) == (2, 10)
    assert answer["found"] == "x}"
    assert {"'0'-'9'", "'}'"} <= set(answer["allowed_bytes"])
    assert "','" not in answer["allowed_bytes"]
    result = run("check", folder / "person.json", folder / "bad.txt")
    assert result.exit_code == 1
    assert "stops at byte 25 (line 2, column 10), at 'x}'" in result.stdout
    assert "'0'-'9'" in result.stdout


def test_check_tells_that_a_text_ends_too_early(folder: Path) -> None:
    answer = run_json("check", folder / "person.json", folder / "short.txt", code=1)
    assert (answer["stopped"], answer["offset"], answer["line"], answer["column"]) == (False, 23, 2, 7)
    assert "':'" in answer["allowed_bytes"]
    assert "ends too early" in run("check", folder / "person.json", folder / "short.txt").stdout


def test_check_tells_allowed_tokens_of_a_tokenizer(folder: Path, tokenizer: str) -> None:
    answer = run_json("check", folder / "person.json", "--text", '{"nope": 1}', "-t", tokenizer, code=1)
    assert answer["offset"] == 3
    assert "a" in answer["examples"][0] or answer["allowed_bytes"] == ["'a'"]
    result = run("check", folder / "person.json", "--text", '{"', "-t", tokenizer)
    assert "tokens allowed:" in result.stdout
    assert "'name'" in result.stdout


def test_check_of_tools_is_free_text(folder: Path) -> None:
    text = 'Well. <function=person>{"age": 3}</function> Done.'
    assert run("check", folder / "tools.jsonl", "--text", text).exit_code == 0
    assert run("check", folder / "tools.jsonl", "--text", "<function=nobody>").exit_code == 1


def test_check_wants_one_text(folder: Path) -> None:
    result = run("check", folder / "person.json")
    assert result.exit_code == 2
    assert "either as a file or with --text" in result.stderr


def test_inspect_lists_units(folder: Path, tokenizer: str) -> None:
    answer = run_json("inspect", folder / "person.json", "-t", tokenizer, "--walk", folder / "good.txt")
    assert answer["units"]
    for unit in answer["units"]:
        assert {"name", "digest", "states", "edges", "entries", "entry_bytes", "build_us", "shared"} <= unit.keys()
    assert sum(unit["entries"] for unit in answer["units"]) > 0
    table = run("inspect", folder / "person.json", "-t", tokenizer)
    assert table.exit_code == 0
    assert answer["units"][0]["digest"][:12] in table.stdout


def test_inspect_wants_a_matching_walk(folder: Path, tokenizer: str) -> None:
    result = run("inspect", folder / "person.json", "-t", tokenizer, "--walk", folder / "bad.txt")
    assert result.exit_code == 2
    assert "does not match" in result.stderr


def test_bench_of_a_schema_and_of_cases(folder: Path, tokenizer: str) -> None:
    arguments = ("bench", folder / "person.json", folder / "tools.jsonl", "-i", folder / "good.txt", "-t", tokenizer)
    answer = run_json(*arguments, "--repeat", 3)
    assert len(answer["rounds"]) == 3
    for one in answer["rounds"]:
        assert (one["cases"], one["refused"], one["wrong"]) == (3, {}, {})
        assert one["mask_count"] > 20
        assert one["mask_p50_us"] > 0
    assert "compile and first mask" in run(*arguments).stdout


def test_bench_exits_1_for_a_wrong_verdict(folder: Path, tokenizer: str) -> None:
    case = {"id": "c", "schema": SCHEMA, "tests": [{"data": {"age": 1}, "valid": True}, {"text": "{}", "valid": True}]}
    (folder / "cases.jsonl").write_text(json.dumps(case))
    answer = run_json("bench", folder / "cases.jsonl", "-t", tokenizer, code=1)
    assert answer["rounds"][0]["wrong"] == {"c": "refused: {}"}


def test_bench_names_the_line_that_is_no_case(folder: Path, tokenizer: str) -> None:
    (folder / "cases.jsonl").write_text(json.dumps(TOOLS[0]) + '\n{"x": 1}\n')
    result = run("bench", folder / "cases.jsonl", "-t", tokenizer)
    assert result.exit_code == 2
    assert "cases.jsonl:2 is not a case" in result.stderr.replace("\n", "")


@pytest.mark.parametrize(
    ("name", "error"),
    [("broken.json", "InvalidSchema"), ("never.json", "UnsatisfiableSchema"), ("gone.json", "InputError")],
)
def test_bad_sources_exit_2_without_a_traceback(folder: Path, tokenizer: str, name: str, error: str) -> None:
    result = run("compile", folder / name, "-t", tokenizer)
    assert result.exit_code == 2
    assert error in result.stderr
    assert "Traceback" not in result.output
    assert run_json("compile", folder / name, "-t", tokenizer, code=2)["error"]["type"] == error


def test_broken_json_is_placed(folder: Path, tokenizer: str) -> None:
    error = run_json("compile", folder / "broken.json", "-t", tokenizer, code=2)["error"]
    assert error["line"] == 2


def test_a_limit_exits_3(folder: Path, tokenizer: str) -> None:
    (folder / "big.regex").write_text("(a|b)*a(a|b){12}c")
    error = run_json("compile", folder / "big.regex", "-t", tokenizer, "--fsm-states", 5, code=3)["error"]
    assert (error["type"], error["limit"], error["value"]) == ("LimitExceeded", "fsm_states", 5)


def test_one_bad_tool_is_named_or_dropped(folder: Path, tokenizer: str) -> None:
    bad = {"name": "bad", "parameters": {"type": "nonsense"}}
    (folder / "mixed.json").write_text(json.dumps([*TOOLS, bad]))
    error = run_json("compile", folder / "mixed.json", "-t", tokenizer, code=2)["error"]
    assert (error["type"], error["index"], error["name"]) == ("ToolError", 2, "bad")
    answer = run_json("compile", folder / "mixed.json", "-t", tokenizer, "--on-error", "drop")
    assert [tool["name"] for tool in answer["dropped_tools"]] == ["bad"]


@pytest.mark.parametrize("option", ["--property-order", "--whitespace", "--on-error", "--kind"])
def test_unknown_values_of_options_exit_2(folder: Path, tokenizer: str, option: str) -> None:
    assert run("compile", folder / "person.json", "-t", tokenizer, option, "purple").exit_code == 2


def test_a_missing_tokenizer_exits_2(folder: Path) -> None:
    result = run("compile", folder / "person.json", "-t", folder / "nowhere")
    assert result.exit_code == 2
    assert "no such tokenizer" in result.stderr


def test_an_unknown_kind_of_file_asks_for_kind(folder: Path) -> None:
    (folder / "source.txt").write_text("a+")
    assert run("check", folder / "source.txt", "--text", "aa").exit_code == 2
    assert run("check", folder / "source.txt", "--text", "aa", "--kind", "regex").exit_code == 0


def test_as_a_program(folder: Path) -> None:
    program = Path(sys.executable).with_name("gramary")
    command = [str(program), "check", str(folder / "person.json"), "-", "--json"]
    done = subprocess.run(
        command, input='{"age": -1}', capture_output=True, text=True, env=dict(os.environ), check=False
    )
    assert done.returncode == 1
    assert done.stderr == ""
    assert json.loads(done.stdout)["offset"] == 9
    assert subprocess.run([str(program), "version"], capture_output=True, text=True, check=True).stdout == "0.1.0\n"
