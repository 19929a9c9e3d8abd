//! What the engine's cache holds is kept count of, and stays within its budget.

use std::collections::HashMap;
use std::sync::Arc;

use gramary_compiler::unit::EntryKey;
use gramary_compiler::vocab::{TokenSpec, Vocabulary};
use gramary_compiler::Limits;
use gramary_runtime::{Engine, Grammar, Matcher, SchemaOptions, Source, Tokens};

fn engine(budget: usize) -> Engine {
    let mut tokens = vec![TokenSpec::special("</s>")];
    tokens.extend((0..=255u8).map(|b| TokenSpec::text(vec![b])));
    let vocab = Vocabulary::from_tokens(tokens, vec![("</s>".into(), 0)]).unwrap();
    Engine::new(Arc::new(Tokens::new(vocab)), 257, Box::new([0]), budget)
}

/// A schema with parts of its own and parts that others have too, and a text it matches.
fn schema(i: usize) -> (String, String) {
    let schema = format!(
        r#"{{"type":"object","properties":{{"own_{i}":{{"enum":["value {i}","other"]}},"at":{{"type":"array","items":{{"type":"integer","maximum":99}}}}}},"required":["own_{i}"]}}"#
    );
    (schema, format!(r#"{{"own_{i}": "value {i}", "at": [1, 22]}}"#))
}

fn follow(e: &Engine, i: usize) -> Arc<Grammar> {
    let (schema, text) = schema(i);
    let g = e.grammar(&Source::Schema(SchemaOptions::default()), schema.as_bytes(), Limits::default()).unwrap().0;
    let m = Matcher::new(g.clone(), None, 0);
    let mut row = vec![0u32; g.row_words];
    for b in text.bytes() {
        m.fill(&mut row).unwrap();
        assert!(m.accept_bytes(&[b]).unwrap());
    }
    g
}

/// What the units of the store hold: entries, and their bytes with those of families.
fn held(e: &Engine) -> (usize, usize) {
    let units: HashMap<_, _> = e.store.nodes().into_iter().map(|(_, n)| (Arc::as_ptr(&n.unit), n)).collect();
    let caches = units.values().map(|n| &n.unit.cache);
    caches.fold((0, 0), |(count, bytes), c| {
        // One that serves several registers counts once, and for each of the others what its key takes.
        let once: HashMap<_, _> = c.entries().values().map(|e| (Arc::as_ptr(e), e.size())).collect();
        let others = (c.entries().len() - once.len()) * std::mem::size_of::<EntryKey>();
        let entries = once.values().sum::<usize>() + others;
        let families = c.families().values().flatten().map(|f| f.size()).sum::<usize>();
        (count + c.entries().len(), bytes + entries + families)
    })
}

fn check(e: &Engine) {
    assert_eq!((e.store.meter().entries(), e.store.meter().bytes()), held(e));
}

#[test]
fn the_meter_says_what_the_units_hold() {
    let e = engine(1 << 30);
    let mut live = vec![];
    for i in 0..40 {
        let g = follow(&e, i % 25);
        check(&e);
        if i % 3 == 0 {
            live.push(g);
        }
    }
    assert!(e.store.meter().entries() > 25);
    e.clear();
    check(&e);
    drop(live);
    e.clear();
    check(&e);
    assert_eq!(e.store.len(), 0);
    assert_eq!((e.store.meter().entries(), e.store.meter().bytes()), (0, 0));
}

#[test]
fn the_least_recently_used_go_and_a_few_at_a_time() {
    let budget = 400_000;
    let e = engine(budget);
    let mut before = e.stats();
    for i in 0..600 {
        follow(&e, i);
        // Asked for again and again, so never the oldest.
        follow(&e, 0);
        check(&e);
        let now = e.stats();
        // Entries are built after the check that their source's compile makes; one source's are a few kilobytes.
        assert!(now.bytes < budget + 50_000, "{} after {i}", now.bytes);
        assert!(now.evictions - before.evictions < 30, "{} at once", now.evictions - before.evictions);
        before = now;
    }
    assert!(before.evictions > 300);
    let misses = e.stats().source_misses;
    follow(&e, 0);
    assert_eq!(e.stats().source_misses, misses, "what is used stays");
    follow(&e, 1);
    assert_eq!(e.stats().source_misses, misses + 1, "what is not used goes");
}
