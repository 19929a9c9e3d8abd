"""The bundled catalogue: names, schemas and calls are what NOTICE says."""

import re
from pathlib import Path
from typing import Any

import jsonschema

DATA = Path(__file__).parent / "data"


def test_names_are_unique_and_usable(catalogue: list[dict[str, Any]]) -> None:
    names = [tool["name"] for tool in catalogue]
    assert len(names) == len(set(names)) >= 400
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name) for name in names)


def test_parameters_are_json_schemas_of_objects(catalogue: list[dict[str, Any]]) -> None:
    for tool in catalogue:
        jsonschema.Draft202012Validator.check_schema(tool["parameters"])
        assert tool["parameters"]["type"] == "object"


def test_calls_are_valid_and_in_declared_order(catalogue: list[dict[str, Any]]) -> None:
    calls = [tool for tool in catalogue if tool["call"] is not None]
    assert len(calls) >= 400
    for tool in calls:
        jsonschema.Draft202012Validator(tool["parameters"]).validate(tool["call"])
        declared = list(tool["parameters"].get("properties", {}))
        assert list(tool["call"]) == [name for name in declared if name in tool["call"]]


def test_notice_counts_agree(catalogue: list[dict[str, Any]]) -> None:
    text = (DATA / "NOTICE").read_text()
    assert f"{len(catalogue):,} tool schemas" in text
    assert f"{sum(tool['call'] is not None for tool in catalogue):,} of them with one valid example call" in text


def test_the_file_is_small() -> None:
    assert (DATA / "tools.jsonl.gz").stat().st_size < 400_000
