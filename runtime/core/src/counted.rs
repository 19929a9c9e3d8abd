//! Free text of a bounded number of tokens.
//!
//! Units know bytes, and nothing of how a text was cut into tokens. So the matcher counts: a token counts for a text if it
//! begins while one of the items stands in the text's unit, or if the text begins with its first byte. Once as many have
//! begun as may, the items in the text are moved before the next token, each to a state from which nothing follows but
//! what ends the text ([`Closing`]): the rest of a stop string that has begun, a whole one, or nothing where the text may simply
//! end; inside of a character its last bytes come first. Masks are those of the moved set. So the last token may go on behind
//! the end, and one that begins before the text does not count.
//!
//! Where a text may have begun at several places, it is counted from the first.

use std::sync::Arc;

use gramary_compiler::digest::digests;
use gramary_compiler::fsm::{Edge, Fsm, State, TokenEdge, DEAD, NONE, PLAIN, REJECT};
use gramary_compiler::ir::pattern_symbols;
use gramary_compiler::lower::grammar::LoweredRule;
use gramary_compiler::machine::Machine;
use gramary_compiler::unit::{Digest, Link, Unit};
use gramary_compiler::{Budget, CompileError, Result};
use rustc_hash::FxHashMap;

/// Texts of one structure whose tokens are counted.
pub(crate) const MOST_COUNTED: usize = 4;

/// Bytes and tokens of the ends of such a text.
const MOST_SYMBOLS: usize = 256;

/// How many tokens have begun in each of them.
pub(crate) type Counts = [u32; MOST_COUNTED];

/// A text of a grammar.
#[derive(Clone, Debug)]
pub(crate) struct CountedText {
    pub link: Link,
    pub most: u32,
    pub closing: Arc<[u32]>,
}

/// The unit of a text, and by state where its end is all that may follow.
#[derive(Debug)]
pub(crate) struct Closing {
    pub unit: Arc<Unit>,
    pub closing: Arc<[u32]>,
    pub nullable: bool,
}

/// What is left of a stop, in symbols: bytes, and tokens as 256 + id.
type Rest<'s> = &'s [u64];

struct Builder<'s> {
    fsm: Fsm,
    /// States of the text itself.
    text: usize,
    stops: &'s [Vec<u64>],
    /// States by what may follow.
    known: FxHashMap<Vec<Rest<'s>>, u32>,
    closing: Vec<u32>,
}

impl Closing {
    /// `rule`: a text that ends with one of `stops`, or where it completes.
    pub fn new(rule: &LoweredRule, stops: &[Vec<u8>], nullable: bool, budget: &Budget) -> Result<Closing> {
        let digest = digests(std::slice::from_ref(rule), budget)?.unit[0];
        let digest: Digest = *blake3::Hasher::new().update(b"counted").update(&digest).finalize().as_bytes();
        let stops: Vec<Vec<u64>> = stops.iter().filter_map(|s| pattern_symbols(s)).collect();
        if stops.iter().map(Vec::len).sum::<usize>() > MOST_SYMBOLS {
            return Err(CompileError::unsupported(
                "/max_tokens",
                "max_tokens",
                format!("the ends of the text are longer than {MOST_SYMBOLS} bytes together"),
                "Use shorter ends, or max_chars",
            ));
        }
        let text = rule.fsm.states.len();
        let closing = vec![NONE; text];
        let mut b = Builder { fsm: rule.fsm.clone(), text, stops: &stops, known: FxHashMap::default(), closing };
        b.close(budget)?;
        let Builder { fsm, mut closing, .. } = b;
        closing.extend(text as u32..fsm.states.len() as u32);
        Ok(Closing { unit: Arc::new(Unit::new(&rule.name, digest, fsm)), closing: closing.into(), nullable })
    }
}

impl<'s> Builder<'s> {
    /// Makes the states that stand for those of the text once it must end.
    fn close(&mut self, budget: &Budget) -> Result<()> {
        let mut going_on = vec![];
        for q in 0..self.text as u32 {
            budget.tick()?;
            let stops = self.stops;
            let ways = stops.iter().flat_map(|s| (0..s.len()).map(move |from| &s[from..]));
            let mut rests: Vec<Rest<'s>> = ways.filter(|rest| self.ends(q, rest)).collect();
            if self.fsm.states[q as usize].accept != REJECT {
                rests.push(&[]);
            }
            if rests.is_empty() {
                going_on.push(q);
                self.closing[q as usize] = self.state(budget)?;
            } else {
                self.closing[q as usize] = self.rest(rests, budget)?;
            }
        }
        // Inside of a character, or where an end would complete an excluded string: on to where it can end.
        for q in going_on {
            let mut edges: Vec<Edge> = vec![];
            for b in 0..=255u8 {
                let Some(next) = self.byte(q, b) else { continue };
                let target = self.closing[next as usize];
                match edges.last_mut() {
                    Some(e) if e.target == target && e.hi + 1 == b => e.hi = b,
                    _ => edges.push(Edge { lo: b, hi: b, act: PLAIN, target }),
                }
            }
            self.fsm.states[self.closing[q as usize] as usize].edges = edges;
        }
        Ok(())
    }

    fn state(&mut self, budget: &Budget) -> Result<u32> {
        budget.states(1)?;
        self.fsm.states.push(State::default());
        Ok(self.fsm.states.len() as u32 - 1)
    }

    /// The state from which one of `rests` follows.
    fn rest(&mut self, mut rests: Vec<Rest<'s>>, budget: &Budget) -> Result<u32> {
        rests.sort_unstable();
        rests.dedup();
        if let Some(&known) = self.known.get(&rests) {
            return Ok(known);
        }
        let to = self.state(budget)?;
        self.known.insert(rests.clone(), to);
        let mut at = usize::from(rests.first().is_some_and(|r| r.is_empty()));
        if at > 0 {
            self.fsm.states[to as usize].accept = PLAIN;
        }
        while let Some(&first) = rests.get(at).and_then(|r| r.first()) {
            let same = rests[at..].iter().take_while(|r| r.first() == Some(&first)).count();
            let next = rests[at..at + same].iter().map(|r| &r[1..]).collect();
            let target = self.rest(next, budget)?;
            let state = &mut self.fsm.states[to as usize];
            match u8::try_from(first) {
                Ok(b) => state.edges.push(Edge { lo: b, hi: b, act: PLAIN, target }),
                Err(_) => state.tokens.push(TokenEdge { token: (first - 256) as u32, act: PLAIN, target }),
            }
            at += same;
        }
        Ok(to)
    }

    /// Whether the text ends with `rest` behind a state of it.
    fn ends(&self, q: u32, rest: Rest<'_>) -> bool {
        let mut at = q;
        for &symbol in rest {
            let next = match u8::try_from(symbol) {
                Ok(b) => self.byte(at, b),
                Err(_) => {
                    let tokens = &self.fsm.states[at as usize].tokens;
                    tokens.iter().find(|t| u64::from(t.token) + 256 == symbol).map(|t| t.target).filter(|&t| t != DEAD)
                }
            };
            match next {
                Some(next) => at = next,
                None => return false,
            }
        }
        let end = &self.fsm.states[at as usize];
        end.accept != REJECT && end.edges.is_empty() && end.fallback == NONE
    }

    /// Where a byte leads from a state of the text.
    fn byte(&self, q: u32, b: u8) -> Option<u32> {
        let mut at = q;
        for _ in 0..=self.text {
            let state = self.fsm.states.get(at as usize)?;
            if let Some(e) = state.edges.iter().find(|e| e.lo <= b && b <= e.hi) {
                return (e.target != DEAD).then_some(e.target);
            }
            at = state.fallback;
        }
        None
    }
}

/// Whether a set stands in a text.
pub(crate) fn stands_in(machine: &Machine, set: u32, text: &CountedText) -> bool {
    machine.kernel(set).iter().any(|item| machine.link(item.node) == Some(text.link))
}
