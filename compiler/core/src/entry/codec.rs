//! Entries and families as bytes.
//!
//! The time that building took is not among the bytes: equal entries are equal bytes. A mask that many entries share is
//! written as the set of bytes that it follows from (see [`super::runs`]).
//!
//! Little-endian words throughout; a list is its length and its elements. Reading trusts nothing: every length, token id
//! and trie link is checked, so that a damaged or hostile file yields an error, never a wrong index at run time.

use std::sync::Arc;

use smallvec::SmallVec;

use super::family::{Family, Inside};
use super::runs::Runs;
use super::ticks::Ticks;
use crate::unit::{ByteSet, Unit};
use crate::vocab::Vocabulary;

use super::{Entry, Exit, ExitTo, Remainder, TokenSet};

/// Why bytes are no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged(pub &'static str);

type Read<T> = Result<T, Damaged>;

/// Bytes being written.
#[derive(Debug, Default)]
pub struct Writer(pub Vec<u8>, Option<Arc<Runs>>);

impl Writer {
    /// For entries of the vocabulary that `runs` belong to.
    pub fn naming(runs: &Arc<Runs>) -> Self {
        Writer(vec![], Some(runs.clone()))
    }

    pub fn u32(&mut self, v: u32) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }

    pub fn u64(&mut self, v: u64) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }

    pub fn words(&mut self, v: &[u32]) {
        self.u32(v.len() as u32);
        v.iter().for_each(|&w| self.u32(w));
    }

    pub fn bytes(&mut self, v: &[u8]) {
        self.u32(v.len() as u32);
        self.0.extend_from_slice(v);
    }
}

/// Bytes being read.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    /// Ids from here on do not exist.
    vocab: u32,
    runs: Option<(&'a Runs, &'a Vocabulary)>,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8], vocab: usize) -> Self {
        Reader { bytes, vocab: vocab as u32, runs: None }
    }

    /// For entries that may name shared masks.
    pub fn naming(bytes: &'a [u8], runs: &'a Runs, vocab: &'a Vocabulary) -> Self {
        Reader { bytes, vocab: vocab.len() as u32, runs: Some((runs, vocab)) }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn take(&mut self, n: usize) -> Read<&'a [u8]> {
        if n > self.bytes.len() {
            return Err(Damaged("it ends early"));
        }
        let (head, tail) = self.bytes.split_at(n);
        self.bytes = tail;
        Ok(head)
    }

    pub fn u32(&mut self) -> Read<u32> {
        let b = self.take(4)?;
        Ok(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    pub fn u64(&mut self) -> Read<u64> {
        Ok(self.u32()? as u64 | (self.u32()? as u64) << 32)
    }

    pub fn words(&mut self) -> Read<Vec<u32>> {
        let n = self.u32()? as usize;
        let bytes = self.take(n.checked_mul(4).ok_or(Damaged("a length overflows"))?)?;
        Ok(bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }

    pub fn bytes(&mut self) -> Read<&'a [u8]> {
        let n = self.u32()? as usize;
        self.take(n)
    }

    fn tokens(&mut self) -> Read<Vec<u32>> {
        let ids = self.words()?;
        if ids.iter().any(|&t| t >= self.vocab) {
            return Err(Damaged("a token id lies beyond the vocabulary"));
        }
        Ok(ids)
    }
}

impl TokenSet {
    fn write(&self, w: &mut Writer) {
        let (kind, words) = match self {
            TokenSet::Accepted(v) => (0, v),
            TokenSet::Rejected(v) => (1, v),
            TokenSet::Dense(v) => (2, v),
            TokenSet::Shared(words, ids) => {
                if let Some(bytes) = w.1.as_ref().and_then(|runs| runs.bytes_of(words)) {
                    w.u32(3);
                    bytes.iter().for_each(|&b| w.u64(b));
                    return w.words(ids);
                }
                // Read back as a mask of its own.
                let mut all: Box<[u32]> = words[..].into();
                ids.iter().for_each(|&t| all[t as usize / 32] |= 1 << (t % 32));
                w.u32(2);
                return w.words(&all);
            }
        };
        w.u32(kind);
        w.words(words);
    }

    fn read(r: &mut Reader<'_>) -> Read<TokenSet> {
        Ok(match r.u32()? {
            0 => TokenSet::Accepted(r.tokens()?.into()),
            1 => TokenSet::Rejected(r.tokens()?.into()),
            2 => {
                let words = r.words()?;
                if words.len() != (r.vocab as usize).div_ceil(32) {
                    return Err(Damaged("a mask has the wrong length"));
                }
                let beyond = r.vocab % 32;
                if beyond != 0 && words.last().is_some_and(|w| w >> beyond != 0) {
                    return Err(Damaged("a mask has bits beyond the vocabulary"));
                }
                TokenSet::Dense(words.into())
            }
            3 => {
                let mut bytes: ByteSet = [0; 4];
                for b in &mut bytes {
                    *b = r.u64()?;
                }
                let run = r.runs.and_then(|(runs, vocab)| runs.of(&bytes, vocab));
                let run = run.ok_or(Damaged("a shared mask of bytes that have none"))?;
                TokenSet::Shared(run.within.clone(), r.tokens()?.into())
            }
            _ => return Err(Damaged("an unknown kind of token set")),
        })
    }
}

impl Remainder {
    fn write(&self, w: &mut Writer) {
        w.bytes(&self.byte);
        self.depth.iter().for_each(|&d| w.u32(d as u32));
        w.words(&self.end);
        w.words(&self.first);
        w.words(&self.tokens);
        w.bytes(&self.ticks);
    }

    fn read(r: &mut Reader<'_>) -> Read<Remainder> {
        let byte = r.bytes()?.to_vec();
        let n = byte.len();
        let mut depth = Vec::with_capacity(n);
        for _ in 0..n {
            depth.push(u16::try_from(r.u32()?).map_err(|_| Damaged("a remainder is too deep"))?);
        }
        let (end, first, tokens) = (r.words()?, r.words()?, r.tokens()?);
        let ticks = r.bytes()?.to_vec();
        let nested = n > 0
            && end.len() == n
            && first.len() == n + 1
            && depth[0] == 0
            && (1..n).all(|i| depth[i] >= 1 && depth[i] <= depth[i - 1] + 1)
            && (0..n).all(|i| end[i] as usize > i && end[i] as usize <= n)
            && first.windows(2).all(|w| w[0] <= w[1])
            && first[n] as usize == tokens.len()
            && (ticks.is_empty() || ticks.len() == tokens.len());
        if !nested {
            return Err(Damaged("a remainder is not a trie"));
        }
        Ok(Remainder { byte, depth, end, first, tokens, ticks })
    }
}

impl Entry {
    pub fn write(&self, w: &mut Writer) {
        w.u32(self.base.unwrap_or(u32::MAX));
        w.words(&self.removed);
        self.accepted.write(w);
        w.words(&self.special);
        match self.bounds {
            None => w.u32(0),
            Some((need, room)) => {
                w.u32(1);
                w.u32(need);
                w.u32(room);
            }
        }
        w.u32(self.exits.len() as u32);
        for exit in &self.exits {
            match &exit.to {
                ExitTo::Return => w.u32(0),
                ExitTo::Hole { state, regs } => {
                    w.u32(1);
                    w.u32(*state);
                    w.words(regs);
                }
            }
            exit.rest.write(w);
        }
    }

    /// An entry read this way must be checked against its unit: see [`Entry::fits`].
    pub fn read(r: &mut Reader<'_>) -> Read<Entry> {
        let base = Some(r.u32()?).filter(|&b| b != u32::MAX);
        let removed = r.tokens()?.into();
        let accepted = TokenSet::read(r)?;
        let special = r.tokens()?.into();
        let bounds = match r.u32()? {
            0 => None,
            1 => Some((r.u32()?, r.u32()?)),
            _ => return Err(Damaged("bounds of an unknown kind")),
        };
        let mut exits = vec![];
        for _ in 0..r.u32()? {
            let to = match r.u32()? {
                0 => ExitTo::Return,
                1 => ExitTo::Hole { state: r.u32()?, regs: SmallVec::from_vec(r.words()?) },
                _ => return Err(Damaged("an exit of an unknown kind")),
            };
            exits.push(Exit { to, rest: Remainder::read(r)?.into() });
        }
        Ok(Entry { base, removed, accepted, special, exits: exits.into(), bounds, cost: 0 })
    }

    /// Whether the states and registers that the entry names are the unit's.
    pub fn fits(&self, unit: &Unit) -> bool {
        let (states, words) = (unit.states(), unit.layout.words());
        self.base.is_none_or(|b| unit.is_base(b))
            && self.exits.iter().all(|e| match &e.to {
                ExitTo::Return => true,
                ExitTo::Hole { state, regs } => (*state as usize) < states && (regs.is_empty() || regs.len() == words),
            })
    }
}

impl Family {
    pub fn write(&self, w: &mut Writer) {
        match &self.inside {
            Inside::Few(tokens) => {
                w.u32(0);
                pairs(tokens, w);
            }
            Inside::Many(ticks) => {
                w.u32(1);
                w.bytes(&ticks.of);
            }
        }
        pairs(&self.exact, w);
        match &self.rest {
            None => w.u32(0),
            Some(rest) => {
                w.u32(1);
                rest.write(w);
            }
        }
    }

    pub fn read(r: &mut Reader<'_>) -> Read<Family> {
        let inside = match r.u32()? {
            0 => Inside::Few(read_pairs(r)?),
            1 => {
                let ticks = r.bytes()?;
                let words = (r.vocab as usize).div_ceil(32);
                if ticks.len() != words * 32 || ticks[r.vocab as usize..].iter().any(|&t| t != u8::MAX) {
                    return Err(Damaged("a family has the wrong length"));
                }
                Inside::Many(Ticks::new(ticks.into()))
            }
            _ => return Err(Damaged("a family of an unknown kind")),
        };
        let exact = read_pairs(r)?;
        let rest = match r.u32()? {
            0 => None,
            _ => {
                let rest = Remainder::read(r)?;
                if rest.ticks.len() != rest.tokens.len() {
                    return Err(Damaged("a family's remainder has no ticks"));
                }
                Some(rest.into())
            }
        };
        Ok(Family { inside, exact, rest, cost: 0 })
    }
}

fn pairs(v: &[(u32, u8)], w: &mut Writer) {
    w.u32(v.len() as u32);
    v.iter().for_each(|&(t, n)| {
        w.u32(t);
        w.u32(n as u32);
    });
}

fn read_pairs(r: &mut Reader<'_>) -> Read<Box<[(u32, u8)]>> {
    let n = r.u32()? as usize;
    let mut v = Vec::with_capacity(n.min(1 << 16));
    for _ in 0..n {
        let (token, ticks) = (r.u32()?, r.u32()?);
        if token >= r.vocab {
            return Err(Damaged("a token id lies beyond the vocabulary"));
        }
        v.push((token, u8::try_from(ticks).map_err(|_| Damaged("a tick count is too large"))?));
    }
    Ok(v.into())
}
