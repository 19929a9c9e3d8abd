//! Sets of Unicode scalar values, and the classes that ECMA-262 names.

use std::sync::OnceLock;

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, HirKind};

/// Inclusive code point ranges.
pub type Ranges = Vec<(u32, u32)>;

const MAX: u32 = 0x10_FFFF;
const SURROGATES: (u32, u32) = (0xD800, 0xDFFF);

/// A set of scalar values: sorted, disjoint, non-adjacent ranges without surrogates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CharSet(Ranges);

impl CharSet {
    pub fn empty() -> Self {
        CharSet(vec![])
    }

    /// Every scalar value.
    pub fn any() -> Self {
        CharSet(vec![(0, SURROGATES.0 - 1), (SURROGATES.1 + 1, MAX)])
    }

    /// Any ranges, in any order, surrogates included: they are dropped, since no scalar value is one. (A later range
    /// that starts before the gap which an earlier one was split at lies within that one's first half.)
    pub fn new(mut ranges: Ranges) -> Self {
        if ranges.len() == 1 && ranges[0].1 < SURROGATES.0 {
            return CharSet(ranges);
        }
        ranges.retain(|r| r.0 <= r.1);
        ranges.sort_unstable();
        let mut out: Ranges = Vec::with_capacity(ranges.len() + 1);
        for (lo, hi) in ranges {
            for (lo, hi) in [(lo, hi.min(SURROGATES.0 - 1)), (lo.max(SURROGATES.1 + 1), hi.min(MAX))] {
                if lo > hi {
                    continue;
                }
                match out.last_mut() {
                    Some(last) if lo <= last.1.saturating_add(1) => last.1 = last.1.max(hi),
                    _ => out.push((lo, hi)),
                }
            }
        }
        CharSet(out)
    }

    pub fn single(c: u32) -> Self {
        CharSet::new(vec![(c, c)])
    }

    pub fn ranges(&self) -> &[(u32, u32)] {
        &self.0
    }

    pub fn into_ranges(self) -> Ranges {
        self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn is_any(&self) -> bool {
        self.0.len() == 2 && self.0[0] == (0, SURROGATES.0 - 1) && self.0[1] == (SURROGATES.1 + 1, MAX)
    }

    pub fn contains(&self, c: u32) -> bool {
        let i = self.0.partition_point(|r| r.1 < c);
        self.0.get(i).is_some_and(|r| r.0 <= c)
    }

    pub fn negate(&self) -> Self {
        let mut out = Vec::with_capacity(self.0.len() + 1);
        let mut next = 0;
        for &(lo, hi) in &self.0 {
            if lo > next {
                out.push((next, lo - 1));
            }
            next = hi + 1;
        }
        if next <= MAX {
            out.push((next, MAX));
        }
        CharSet::new(out)
    }

    pub fn and(&self, other: &CharSet) -> Self {
        let (a, b) = (&self.0, &other.0);
        let (mut i, mut j) = (0, 0);
        let mut out = Vec::new();
        while i < a.len() && j < b.len() {
            let (lo, hi) = (a[i].0.max(b[j].0), a[i].1.min(b[j].1));
            if lo <= hi {
                out.push((lo, hi));
            }
            if a[i].1 < b[j].1 {
                i += 1;
            } else {
                j += 1;
            }
        }
        CharSet(out)
    }

    /// The set and every value that simple case folding makes equal to one of it.
    pub fn fold(&self) -> Self {
        let ranges = self
            .0
            .iter()
            .filter_map(|&(lo, hi)| Some(ClassUnicodeRange::new(char::from_u32(lo)?, char::from_u32(hi)?)));
        let mut class = ClassUnicode::new(ranges);
        class.case_fold_simple();
        from_class(&class)
    }
}

fn from_class(class: &ClassUnicode) -> CharSet {
    CharSet::new(class.iter().map(|r| (r.start() as u32, r.end() as u32)).collect())
}

/// `\d`.
pub const DIGIT: &[(u32, u32)] = &[(0x30, 0x39)];
/// `\w`.
pub const WORD: &[(u32, u32)] = &[(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)];
/// `\s`: ECMA-262's WhiteSpace and LineTerminator.
pub const SPACE: &[(u32, u32)] = &[
    (0x09, 0x0D),
    (0x20, 0x20),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
    (0xFEFF, 0xFEFF),
];
/// What `.` leaves out.
pub const LINE_END: &[(u32, u32)] = &[(0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)];

pub fn word() -> &'static CharSet {
    static SET: OnceLock<CharSet> = OnceLock::new();
    SET.get_or_init(|| CharSet::new(WORD.to_vec()))
}

/// Most alphanumeric name and value that Unicode has, with room to spare.
const LONGEST_NAME: usize = 80;

/// `\p{name}` or `\p{name=value}`; `None`: no such property.
pub fn property(name: &str) -> Option<CharSet> {
    let known = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '=';
    if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(known) {
        return None;
    }
    match name {
        "Any" => return Some(CharSet::any()),
        "ASCII" => return Some(CharSet::new(vec![(0, 0x7F)])),
        _ => {}
    }
    let hir = regex_syntax::Parser::new().parse(&format!(r"\p{{{name}}}")).ok()?;
    match hir.kind() {
        HirKind::Class(Class::Unicode(class)) => Some(from_class(class)),
        HirKind::Class(Class::Bytes(class)) => {
            Some(CharSet::new(class.iter().map(|r| (r.start() as u32, r.end() as u32)).collect()))
        }
        HirKind::Literal(lit) => {
            let mut chars = std::str::from_utf8(&lit.0).ok()?.chars();
            let c = chars.next()?;
            chars.next().is_none().then(|| CharSet::single(c as u32))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_normal_and_lose_surrogates() {
        assert_eq!(CharSet::new(vec![(5, 9), (1, 4), (20, 30), (25, 26)]).ranges(), &[(1, 9), (20, 30)]);
        assert_eq!(CharSet::new(vec![(0, MAX)]), CharSet::any());
        assert_eq!(CharSet::new(vec![(0xD000, MAX), (0xD100, 0xD200)]).ranges(), &[(0xD000, 0xD7FF), (0xE000, MAX)]);
        assert!(CharSet::new(vec![(0xD800, 0xDBFF)]).is_empty());
        assert_eq!(CharSet::any().negate(), CharSet::empty());
        assert_eq!(CharSet::empty().negate(), CharSet::any());
        let s = CharSet::new(SPACE.to_vec());
        assert_eq!(s.negate().negate(), s);
        assert!(s.and(&s.negate()).is_empty());
        assert_eq!(s.and(&CharSet::any()), s);
        assert!(s.contains(0x20) && s.contains(0x2029) && !s.contains(0x21));
    }

    #[test]
    fn folding_and_properties() {
        let k = CharSet::single('k' as u32).fold();
        assert!(k.contains('K' as u32) && k.contains(0x212A) && !k.contains('j' as u32));
        assert!(property("L").unwrap().contains('é' as u32));
        assert!(property("Letter").is_some() && property("Script=Greek").unwrap().contains('α' as u32));
        assert!(property("gc=Nd").unwrap().contains('٣' as u32));
        assert!(property("Emoji").is_some() && property("ASCII").unwrap().contains(0x7F));
        assert!(property("digit").is_some());
        assert!(property("Nonsense").is_none() && property("").is_none() && property("L}x").is_none());
    }
}
