//! Sets of numbers as automata over their digits: code points as UTF-8, code units as hexadecimal escapes.
//!
//! A set is a list of ranges, a *form* the list of [`Level`]s that write a number most significant digit first. Nodes
//! are hash-consed, so the result is deterministic, and minimal but for the union of several forms.

use rustc_hash::FxHashMap;

/// Target of the last edges of a [`Template`].
pub const FINAL: u32 = u32::MAX;

/// A small acyclic automaton that matches one character: its entry and, by state, edges `(lo, hi, target)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pub states: Vec<Vec<(u8, u8, u32)>>,
    pub start: u32,
}

/// One position of a written number: a digit of `bits` bits and how its value `d` is written.
#[derive(Clone, Copy, Debug)]
pub enum Level {
    /// The byte `base + d`.
    Byte { base: u8, bits: u32 },
    /// The hexadecimal digit `base + d`, in either case.
    Hex { base: u8, bits: u32 },
}

/// Inclusive ranges of code points that encode to 1, 2, 3 and 4 bytes, and their digits.
type Form = ((u32, u32), &'static [Level]);
const CONT: Level = Level::Byte { base: 0x80, bits: 6 };
const UTF8: [Form; 5] = [
    ((0, 0x7f), &[Level::Byte { base: 0, bits: 7 }]),
    ((0x80, 0x7ff), &[Level::Byte { base: 0xc0, bits: 5 }, CONT]),
    ((0x800, 0xd7ff), &[Level::Byte { base: 0xe0, bits: 4 }, CONT, CONT]),
    ((0xe000, 0xffff), &[Level::Byte { base: 0xe0, bits: 4 }, CONT, CONT]),
    ((0x10000, 0x10ffff), &[Level::Byte { base: 0xf0, bits: 3 }, CONT, CONT, CONT]),
];
const NIBBLE: Level = Level::Hex { base: 0, bits: 4 };
const HEX16: &[Level] = &[NIBBLE, NIBBLE, NIBBLE, NIBBLE];
/// Twenty bits as `D8xx\uDCxx`.
const SURROGATES: &[Level] = &[
    Level::Hex { base: 13, bits: 0 },
    Level::Hex { base: 8, bits: 2 },
    NIBBLE,
    NIBBLE,
    Level::Byte { base: b'\\', bits: 0 },
    Level::Byte { base: b'u', bits: 0 },
    Level::Hex { base: 13, bits: 0 },
    Level::Hex { base: 12, bits: 2 },
    NIBBLE,
    NIBBLE,
];

/// A run of leading digits, and the ranges of what follows any of them.
type Part = (u32, u32, Vec<(u32, u32)>);

/// Builds templates bottom-up, sharing equal nodes.
#[derive(Default)]
pub struct Digits {
    states: Vec<Vec<(u8, u8, u32)>>,
    ids: FxHashMap<Vec<(u8, u8, u32)>, u32>,
}

impl Digits {
    /// The node with these edges, which must be disjoint. Neighbours with one target are merged.
    pub fn node(&mut self, mut edges: Vec<(u8, u8, u32)>) -> u32 {
        edges.sort_unstable();
        let mut merged: Vec<(u8, u8, u32)> = Vec::with_capacity(edges.len());
        for e in edges {
            match merged.last_mut() {
                Some(last) if last.2 == e.2 && u16::from(last.1) + 1 == u16::from(e.0) => last.1 = e.1,
                _ => merged.push(e),
            }
        }
        if let Some(&id) = self.ids.get(&merged) {
            return id;
        }
        let id = self.states.len() as u32;
        self.states.push(merged.clone());
        self.ids.insert(merged, id);
        id
    }

    /// The edges that write a number of `ranges` (sorted, disjoint) in the given form.
    fn edges(&mut self, ranges: &[(u32, u32)], form: &[Level]) -> Vec<(u8, u8, u32)> {
        let Some((level, rest)) = form.split_first() else { return vec![] };
        let bits = |l: &Level| match *l {
            Level::Byte { bits, .. } | Level::Hex { bits, .. } => bits,
        };
        let shift: u32 = rest.iter().map(bits).sum();
        let mask = (1u32 << shift) - 1;
        let mut parts: Vec<Part> = vec![];
        fn add(parts: &mut Vec<Part>, digit: u32, sub: (u32, u32)) {
            match parts.last_mut() {
                Some((lo, hi, subs)) if *lo == digit && *hi == digit => subs.push(sub),
                _ => parts.push((digit, digit, vec![sub])),
            }
        }
        for &(a, b) in ranges {
            let (mut first, mut last) = (a >> shift, b >> shift);
            if first == last {
                add(&mut parts, first, (a & mask, b & mask));
                continue;
            }
            if a & mask != 0 {
                add(&mut parts, first, (a & mask, mask));
                first += 1;
            }
            let tail = (b & mask != mask).then_some(last);
            if tail.is_some() {
                last -= 1;
            }
            if first <= last {
                parts.push((first, last, vec![(0, mask)]));
            }
            if let Some(digit) = tail {
                add(&mut parts, digit, (0, b & mask));
            }
        }
        let mut out = vec![];
        for (lo, hi, subs) in parts {
            let target = if rest.is_empty() {
                FINAL
            } else {
                let edges = self.edges(&subs, rest);
                self.node(edges)
            };
            match *level {
                Level::Byte { base, .. } => out.push((base + lo as u8, base + hi as u8, target)),
                Level::Hex { base, .. } => {
                    let (lo, hi) = (base + lo as u8, base + hi as u8);
                    if lo < 10 {
                        out.push((b'0' + lo, b'0' + hi.min(9), target));
                    }
                    if hi >= 10 {
                        out.push((b'a' + lo.max(10) - 10, b'a' + hi - 10, target));
                        out.push((b'A' + lo.max(10) - 10, b'A' + hi - 10, target));
                    }
                }
            }
        }
        out
    }

    /// Edges for the UTF-8 encodings of scalar values. Surrogates in `ranges` are left out.
    pub fn utf8(&mut self, ranges: &[(u32, u32)]) -> Vec<(u8, u8, u32)> {
        let mut by_lead = vec![];
        for ((lo, hi), form) in UTF8 {
            let part = clip(ranges, lo, hi);
            if !part.is_empty() {
                by_lead.extend(self.edges(&part, form));
            }
        }
        // U+D000..U+D7FF and U+E000.. have different lead bytes, so the forms are disjoint.
        by_lead
    }

    /// Edges for four hexadecimal digits (after `\u`), or a pair of surrogate escapes.
    pub fn hex(&mut self, ranges: &[(u32, u32)]) -> Vec<(u8, u8, u32)> {
        let mut direct = clip(ranges, 0, 0xd7ff);
        direct.extend(clip(ranges, 0xe000, 0xffff));
        let astral: Vec<_> = clip(ranges, 0x10000, 0x10ffff).iter().map(|&(a, b)| (a - 0x10000, b - 0x10000)).collect();
        let edges = if direct.is_empty() { vec![] } else { self.edges(&direct, HEX16) };
        if astral.is_empty() {
            return edges;
        }
        let pairs = self.edges(&astral, SURROGATES);
        self.union(edges, pairs)
    }

    /// The union of two deterministic edge lists. Recursion is as deep as the shorter form, ten at most.
    fn union(&mut self, a: Vec<(u8, u8, u32)>, b: Vec<(u8, u8, u32)>) -> Vec<(u8, u8, u32)> {
        let mut cuts: Vec<u16> =
            a.iter().chain(&b).flat_map(|&(lo, hi, _)| [u16::from(lo), u16::from(hi) + 1]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let mut out = vec![];
        for w in cuts.windows(2) {
            let (lo, hi) = (w[0] as u8, (w[1] - 1) as u8);
            let find = |v: &[(u8, u8, u32)]| v.iter().find(|e| e.0 <= lo && hi <= e.1).map(|e| e.2);
            let target = match (find(&a), find(&b)) {
                (None, None) => continue,
                (Some(t), None) | (None, Some(t)) => t,
                (Some(s), Some(t)) if s == t || s == FINAL || t == FINAL => s.min(t),
                (Some(s), Some(t)) => {
                    let (x, y) = (self.states[s as usize].clone(), self.states[t as usize].clone());
                    let edges = self.union(x, y);
                    self.node(edges)
                }
            };
            out.push((lo, hi, target));
        }
        out
    }

    pub fn finish(mut self, start: Vec<(u8, u8, u32)>) -> Template {
        let start = self.node(start);
        Template { states: self.states, start }
    }
}

/// The parts of `ranges` inside `lo..=hi`.
pub fn clip(ranges: &[(u32, u32)], lo: u32, hi: u32) -> Vec<(u32, u32)> {
    ranges.iter().filter(|r| r.0 <= hi && r.1 >= lo).map(|&(a, b)| (a.max(lo), b.min(hi))).collect()
}

/// One scalar value of `ranges`, in UTF-8.
pub fn template(ranges: &[(u32, u32)]) -> Template {
    let mut digits = Digits::default();
    let start = digits.utf8(ranges);
    digits.finish(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(t: &Template, bytes: &[u8]) -> bool {
        let mut at = t.start;
        for &b in bytes {
            if at == FINAL {
                return false;
            }
            match t.states[at as usize].iter().find(|e| e.0 <= b && b <= e.1) {
                Some(e) => at = e.2,
                None => return false,
            }
        }
        at == FINAL
    }

    #[test]
    fn every_scalar_value_and_nothing_else() {
        let sets: [&[(u32, u32)]; 4] = [
            &[(0, 0x10ffff)],
            &[(0x41, 0x7f), (0x85, 0x100), (0x7fe, 0x803), (0xd700, 0xe001), (0xfffe, 0x10001), (0x10fff0, 0x10ffff)],
            &[(0x3b1, 0x3b1), (0x3b3, 0x3c9), (0x1f600, 0x1f64f)],
            &[(0x20, 0x20)],
        ];
        for ranges in sets {
            let t = template(ranges);
            for c in (0..=0x10ffff).step_by(7).chain(0..0x900).chain(0xd7f0..0xe010).chain(0xfff0..0x10010) {
                if let Some(c) = char::from_u32(c) {
                    let member = ranges.iter().any(|r| r.0 <= c as u32 && c as u32 <= r.1);
                    assert_eq!(matches(&t, c.to_string().as_bytes()), member, "{c:?}");
                }
            }
            for bad in [&b"\xed\xa0\x80"[..], b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xe0\x80\x80", b"\x80", b"\xff"] {
                assert!(!matches(&t, bad));
            }
        }
    }

    #[test]
    fn hex_escapes_and_pairs() {
        let mut d = Digits::default();
        let start = d.hex(&[(0x10, 0x2f), (0xd7ff, 0x10000), (0x1f600, 0x1f601)]);
        let t = d.finish(start);
        for (text, want) in [
            ("0010", true),
            ("002F", true),
            ("002f", true),
            ("0030", false),
            ("d7ff", true),
            ("D7fF", true),
            ("d800", false),
            ("dc00", false),
            ("e000", true),
            ("ffff", true),
            ("d800\\udc00", true),
            ("d800\\udc01", false),
            ("D83D\\uDE00", true),
            ("d83d\\ude01", true),
            ("d83d\\ude02", false),
            ("d83d", false),
        ] {
            assert_eq!(matches(&t, text.as_bytes()), want, "{text}");
        }
    }
}
