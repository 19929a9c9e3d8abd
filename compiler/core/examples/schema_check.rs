//! Development checker: compile the schemas of a data set (`{"id", "schema", "tests": [{"valid", "data"}]}`, one a line)
//! and run their instances through the grammar, byte by byte, with the naive matcher.
//!
//!     zcat maskbench-dev.jsonl.gz | cargo run --release --example schema_check -- [--every N] [--order any] [--verbose]

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::time::Instant;

use gramary_compiler::schema::{self, naive, Options, PropertyOrder};
use gramary_compiler::{Budget, CompileError, Limits};
use serde::Serialize;
use serde_json::ser::Formatter;
use serde_json::Value;

/// Separators as `json.dumps` writes them.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + Write>(&mut self, w: &mut W, first: bool) -> io::Result<()> {
        w.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, w: &mut W, first: bool) -> io::Result<()> {
        w.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        w.write_all(b": ")
    }
}

fn dumps(v: &Value) -> Vec<u8> {
    let mut out = vec![];
    let mut s = serde_json::Serializer::with_formatter(&mut out, Spaced);
    v.serialize(&mut s).expect("writing to memory");
    out
}

fn main() {
    // Data sets hold deep instances, and both serde and the naive matcher recurse.
    std::thread::Builder::new().stack_size(1 << 30).spawn(check).expect("a thread").join().expect("no panic");
}

fn check() {
    let args: Vec<String> = std::env::args().collect();
    let value = |name: &str| args.iter().position(|a| a == name).and_then(|i| args.get(i + 1)).cloned();
    let every: usize = value("--every").and_then(|v| v.parse().ok()).unwrap_or(1);
    let verbose = args.iter().any(|a| a == "--verbose");
    let order =
        if value("--order").as_deref() == Some("declared") { PropertyOrder::Declared } else { PropertyOrder::Any };
    let options = Options { order, ..Options::default() };
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    let mut refusals: BTreeMap<String, usize> = BTreeMap::new();
    let mut times = vec![];
    let mut lowered = vec![];
    let lower = args.iter().any(|a| a == "--lower");
    for (i, line) in io::stdin().lock().lines().enumerate() {
        let line = line.expect("text");
        if i % every != 0 {
            continue;
        }
        let case: Value = serde_json::from_str(&line).expect("a case");
        let id = case["id"].as_str().unwrap_or("");
        let text = serde_json::to_vec(&case["schema"]).expect("text");
        let budget = Budget::new(Limits::default());
        let t = Instant::now();
        let source = schema::parse(&text, &budget).expect("a schema");
        let parsed = t.elapsed();
        let result = schema::compile(&source, &options, &budget);
        let took = t.elapsed();
        times.push((took - parsed, parsed, id.to_owned(), text.len()));
        let verdict = match result {
            Err(e) => {
                let kind = match &e {
                    CompileError::Unsupported { keyword, reason, .. } => format!("unsupported {keyword}: {reason}"),
                    CompileError::Invalid { message, .. } => format!("invalid: {message}"),
                    CompileError::Unsatisfiable { .. } => "unsatisfiable".into(),
                    e => e.to_string(),
                };
                *refusals.entry(kind.chars().take(100).collect()).or_default() += 1;
                if verbose {
                    println!("refused {id}: {e}");
                }
                // A schema that nothing satisfies is rightly refused if no instance is valid.
                let valid = case["tests"].as_array().is_some_and(|t| t.iter().any(|t| t["valid"] == true));
                if matches!(e, CompileError::Unsatisfiable { .. }) && valid {
                    println!("unsatisfiable {id}");
                    "unsatisfiable wrong"
                } else if matches!(e, CompileError::Unsatisfiable { .. }) {
                    "unsatisfiable right"
                } else {
                    "refused"
                }
            }
            Ok(c) => {
                let mut verdict = "pass";
                if lower {
                    let t = Instant::now();
                    let budget = Budget::new(Limits::default());
                    match gramary_compiler::lower::grammar::lower_grammar(&c.grammar, &budget) {
                        Ok(_) => lowered.push((t.elapsed(), id.to_owned())),
                        Err(e) => println!("lowering {id}: {e}"),
                    }
                }
                for (j, test) in case["tests"].as_array().into_iter().flatten().enumerate() {
                    let text = match &test["text"] {
                        Value::String(s) => s.clone().into_bytes(),
                        _ => dumps(&test["data"]),
                    };
                    let ok = naive::matches(&c.grammar, &text);
                    if ok != (test["valid"] == true) {
                        verdict = if ok { "reject (invalid accepted)" } else { "accept (valid refused)" };
                        let shown = String::from_utf8_lossy(&text);
                        println!("{verdict} {id} test {j}: {}", shown.chars().take(200).collect::<String>());
                        break;
                    }
                }
                verdict
            }
        };
        *count.entry(verdict).or_default() += 1;
    }
    println!("{count:#?}");
    let mut refusals: Vec<_> = refusals.into_iter().collect();
    refusals.sort_by_key(|r| std::cmp::Reverse(r.1));
    for (k, n) in refusals {
        println!("{n:6} {k}");
    }
    lowered.sort();
    for q in [0.5, 0.9, 0.99, 1.0] {
        if let Some((t, id)) = lowered.get((lowered.len() as f64 * q) as usize).or(lowered.last()) {
            println!("lowering p{}: {t:?} {id}", q * 100.0);
        }
    }
    times.sort();
    for (t, p, id, n) in times.iter().rev().take(if verbose { 40 } else { 0 }) {
        println!("slow {t:?} (its parsing {p:?}, {n} bytes) {id}");
    }
    let at = |q: f64| times.get((times.len() as f64 * q) as usize).or(times.last()).cloned();
    for q in [0.5, 0.9, 0.99, 1.0] {
        if let Some((t, p, id, n)) = at(q) {
            println!("compile p{}: {t:?} (its parsing {p:?}, {n} bytes) {id}", q * 100.0);
        }
    }
}
