//! Tests of the schema front end: whole schemas against instances, through the naive matcher.

use serde_json::{json, Value};

use super::*;
use crate::limits::Limits;

fn budget() -> Budget {
    Budget::new(Limits::default())
}

fn options() -> Options {
    Options { order: PropertyOrder::Any, ..Options::default() }
}

fn compiled(schema: &Value) -> Compiled {
    compile(schema, &options(), &budget()).unwrap_or_else(|e| panic!("{schema}: {e}"))
}

/// Valid and invalid texts.
fn check(schema: Value, valid: &[&str], invalid: &[&str]) {
    let c = compiled(&schema);
    for (list, want) in [(valid, true), (invalid, false)] {
        for text in list {
            assert_eq!(naive::matches(&c.grammar, text.as_bytes()), want, "{schema} on {text}");
        }
    }
}

fn error(schema: Value) -> CompileError {
    match compile(&schema, &options(), &budget()) {
        Ok(c) => panic!("{schema} compiled: {:?}", c.grammar),
        Err(e) => e,
    }
}

#[test]
fn types_and_any_value() {
    check(json!({}), &["null", "[1, {\"a\": []}]", "\"x\"", "-1.5e3", "{ }"], &["", "nul", "[1,]", " 1"]);
    check(json!({"type": ["string", "null"]}), &["\"\\u00e9\"", "null"], &["1", "\"\n\""]);
    check(json!({"type": "integer"}), &["1", "-0", "1.0"], &["1.5", "01"]);
    check(json!({"type": "boolean", "not": {"const": true}}), &["false"], &["true", "0"]);
}

#[test]
fn strings_compose() {
    check(json!({"type": "string", "pattern": "^[a-z]+$", "maxLength": 3}), &["\"abc\""], &["\"abcd\"", "\"\""]);
    check(json!({"type": "string", "maxLength": 5}), &[r#""a\n\"b\"""#], &["\"a\nb\"", "\"123456\""]);
    check(
        json!({"$ref": "#/$defs/s", "maxLength": 2, "$defs": {"s": {"type": "string"}}}),
        &["\"ab\""],
        &["\"abc\"", "1"],
    );
    check(
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/s", "maxLength": 2,
               "definitions": {"s": {"type": "string"}}}),
        &["\"abc\""],
        &["1"],
    );
    check(json!({"type": "string", "not": {"pattern": "a"}}), &["\"bc\""], &["\"bac\""]);
    check(json!({"type": "string", "not": {"enum": ["a", "b"]}}), &["\"c\"", "\"ab\""], &["\"a\"", r#""\u0061""#]);
}

#[test]
fn objects() {
    let open = json!({"type": "object", "properties": {"name": {"type": "string"}},
                      "additionalProperties": {"type": "integer"}});
    check(open, &["{}", r#"{"x": 1, "name": "n"}"#], &[r#"{"name": 1}"#, r#"{"n\u0061me": 1}"#, r#"{"x": "y"}"#]);
    check(
        json!({"properties": {"foo": {"type": "array"}}, "patternProperties": {"f.o": {"minItems": 2}},
               "additionalProperties": {"type": "null"}}),
        &[r#"{"foo": [1, 2]}"#, r#"{"fxo": [1, 2]}"#, r#"{"fxo": 1}"#, r#"{"bar": null}"#, "3"],
        &[r#"{"foo": [1]}"#, r#"{"foo": 1}"#, r#"{"fxo": [1]}"#, r#"{"bar": 1}"#],
    );
    check(
        json!({"type": "object", "propertyNames": {"pattern": "^a"}, "required": ["ab"]}),
        &[r#"{"ab": 1}"#, r#"{"ab": 1, "a": 2}"#],
        &["{}", r#"{"ab": 1, "b": 2}"#],
    );
    check(
        json!({"type": "object", "propertyNames": {"enum": ["a", "b"]}, "minProperties": 2}),
        &[r#"{"b": 1, "a": 2}"#],
        &[r#"{"a": 1}"#, r#"{"a": 1, "c": 2}"#],
    );
    check(json!({"type": "object", "minProperties": 1}), &[r#"{"a": 1}"#], &["{}"]);
}

#[test]
fn choices() {
    let required = json!({"anyOf": [{"required": ["a"]}, {"required": ["b"]}],
                          "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}});
    check(required, &[r#"{"a": 1}"#, r#"{"b": 1, "a": 2}"#, "[]"], &["{}", r#"{"a": "x"}"#]);
    let shapes = json!({"oneOf": [
        {"type": "object", "required": ["kind", "r"], "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}}},
        {"type": "object", "required": ["kind", "w"], "properties": {"kind": {"const": "box"}, "w": {"type": "number"}}}]});
    check(shapes, &[r#"{"kind": "box", "w": 1, "r": "x"}"#], &[r#"{"kind": "box", "r": 1}"#, r#"{"kind": "x"}"#]);
    check(
        json!({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
        &[r#"{"a": 1}"#, r#"{"b": 1}"#],
        &["{}", r#"{"a": 1, "b": 2}"#, "1"],
    );
    check(json!({"oneOf": [{"type": "integer"}, {"type": "number"}]}), &["1.5"], &["1", "\"a\""]);
    check(
        json!({"if": {"properties": {"k": {"const": 1}}, "required": ["k"]}, "then": {"required": ["a"]},
               "else": {"required": ["b"]}}),
        &[r#"{"k": 1, "a": 0}"#, r#"{"k": 2, "b": 0}"#, r#"{"b": 0}"#],
        &[r#"{"k": 1, "b": 0}"#, r#"{"k": 2, "a": 0}"#, "{}"],
    );
    check(json!({"dependentRequired": {"a": ["b"]}}), &["{}", r#"{"b": 1}"#, r#"{"a": 1, "b": 2}"#], &[r#"{"a": 1}"#]);
    check(json!({"not": {"required": ["a"]}}), &["{}"], &[r#"{"a": 1}"#, "1"]);
}

#[test]
fn overlapping_branches_exclude_each_other() {
    let place = |country: &str| json!({"properties": {"country": {"enum": [country]}, "zip": {"maxLength": 3}}});
    let many: Vec<Value> = ["A", "B", "C", "D", "E", "F", "G", "H"].iter().map(|c| place(c)).collect();
    check(
        json!({"type": "object", "oneOf": many}),
        &[r#"{"country": "C", "zip": "1"}"#],
        &[r#"{"country": "C", "zip": "1234"}"#, r#"{"country": "X"}"#, "{}", r#"{"zip": "1"}"#],
    );
    check(
        json!({"type": "number", "multipleOf": 2, "not": {"multipleOf": 3}}),
        &["2", "-4.0", "8"],
        &["6", "3", "1", "0"],
    );
    check(json!({"not": {"multipleOf": 0.5}, "type": "number"}), &["0.25", "1.1"], &["1.5", "10", "1e1"]);
}

#[test]
fn formats_of_numbers_and_strings() {
    check(json!({"type": "integer", "format": "int32"}), &["2147483647"], &["2147483648"]);
    check(json!({"format": "date"}), &["\"2024-02-29\"", "5"], &["\"2023-02-29\""]);
    let c = compiled(&json!({"format": "no such"}));
    assert_eq!(c.warnings[0].keyword, "format");
    check(
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "contentEncoding": "base64"}),
        &["\"YQ==\"", "1"],
        &["\"%\""],
    );
}

#[test]
fn what_is_not_taken_of_a_format_is_not_without_it() {
    // A pattern with names in any order, which `format: regex` does not take, and a name in two scripts.
    let (pattern, name) = (r"(?<b>x)(?<a>y)", "aб");
    for (format, value) in [("regex", pattern), ("idn-hostname", name)] {
        let with = json!({"format": format});
        for schema in [
            json!({"type": "string", "not": with}),
            json!({"type": "string", "if": with, "then": {"maxLength": 9}}),
            json!({"type": "string", "oneOf": [with, {"pattern": "^[(a]"}]}),
        ] {
            let e = error(schema.clone());
            assert!(matches!(&e, CompileError::Unsupported { .. }), "{schema}: {e}");
        }
        // Asked for it can be; and of what is no string nothing is asked.
        check(json!({"type": ["string", "integer"], "oneOf": [with, {"type": "integer"}]}), &["\"a\""], &["1"]);
        check(
            json!({"type": ["null", "string"], "not": {"type": "string", "minLength": 2}, "format": format}),
            &["null"],
            &["\"(\""],
        );
        if format == "idn-hostname" {
            let e = error(json!({"enum": [value, 1], "format": format}));
            assert!(matches!(e, CompileError::Unsupported { .. }), "{e}");
        }
    }
    // Of a value, whether it is a pattern is known.
    check(json!({"enum": [pattern, "(", 1], "format": "regex"}), &["1", "\"(?<b>x)(?<a>y)\""], &["\"(\""]);
    check(
        json!({"enum": [pattern, "(", 1], "not": {"type": "string", "format": "regex"}}),
        &["1", "\"(\""],
        &["\"(?<b>x)(?<a>y)\""],
    );
}

#[test]
fn arrays() {
    check(
        json!({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": {"type": "null"},
               "minItems": 1}),
        &["[1]", "[1, \"a\"]", "[1,\"a\",null,null]"],
        &["[]", "[\"a\"]", "[1, \"a\", 2]"],
    );
    check(json!({"type": "array", "minItems": 2, "maxItems": 3}), &["[1,2]", "[1,2,3]"], &["[1]", "[1,2,3,4]", "[,1]"]);
    check(json!({"type": "array", "items": false}), &["[]", "[ ]"], &["[1]"]);
    check(
        json!({"type": "array", "contains": {"type": "integer"}, "minContains": 2, "maxContains": 3}),
        &["[1, \"a\", 2]", "[1,2,3]"],
        &["[1]", "[1,2,3,4]", "[]"],
    );
    check(
        json!({"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": true}),
        &["[]", "[\"b\", \"a\"]"],
        &["[\"a\", \"a\"]"],
    );
}

#[test]
fn unevaluated() {
    check(
        json!({"type": "object", "properties": {"a": true}, "anyOf": [{"properties": {"b": true}, "required": ["b"]},
               {"properties": {"c": true}, "required": ["c"]}], "unevaluatedProperties": false}),
        &[r#"{"a": 1, "b": 2}"#, r#"{"b": 1, "c": 2}"#],
        &[r#"{"a": 1}"#, r#"{"b": 1, "d": 2}"#],
    );
    check(
        json!({"properties": {"foo": true}, "not": {"not": {"properties": {"bar": true}, "required": ["bar"]}},
               "type": "object", "unevaluatedProperties": {"type": "string"}}),
        &[r#"{"foo": 1, "bar": "b"}"#],
        &[r#"{"bar": 1}"#],
    );
    check(
        json!({"type": "array", "prefixItems": [true], "contains": {"type": "string"}, "unevaluatedItems": false}),
        &["[1, \"a\"]", "[\"a\"]"],
        &["[1, \"a\", 2]", "[1]"],
    );
}

#[test]
fn constants() {
    check(
        json!({"const": {"a": [1, "x/y"], "b": null}}),
        &[r#"{"b": null, "a": [1, "x\/y"]}"#],
        &[r#"{"a": [1, "x/y"]}"#, "1"],
    );
    check(
        json!({"type": "object", "required": ["a"], "enum": [{"a": 1}, {"b": 1}, 3]}),
        &[r#"{"a":1}"#],
        &[r#"{"b":1}"#, "3"],
    );
}

#[test]
fn recursion() {
    let tree = json!({"$id": "http://x/tree", "type": "object", "properties": {"kids": {"type": "array",
                      "items": {"$ref": "#"}}}, "additionalProperties": false});
    check(tree, &["{}", r#"{"kids": [{}, {"kids": []}]}"#], &[r#"{"kids": [1]}"#]);
    assert!(matches!(error(json!({"$ref": "#"})), CompileError::Invalid { .. }));
    let endless = json!({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}});
    assert!(matches!(error(endless), CompileError::Unsatisfiable { .. }));
}

#[test]
fn errors_are_placed() {
    let e = error(json!({"properties": {"a/b": {"type": "array", "uniqueItems": true, "contains": true}}}));
    assert!(
        matches!(&e, CompileError::Unsupported { pointer, keyword, .. }
            if pointer == "/properties/a~1b/uniqueItems" && keyword == "uniqueItems"),
        "{e:?}"
    );
    let closed = json!({"type": "object", "required": ["a"], "additionalProperties": false});
    assert!(matches!(error(closed), CompileError::Unsatisfiable { .. }));
    assert!(matches!(error(json!({"type": "strin"})), CompileError::Invalid { .. }));
    assert!(matches!(error(json!({"$ref": "#/$defs/x"})), CompileError::Invalid { .. }));
    let lenient = Options { lenient: true, ..options() };
    let c = compile(&json!({"uniqueItems": true, "contains": true}), &lenient, &budget()).unwrap();
    assert_eq!(c.warnings[0].pointer, "/uniqueItems");
}

#[test]
fn hostile_sources_end() {
    let nest = |n: usize, open: &str, close: &str| {
        let text = format!("{}true{}", open.repeat(n), close.repeat(n));
        let budget = budget();
        let value = parse(text.as_bytes(), &budget)?;
        compile(&value, &options(), &budget)
    };
    // The default stack of a thread.
    std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(move || {
            assert!(nest(1_000, r#"{"items":"#, "}").is_ok());
            assert!(nest(1_900, r#"{"properties":{"a":"#, "}}").is_err());
            assert!(nest(900, r#"{"not":"#, "}").is_ok());
            assert!(nest(600, r#"{"anyOf":[{"type":"string"},"#, "]}").is_ok());
            assert!(nest(600, r#"{"type":"object","allOf":["#, "]}").is_ok());
            assert!(nest(10_000, r#"{"items":"#, "}").is_err());
            let _ = nest(12, r#"{"oneOf":[{"required":["a"]},"#, "]}");
        })
        .unwrap()
        .join()
        .unwrap();
    let wide: serde_json::Map<String, Value> =
        (0..50_000).map(|i| (format!("p{i}"), json!({"type": "string"}))).collect();
    compiled(&json!({"properties": wide}));
    // Two ways from each place to the next: 2^40 paths.
    let mut ways = serde_json::Map::new();
    for i in 0..40 {
        let next = json!({"$ref": format!("#/$defs/s{}", i + 1)});
        ways.insert(format!("s{i}"), json!({"allOf": [next, next]}));
    }
    ways.insert("s40".into(), json!({"type": "object", "required": ["a"]}));
    let plain = json!({"$ref": "#/$defs/s0", "$defs": ways});
    check(plain, &[r#"{"a": 1}"#], &["{}"]);
    let _ = compile(&json!({"$ref": "#/$defs/s0", "unevaluatedItems": false, "$defs": ways}), &options(), &budget());
    let names: Vec<String> = (0..5_000).map(|i| format!("name {i}")).collect();
    compiled(&json!({"enum": names}));
}

/// Alternatives that have to be told apart, of values that have such alternatives of their own, and so on.
#[test]
fn alternatives_that_contain_themselves_end() {
    let member = json!({"$ref": "#/$defs/value"});
    let object = |properties: Value, required: Value, open: bool| {
        let mut object = json!({"type": "object", "properties": properties, "required": required});
        if !open {
            object["additionalProperties"] = json!(false);
        }
        object
    };
    let named = json!({"patternProperties": {"^x": member}, "additionalProperties": false, "minProperties": 1});
    let mut others = named.clone();
    others["not"] = json!({"required": ["xa"]});
    let alternatives = [
        object(json!({"xa": member, "xb": member}), json!(["xa", "xb"]), true),
        object(json!({"ref": {"type": "string"}}), json!(["ref"]), false),
        object(json!({"kind": {"enum": []}}), json!(["kind"]), false),
        json!({"type": "object", "patternProperties": {"^[0-9]+x$": {}}}),
        others,
        named,
        json!({"type": "object", "patternProperties": {"^[0-9]+x$": member}}),
        json!({"type": "object", "additionalProperties": member, "minProperties": 1}),
        json!({"type": "array", "items": member, "minItems": 1}),
        json!({"type": "array", "contains": member}),
    ];
    let tried = move || {
        for keyword in ["oneOf", "anyOf"] {
            for skip in 0..1u32 << alternatives.len() {
                // Five of them, and all.
                let chosen: Vec<&Value> =
                    (0..alternatives.len()).filter(|i| skip >> i & 1 == 0).map(|i| &alternatives[i]).collect();
                if chosen.len() != 5 && skip != 0 {
                    continue;
                }
                let value = json!({"oneOf": [{keyword: chosen}]});
                let schema = json!({"patternProperties": {"^[a-z]": member}, "$defs": {"value": value}});
                for lenient in [false, true] {
                    let options = Options { lenient, ..options() };
                    let few = Budget::new(Limits { fsm_states: 20_000, ..Limits::default() });
                    // Compiled or refused.
                    let _ = compile(&schema, &options, &few);
                }
            }
        }
    };
    // The default stack of a thread.
    std::thread::Builder::new().stack_size(2 << 20).spawn(tried).unwrap().join().unwrap();
}

#[test]
fn counting_long_arrays_ends() {
    // Unique items, that many of which are counted: found by fuzzing.
    let arrays = |items: Value, min: u64| {
        let item = json!({"type": "array", "items": items, "uniqueItems": true, "minItems": min});
        json!({"items": item, "uniqueItems": true, "maxItems": 3})
    };
    for items in [json!({}), json!({"type": "integer"}), json!({"const": 1}), json!({"enum": [1, 2]})] {
        let _ = compile(&arrays(items, 42_949_672_952), &options(), &budget()).map_err(|e| match e {
            CompileError::Limit { name: "seconds", .. } => panic!("{e}"),
            e => e,
        });
    }
    // One array of each length, two lengths.
    let ones = json!({"type": "array", "items": {"const": 1}, "minItems": 2, "maxItems": 3});
    let schema = json!({"type": "array", "items": ones, "uniqueItems": true});
    check(schema, &["[]", "[[1, 1]]", "[[1, 1], [1, 1, 1]]"], &["[[1]]", "[[1, 1], [1, 1, 1], [1, 1]]"]);
}
