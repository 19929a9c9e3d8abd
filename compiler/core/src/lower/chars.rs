//! Characters as they may be spelled inside a JSON string.
//!
//! A member of a character set is written raw in UTF-8 (not `"`, `\` or a control character), by its short escape where
//! it has one, or as `\uXXXX` (hexadecimal in either case; a pair of surrogates above U+FFFF, never a lone one). Without
//! `free`, `\uXXXX` is only for control characters and for U+007F and above, which is what common serialisers write:
//! printable ASCII then has one spelling, or two for `/`.

use std::sync::{Arc, OnceLock};

use crate::automata::utf8::{clip, Digits, Template, FINAL};
use crate::fsm::{Fsm, Op, PLAIN};
use crate::ir::Expr;
use crate::limits::{Budget, Limits};

use super::Builder;

/// Every scalar value.
const ANY: &[(u32, u32)] = &[(0, 0xd7ff), (0xe000, 0x10ffff)];

/// Characters with a short escape, and its letter.
const SHORT: [(char, u8); 8] = [
    ('"', b'"'),
    ('\\', b'\\'),
    ('/', b'/'),
    ('\u{8}', b'b'),
    ('\u{c}', b'f'),
    ('\n', b'n'),
    ('\r', b'r'),
    ('\t', b't'),
];

/// All spellings of one member of `ranges` (sorted, disjoint).
pub(super) fn template(ranges: &[(u32, u32)], free: bool) -> Arc<Template> {
    static CACHE: [OnceLock<Arc<Template>>; 2] = [OnceLock::new(), OnceLock::new()];
    if ranges == ANY || ranges == [(0, 0x10ffff)] {
        return CACHE[usize::from(free)].get_or_init(|| Arc::new(build(ANY, free))).clone();
    }
    Arc::new(build(ranges, free))
}

fn build(ranges: &[(u32, u32)], free: bool) -> Template {
    let mut digits = Digits::default();
    let raw: Vec<_> =
        [(0x20, 0x21), (0x23, 0x5b), (0x5d, 0x10ffff)].iter().flat_map(|&(lo, hi)| clip(ranges, lo, hi)).collect();
    let escaped: Vec<_> = if free {
        ranges.to_vec()
    } else {
        [(0, 0x1f), (0x7f, 0x10ffff)].iter().flat_map(|&(lo, hi)| clip(ranges, lo, hi)).collect()
    };
    let member = |c: char| ranges.iter().any(|r| r.0 <= c as u32 && c as u32 <= r.1);
    let mut after_backslash: Vec<(u8, u8, u32)> =
        SHORT.iter().filter(|s| member(s.0)).map(|s| (s.1, s.1, FINAL)).collect();
    let hex = digits.hex(&escaped);
    if !hex.is_empty() {
        let node = digits.node(hex);
        after_backslash.push((b'u', b'u', node));
    }
    let mut start = digits.utf8(&raw);
    if !after_backslash.is_empty() {
        let node = digits.node(after_backslash);
        start.push((b'\\', b'\\', node));
    }
    digits.finish(start)
}

/// A fixed text (a declared name, a constant) between quotes, in every spelling that does not escape without need. Text
/// of printable ASCII without `"`, `\` and `/` is [`Expr::Bytes`].
pub fn json_spelling(text: &str) -> Expr {
    let plain = |c: char| matches!(c, ' '..='~') && !matches!(c, '"' | '\\' | '/');
    if text.chars().all(plain) {
        return Expr::lit(text);
    }
    let mut parts = vec![];
    let mut run = String::new();
    for c in text.chars() {
        if plain(c) {
            run.push(c);
            continue;
        }
        if !run.is_empty() {
            parts.push(Expr::lit(std::mem::take(&mut run)));
        }
        parts.push(Expr::JsonChars { ranges: vec![(c as u32, c as u32)], free: false });
    }
    if !run.is_empty() {
        parts.push(Expr::lit(run));
    }
    Expr::Seq(parts)
}

/// The FSM of the shared JSON string unit: `"`, characters, `"`. Counter 0, which the caller's arguments initialise,
/// counts characters (code points: an escaped surrogate pair is one): it ticks on the first byte of each.
pub fn json_string_fsm() -> Fsm {
    static FSM: OnceLock<Fsm> = OnceLock::new();
    FSM.get_or_init(|| {
        let budget = Budget::new(Limits::default());
        // The automaton is fixed and tiny: its limits are never reached, and the default stands for nothing else.
        string_fsm(&budget).unwrap_or_default()
    })
    .clone()
}

fn string_fsm(budget: &Budget) -> crate::Result<Fsm> {
    let mut b = Builder::new(&[], budget);
    b.reserve_counters(1)?;
    let (tick, exit) = (b.act(&[Op::Tick { r: 0 }])?, b.act(&[Op::Exit { r: 0 }])?);
    let (start, body, char_start, end) = (b.state()?, b.state()?, b.state()?, b.state()?);
    b.byte(start, b'"', b'"', PLAIN, body);
    b.epsilon(body, tick, char_start);
    b.expr(&Expr::JsonChars { ranges: ANY.to_vec(), free: true }, char_start, body)?;
    b.byte(body, b'"', b'"', exit, end);
    b.accept(end, PLAIN);
    Ok(b.finish(start)?.fsm)
}
