//! Each technique the kernel is built on, by what would be lost without it.

use std::sync::Arc;

use gramary_compiler::entry::TokenSet;
use gramary_compiler::vocab::{TokenSpec, Vocabulary};
use gramary_compiler::Limits;
use gramary_runtime::tagging::{Frame, NameTemplate, OnError, ToolOptions};
use gramary_runtime::{Bounds, Engine, Grammar, Matcher, SchemaOptions, Source, Tokens};

/// Words of up to three letters, JSON punctuation, every byte, and one special token.
fn vocabulary() -> Vocabulary {
    let mut tokens = vec![TokenSpec::special("</s>")];
    tokens.extend((0..=255u8).map(|b| TokenSpec::text(vec![b])));
    for a in b'a'..=b'z' {
        for b in b'a'..=b'z' {
            tokens.push(TokenSpec::text(vec![a, b]));
            tokens.push(TokenSpec::text(vec![b' ', a, b]));
            tokens.push(TokenSpec::text(vec![a, b, b'"']));
        }
    }
    for t in ["\",", "\":", "\": \"", "{\"", "[]", "[\"", "\"]", ", \"", "</function>", "<function=", "\"}"] {
        tokens.push(TokenSpec::text(t));
    }
    Vocabulary::from_tokens(tokens, vec![("</s>".into(), 0)]).unwrap()
}

fn engine() -> Engine {
    let tokens = Arc::new(Tokens::new(vocabulary()));
    let n = tokens.vocab.len();
    Engine::new(tokens, n, Box::new([0]), 1 << 30)
}

fn schema(e: &Engine, text: &str) -> Arc<Grammar> {
    let source = Source::Schema(SchemaOptions { any_order: true, ..SchemaOptions::default() });
    e.grammar(&source, text.as_bytes(), Limits::default()).unwrap().0
}

/// Follow `text` byte by byte, filling a mask at every position; whether it is a whole word.
fn follow(g: &Arc<Grammar>, text: &str) -> bool {
    let m = Matcher::new(g.clone(), None, 0);
    let mut row = vec![0u32; g.row_words];
    for b in text.bytes() {
        m.fill(&mut row).unwrap();
        if !m.accept_bytes(&[b]).unwrap() {
            return false;
        }
    }
    m.fill(&mut row).unwrap();
    m.is_complete()
}

const PERSON: &str = r#"{"type":"object","properties":{"name":{"type":"string"},"tags":{"type":"array","items":{"type":"string"}}},"required":["name"]}"#;
const DOCUMENT: &str = r#"{"name": "ab cd", "tags": ["ef", "gh"], "other": {"x": [1, 2.5, null]}}"#;

#[test]
fn cross_grammar_cache_shares_units_and_entries() {
    let e = engine();
    assert!(follow(&schema(&e, PERSON), DOCUMENT));
    let (units, entries) = (e.stats().units_built, e.stats().entries_built);
    // Another text of the same schema: other whitespace, other order of keywords and properties, annotations.
    let again = r#"{ "required": ["name"], "title": "P", "type": "object", "properties": {
        "tags": {"items": {"type": "string"}, "type": "array"}, "name": {"type": "string", "description": "who"}}}"#;
    assert!(follow(&schema(&e, again), DOCUMENT));
    assert_eq!((e.stats().units_built, e.stats().entries_built), (units, entries), "nothing new is built");
    // A schema that holds it as a part builds its own unit only.
    let list = format!(r#"{{"type":"array","items":{PERSON}}}"#);
    assert!(follow(&schema(&e, &list), &format!("[{DOCUMENT}]")));
    assert_eq!(e.stats().units_built, units + 1);
}

#[test]
fn interned_sets_do_not_grow_with_text() {
    let e = engine();
    let g = schema(&e, r#"{"type":"array","items":{"type":"array","items":{"type":"integer"}}}"#);
    assert!(follow(&g, "[[1,2],[3]]"));
    let once = g.stats().sets;
    let many = format!("[{}]", vec!["[1,2],[3]"; 500].join(","));
    assert!(follow(&g, &many));
    assert_eq!(g.stats().sets, once, "a text of the same shape meets the same sets");
    for _ in 0..20 {
        assert!(follow(&g, &many));
    }
    assert_eq!(g.stats().sets, once, "requests add nothing");
}

#[test]
fn right_recursion_is_flat() {
    let e = engine();
    let ir = r#"{"rules":[{"name":"r","body":{"expr":{"alt":[{"bytes":"a"},{"seq":[{"bytes":"a,"},{"rule":0}]}]}}}],"root":0}"#;
    let (g, _) = e.grammar(&Source::Ir, ir.as_bytes(), Limits::default()).unwrap();
    assert!(follow(&g, &format!("{}a", "a,".repeat(2_000))));
    assert!(g.stats().sets < 20, "{} sets", g.stats().sets);
}

#[test]
fn entries_are_adaptive() {
    let e = engine();
    let g = schema(&e, PERSON);
    assert!(follow(&g, DOCUMENT));
    let mut forms = [0; 3];
    for (_, node) in e.store.nodes() {
        for entry in node.unit.cache.entries().values() {
            forms[match entry.accepted {
                TokenSet::Accepted(_) => 0,
                TokenSet::Rejected(_) => 1,
                TokenSet::Dense(_) | TokenSet::Shared(..) => 2,
            }] += 1;
        }
    }
    assert!(forms[0] > 0 && forms[1] + forms[2] > 0, "{forms:?}");
}

#[test]
fn entries_serve_every_register_that_answers_alike() {
    let e = engine();
    let properties = ["ab", "cd", "ef", "gh", "ij", "kl"].map(|k| format!(r#""{k}":{{"type":"string"}}"#));
    let g = schema(&e, &format!(r#"{{"type":"object","properties":{{{}}}}}"#, properties.join(",")));
    let document =
        |keys: &[&str]| format!("{{{}}}", keys.iter().map(|k| format!(r#""{k}":"x""#)).collect::<Vec<_>>().join(","));
    assert!(follow(&g, &document(&["ab", "cd", "ef", "gh", "ij", "kl"])));
    let before = e.stats();
    // Each name comes behind others than before, and what was seen matters at the end of a name only.
    assert!(follow(&g, &document(&["kl", "ij", "gh", "ef", "cd", "ab"])));
    let after = e.stats();
    let built = after.entries_built - before.entries_built;
    let kept = after.entries - before.entries;
    assert!(kept >= 10 && built * 4 <= kept as u64, "{built} built of {kept}");
}

#[test]
fn what_is_before_a_key_differs_from_an_opening() {
    let e = engine();
    let of = |name: &str| format!(r#"{{"type":"object","properties":{{"{name}":{{"type":"integer"}}}}}}"#);
    assert!(follow(&schema(&e, &of("ab")), r#"{"ab": 1, "cd": 2}"#));
    let openings = |e: &Engine| -> usize {
        let rests = e.store.nodes().into_iter().filter(|(_, n)| n.unit.name == "rest of a key");
        // Openings come behind the state that ends the stretch.
        let last = |n: &gramary_compiler::unit::Unit| (0..n.states() as u32).find(|&q| n.accepts(q)).unwrap();
        rests.map(|(_, n)| n.unit.cache.entries().keys().filter(|(q, _)| *q > last(&n.unit)).count()).sum()
    };
    let shared = openings(&e);
    assert!(shared > 0);
    // Another object with other names: what is allowed before its keys is told by its names alone.
    let other = schema(&e, &of("cd"));
    assert!(follow(&other, r#"{"ab": 1, "cd": 2}"#));
    assert_eq!(openings(&e), shared);
    let mut differences = 0;
    for (_, node) in e.store.nodes() {
        for ((state, _), entry) in
            node.unit.cache.entries().iter().filter(|((q, _), _)| node.unit.opening(*q).is_some())
        {
            assert_eq!(entry.base, Some(*state));
            assert!(matches!(&entry.accepted, TokenSet::Accepted(ids) if ids.len() < 100), "few tokens by name");
            differences += 1;
        }
    }
    assert!(differences >= 4, "{differences}");
}

#[test]
fn the_rest_of_a_key_is_one_whatever_its_value() {
    let e = engine();
    let of = |value: &str| format!(r#"{{"type":"object","additionalProperties":{value}}}"#);
    let rests = |e: &Engine| -> Vec<usize> {
        let rests = e.store.nodes().into_iter().filter(|(_, n)| n.unit.name == "rest of a key");
        rests.map(|(_, n)| n.unit.cache.entries().len()).collect()
    };
    let first = schema(&e, &of(r#"{"type":"object","properties":{"ab":{"type":"integer"}}}"#));
    assert!(follow(&first, r#"{"ab": {"ab": 1}, "cd": {"ef": "gh"}}"#));
    let known = rests(&e);
    assert!(!known.is_empty() && known.iter().all(|&entries| entries > 0), "{known:?}");
    for value in [r#"{"type":"string","pattern":"^x+$"}"#, r#"{"enum":["ab",null]}"#, r#"{"type":["boolean","null"]}"#]
    {
        let _g = schema(&e, &of(value));
        assert_eq!(rests(&e), known);
    }
    let other = schema(&e, &of(r#"{"type":"array","items":{"enum":["x"]}}"#));
    assert!(follow(&other, r#"{"ab": ["x"], "cd": []}"#));
    assert_eq!(rests(&e), known, "another kind of value takes no entry of a key");
}

#[test]
fn constants_end_pairs_that_objects_share() {
    let e = engine();
    let of = |name: &str| {
        format!(
            r#"{{"type":"object","properties":{{"{name}":{{"type":["string","null"],"maxLength":9}},"x":{{"type":"boolean"}},
            "y":{{"enum":["ab","cd,ef"]}}}}}}"#
        )
    };
    let pairs = |e: &Engine| e.store.nodes().into_iter().filter(|(_, n)| n.unit.name == "rest of a pair").count();
    let _first = schema(&e, &of("ab"));
    let known = pairs(&e);
    let second = schema(&e, &of("cd"));
    assert_eq!(pairs(&e), known);
    assert!(follow(&second, r#"{"cd": null, "x": true, "y": "cd,ef"}"#));
    assert!(!follow(&second, r#"{"cd": null, "x": 1"#));
}

#[test]
fn entries_are_context_free() {
    let e = engine();
    assert!(follow(&schema(&e, r#"{"type":"array","items":{"type":"string"}}"#), r#"["ab","cd"]"#));
    let string_entries = |e: &Engine| -> usize {
        let strings = e.store.nodes().into_iter().filter(|(_, n)| n.unit.name == "string");
        strings.map(|(_, n)| n.unit.cache.entries().len()).sum()
    };
    let before = string_entries(&e);
    assert!(before > 0);
    // The same string in quite another place: what may follow it differs, its entries do not.
    assert!(follow(&schema(&e, PERSON), r#"{"name":"abcd"}"#));
    assert_eq!(string_entries(&e), before);
}

#[test]
fn nothing_is_computed_before_it_is_needed_unless_asked() {
    let e = engine();
    let g = schema(&e, PERSON);
    assert_eq!(e.stats().entries_built, 0);
    let m = Matcher::new(g.clone(), None, 0);
    m.fill(&mut vec![0u32; g.row_words]).unwrap();
    let first = e.stats().entries_built;
    assert!((1..=2).contains(&first), "{first}");
    assert_eq!(g.dearest(5).len(), 5);
    g.prefetch(5);
    let began = std::time::Instant::now();
    while e.stats().entries_built < first + 5 && began.elapsed().as_secs() < 20 {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    assert_eq!(e.stats().entries_built, first + 5);
    // Prefetched entries are the ones that a fill would build.
    assert!(follow(&g, DOCUMENT));
}

#[test]
fn repetition_costs_the_same_whatever_its_bounds() {
    let sizes = |max: u32| {
        let e = engine();
        let list = format!(r#"{{"type":"array","items":{{"type":"integer"}},"minItems":2,"maxItems":{max}}}"#);
        let text = format!(r#"{{"type":"string","minLength":2,"maxLength":{max}}}"#);
        let states = |g: &Arc<Grammar>| -> usize { g.nodes().iter().map(|(_, n)| n.unit.states()).sum() };
        let (a, b) = (schema(&e, &list), schema(&e, &text));
        assert!(follow(&a, &format!("[{}]", vec!["1"; 60].join(","))));
        assert!(follow(&b, &format!("\"{}\"", "ab".repeat(30))));
        assert!(!follow(&a, "[1]") && !follow(&b, "\"a\""));
        (states(&a), states(&b), e.stats().entries, e.stats().units)
    };
    assert_eq!(sizes(1_000), sizes(1_000_000));
}

#[test]
fn strings_of_all_lengths_share_one_unit() {
    let e = engine();
    for max in [3u32, 10, 200, 100_000] {
        let g = schema(&e, &format!(r#"{{"type":"array","items":{{"type":"string","maxLength":{max}}}}}"#));
        assert!(follow(&g, r#"["abc","\u00e9\n"]"#));
        assert_eq!(follow(&g, r#"["abcd"]"#), max > 3);
    }
    let strings = e.store.nodes().iter().filter(|(_, n)| n.unit.name == "string").count();
    assert_eq!(strings, 1);
}

fn tools(e: &Engine, list: &str) -> Arc<Grammar> {
    let options = ToolOptions {
        begin: NameTemplate::parse("<function={name}>").unwrap(),
        end: "</function>",
        frame: Frame { triggers: vec![b"<function=".to_vec()], ..Frame::default() },
        on_error: OnError::Raise,
        schema: SchemaOptions::default(),
        bounds: Bounds::default(),
        limits: Limits::default(),
    };
    e.tools(list.as_bytes(), &options).unwrap().grammar
}

#[test]
fn tag_dispatch_shares_everything_but_the_choice_of_names() {
    let e = engine();
    let list = |names: &[&str]| {
        let one = |n: &&str| format!(r#"{{"name":"{n}","parameters":{PERSON}}}"#);
        format!("[{}]", names.iter().map(one).collect::<Vec<_>>().join(","))
    };
    let text = "free <text <function=ab>{\"name\": \"x\"}</function> more";
    let g = tools(&e, &list(&["ab", "abc", "zz"]));
    assert!(follow(&g, text));
    assert!(!follow(&g, "<function=a>"));
    let before = e.stats();
    let other = tools(&e, &list(&["zz", "ab", "cd"]));
    assert!(follow(&other, text));
    let after = e.stats();
    assert_eq!((before.units_built, before.sources), (after.units_built, after.sources), "no unit is built");
    // What is built is the trie of names, and the few entries of its states.
    assert!(after.entries_built - before.entries_built <= 16, "{before:?} {after:?}");
}

#[test]
fn tag_events_tell_which_tag_and_where() {
    let e = engine();
    let g = tools(&e, &format!(r#"[{{"name":"ab","parameters":{PERSON}}},{{"name":"cd","parameters":true}}]"#));
    let m = Matcher::new(g, None, 100);
    assert!(m.accept_bytes(b"x<function=cd>[1]</function><function=ab>").unwrap());
    let events: Vec<_> = m.tag_events().iter().map(|e| (e.opened, e.tag, e.at)).collect();
    assert_eq!(events, [(true, 1, 14), (false, 1, 28), (true, 0, 41)]);
    assert!(m.tag_events().is_empty());
    m.rollback(1).unwrap();
    assert!(m.accept_bytes(b"<function=ab>").unwrap());
    assert_eq!(m.tag_events().len(), 1);
}

#[test]
fn a_flush_changes_nothing() {
    let e = engine();
    let g = schema(&e, PERSON);
    let m = Matcher::new(g.clone(), None, 100);
    let mut row = vec![0u32; g.row_words];
    let mut masks = vec![];
    for b in DOCUMENT.bytes() {
        m.fill(&mut row).unwrap();
        masks.push(row.clone());
        assert!(m.accept_bytes(&[b]).unwrap());
        if masks.len() % 7 == 0 {
            g.flush();
        }
    }
    for i in (0..masks.len()).rev().take(100) {
        m.rollback(1).unwrap();
        if i % 5 == 0 {
            g.flush();
        }
        m.fill(&mut row).unwrap();
        assert_eq!(row, masks[i], "byte {i}");
    }
    assert!(g.stats().flushes > 10);
}
