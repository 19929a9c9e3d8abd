//! Which mask entries a schema's documents need, and what each costs:
//! `cargo run --release --example entries -- TOKENIZER.json SCHEMA.json DOCUMENT.json`

use std::sync::Arc;

use gramary_compiler::entry::{build, diff, TokenSet};
use gramary_compiler::machine::Machine;
use gramary_compiler::vocab::Vocabulary;
use gramary_compiler::Limits;
use gramary_runtime::{Engine, Matcher, SchemaOptions, Source, Tokens};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, tokenizer, schema, document] = args.as_slice() else { return Err("three files, please".into()) };
    let tokens = Arc::new(Tokens::new(Vocabulary::from_huggingface(&std::fs::read(tokenizer)?)?));
    let size = tokens.vocab.len();
    let engine = Engine::new(tokens.clone(), size, Box::new([0]), 1 << 30);
    engine.prewarm()?;
    let source = Source::Schema(SchemaOptions { any_order: true, ..SchemaOptions::default() });
    let (grammar, _) = engine.grammar(&source, &std::fs::read(schema)?, Limits::default())?;
    let text = std::fs::read(document)?;
    let matcher = Matcher::new(grammar.clone(), None, 0);
    let mut row = vec![0u32; grammar.row_words];
    let trie = tokens.vocab.trie();
    let mut at = 0;
    while at < text.len() {
        // The longest token, greedily: near enough to the real tokenizer.
        let (mut node, mut best) = (0, None);
        for (i, &b) in text[at..].iter().enumerate() {
            let Some(next) = trie.child(node, b) else { break };
            node = next;
            if let Some(&t) = trie.tokens_at(node).first() {
                best = Some((i + 1, t));
            }
        }
        let Some((len, token)) = best else { return Err("no token fits".into()) };
        let before = tokens.builds.load(std::sync::atomic::Ordering::Relaxed);
        let began = std::time::Instant::now();
        matcher.fill(&mut row)?;
        let took = began.elapsed();
        let sets = grammar.stats().sets;
        let built = tokens.builds.load(std::sync::atomic::Ordering::Relaxed) - before;
        if !matcher.accept(token)? {
            return Err(
                format!("{:?} is not allowed at byte {at}", String::from_utf8_lossy(&text[at..at + len])).into()
            );
        }
        println!(
            "{:>8.1} us {built} built {sets:>5} sets {:?}",
            took.as_secs_f64() * 1e6,
            String::from_utf8_lossy(&text[at..at + len])
        );
        at += len;
    }
    // Build each entry of the schema's own units again, warm, and time it.
    let mut machine = Machine::new(grammar.program.clone(), 1000, tokens.reach());
    let mut costs = vec![];
    for (link, node) in grammar.nodes() {
        let n = machine.bind(link);
        for ((state, regs), entry) in node.unit.cache.entries().iter() {
            let regs = machine.intern_regs(regs);
            let mut best = u128::MAX;
            for _ in 0..20 {
                let began = std::time::Instant::now();
                match entry.base {
                    Some(base) => {
                        diff::build(&mut machine, &tokens.vocab, &tokens.masks, n, *state, regs, base);
                    }
                    None => {
                        build::build(&mut machine, &tokens.vocab, &tokens.masks, n, *state, regs);
                    }
                }
                best = best.min(began.elapsed().as_nanos());
            }
            let form = match &entry.accepted {
                TokenSet::Accepted(v) => format!("accepted {}", v.len()),
                TokenSet::Rejected(v) => format!("rejected {}", v.len()),
                TokenSet::Shared(_, v) => format!("shared and {}", v.len()),
                TokenSet::Dense(_) => format!("dense {}", entry.accepted.len(&tokens.masks)),
            };
            let rest: usize = entry.exits.iter().map(|e| e.rest.byte.len()).sum();
            costs.push((best, entry.cost, node.unit.name.clone(), *state, entry.base.is_some(), form, rest));
        }
    }
    costs.sort();
    for (warm, cold, unit, state, diff, form, rest) in costs.iter().rev().take(4000) {
        println!(
            "warm {warm:>8} ns  first {cold:>8} ns  {unit} {state} {} {form}, {rest} remainder nodes",
            if *diff { "diff" } else { "" }
        );
    }
    Ok(())
}
