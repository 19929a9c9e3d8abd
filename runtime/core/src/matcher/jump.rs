//! What must come next, whatever is sampled.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::{Access, Matcher, MatcherError};

impl Matcher {
    /// Bytes that must come next: the longest run in which only one byte can follow and the text cannot end.
    pub fn jump_forward(&self) -> Result<Vec<u8>, MatcherError> {
        const MOST: usize = 1 << 16;
        self.with(|access, record| {
            let mut bytes = vec![];
            let mut step = record.now();
            let mut seen = FxHashMap::default();
            while !step.terminated && bytes.len() < MOST && !access.table().machine.is_done(step.set) {
                let next = self.ways_on(access, step, &mut record.strings, 2)?;
                let Access::Write(table) = access else { return None };
                // A special token is another way on; a set seen before would force the same bytes for ever.
                if next.len() != 1 || !table.machine.tokens(step.set).is_empty() || seen.insert(step.set, ()).is_some()
                {
                    break;
                }
                bytes.push(next[0]);
                match self.advance_bytes(access, step, &next, &mut VecDeque::new(), &mut record.strings)? {
                    Some(next) => step = next,
                    None => break,
                }
            }
            Some(bytes)
        })
    }

    /// Tokens that must come next: as long as the mask leaves exactly one.
    pub fn jump_forward_tokens(&self) -> Result<Vec<u32>, MatcherError> {
        const MOST: usize = 1024;
        let ahead = self.fork();
        let mut row = vec![0u32; self.grammar.row_words];
        let mut tokens = vec![];
        while tokens.len() < MOST && !ahead.is_terminated() {
            ahead.fill(&mut row)?;
            let mut allowed = row.iter().enumerate().filter(|w| *w.1 != 0);
            let (Some((word, &bits)), None) = (allowed.next(), allowed.next()) else { break };
            if bits.count_ones() != 1 {
                break;
            }
            let token = (word * 32) as u32 + bits.trailing_zeros();
            if !ahead.accept(token)? {
                break;
            }
            tokens.push(token);
        }
        Ok(tokens)
    }
}
