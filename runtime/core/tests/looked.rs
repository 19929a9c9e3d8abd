//! An entry that is taken over for another key register is the one that would have been built for it.

use std::sync::Arc;

use gramary_compiler::entry::{build, diff, Entry};
use gramary_compiler::machine::{Looked, Machine};
use gramary_compiler::vocab::{TokenSpec, Vocabulary};
use gramary_compiler::Limits;
use gramary_runtime::{Engine, SchemaOptions, Source, Tokens};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

const NAMES: [&str; 10] = ["a", "ab", "abc", "abd", "b", "ba", "c", "é", "ca\"b", "zz"];

/// Every byte, parts of names, and tokens across one pair and several.
fn vocabulary() -> Vocabulary {
    let mut tokens = vec![TokenSpec::special("</s>")];
    tokens.extend((0..=255u8).map(|b| TokenSpec::text(vec![b])));
    for t in [
        "ab",
        "bc",
        "\"a",
        "\"ab",
        "a\"",
        "\":",
        "\",\"",
        ",\"",
        ", \"",
        "{\"",
        "\"}",
        "1}",
        ",\"a",
        ",\"ab",
        " \"c",
        "1,\"b",
        ":1,\"a",
        "\"a\":1",
        "\"a\":1,\"b\":1",
        "\"b\":1,\"a\":1",
        "\"c\":1}",
        "\":1,\"zz\":1",
        "\":1,\"zz\":1}",
        "zz\":1,\"b",
        "}}",
        "}]",
        "\\u00",
        "\":{\"a\":{\"b\":",
        "a\":1},\"a",
        "\u{e9}\":1,",
    ] {
        tokens.push(TokenSpec::text(t));
    }
    Vocabulary::from_tokens(tokens, vec![("</s>".into(), 0)]).unwrap()
}

fn build_entry(tokens: &Tokens, machine: &mut Machine, node: u32, state: u32, regs: &[u32]) -> (Entry, Option<Looked>) {
    machine.clear();
    let id = machine.intern_regs(regs);
    machine.watch(node, id);
    let base = machine.unit(node).base_of(state);
    let (vocab, masks) = (&tokens.vocab, &tokens.masks);
    let difference = base.and_then(|b| diff::build(machine, vocab, masks, node, state, id, b));
    let mut entry = difference.unwrap_or_else(|| build::build(machine, vocab, masks, node, state, id));
    entry.cost = 0;
    (entry, machine.looked())
}

#[derive(Debug, Clone)]
struct Object {
    names: Vec<&'static str>,
    required: Vec<&'static str>,
    value: &'static str,
    more: &'static str,
    any_order: bool,
}

fn objects() -> impl Strategy<Value = Object> {
    let names = subsequence(NAMES.to_vec(), 1..=NAMES.len());
    let values = select(vec![r#"{"type":"integer"}"#, r##"{"$ref":"#"}"##, r#"{"const":1}"#]);
    let more = select(vec![
        r#""additionalProperties":false"#,
        r#""additionalProperties":{"type":"integer"}"#,
        r#""additionalProperties":false,"maxProperties":3"#,
        r#""additionalProperties":false,"minProperties":2"#,
        r#""maxProperties":3"#,
        r#""patternProperties":{"^z":{"type":"boolean"}}"#,
    ]);
    (names, values, more, any::<bool>()).prop_flat_map(|(names, value, more, any_order)| {
        let most = names.len().min(3);
        subsequence(names.clone(), 0..=most).prop_map(move |required| Object {
            names: names.clone(),
            required,
            value,
            more,
            any_order,
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn alike_registers_have_equal_entries(object in objects(), seeds in prop::collection::vec(any::<u64>(), 6)) {
        let quoted = |name: &&str| serde_json::to_string(name).unwrap();
        let pairs: Vec<String> = object.names.iter().map(|n| format!("{}:{}", quoted(n), object.value)).collect();
        let required: Vec<String> = object.required.iter().map(quoted).collect();
        let schema = format!(
            r#"{{"type":"object","properties":{{{}}},"required":[{}],{}}}"#,
            pairs.join(","), required.join(","), object.more
        );
        let tokens = Arc::new(Tokens::new(vocabulary()));
        let engine = Engine::new(tokens.clone(), tokens.vocab.len(), Box::new([0]), 1 << 30);
        let source = Source::Schema(SchemaOptions { any_order: object.any_order, ..SchemaOptions::default() });
        // A required value that is the object itself has no end.
        let Ok((grammar, _)) = engine.grammar(&source, schema.as_bytes(), Limits::default()) else { return Ok(()) };
        let mut machine = Machine::new(grammar.program.clone(), 1000, tokens.reach());
        for (link, node) in grammar.nodes() {
            let layout = &node.unit.layout;
            let Some(keys) = &layout.keys else { continue };
            let number = machine.bind(link);
            let files: Vec<Vec<u32>> = seeds.iter().map(|&seed| {
                let counters = (0..layout.counters as u64).flat_map(|i| [(seed >> (60 - i)) as u32 & 1, 2]);
                let position = seed as u32 % (keys.count + 1);
                let seen = (seed >> 8) as u32 & ((1u32 << keys.count) - 1);
                counters.chain([if object.any_order { seen } else { position }]).collect()
            }).collect();
            for state in 0..node.unit.states() as u32 {
                let built: Vec<_> = files.iter().map(|f| build_entry(&tokens, &mut machine, number, state, f)).collect();
                for (a, (entry, looked)) in files.iter().zip(&built) {
                    let looked = looked.as_ref().unwrap();
                    prop_assert!(looked.alike(layout, a, a));
                    for (b, (other, _)) in files.iter().zip(&built).filter(|(b, _)| *b != a) {
                        if looked.alike(layout, a, b) {
                            prop_assert_eq!(entry, other, "{} state {} {:?} {:?} {:?}", schema, state, looked, a, b);
                        }
                    }
                }
            }
        }
    }
}
