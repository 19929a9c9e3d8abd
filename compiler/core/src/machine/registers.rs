//! The register program: what an act does to an item's registers.
//!
//! A register file is a slice of words: `need, room` for every counter, then the key register (see [`Layout`]). An item
//! stores it interned; the empty slice stands for all zeros, which is what every register is until something loads it.

use crate::fsm::{Op, NO_COUNTER, UNBOUNDED};
use crate::ir::PropertyOrder;
use crate::unit::{Keys, Layout};

/// Run `ops` on `words`. False: the edge does not exist; `words` is then meaningless.
pub fn run(ops: &[Op], layout: &Layout, words: &mut [u32]) -> bool {
    ops.iter().all(|&op| step(op, layout, words))
}

fn step(op: Op, layout: &Layout, words: &mut [u32]) -> bool {
    let (counters, keys) = words.split_at_mut(2 * layout.counters as usize);
    match op {
        Op::Load { r, min, max } => {
            counters[2 * r as usize] = min;
            counters[2 * r as usize + 1] = max;
            true
        }
        Op::Tick { r } => {
            let (need, room) = (2 * r as usize, 2 * r as usize + 1);
            if counters[room] == 0 {
                return false;
            }
            counters[need] = counters[need].saturating_sub(1);
            if counters[room] != UNBOUNDED {
                counters[room] -= 1;
            }
            true
        }
        Op::Exit { r } => {
            let (need, room) = (2 * r as usize, 2 * r as usize + 1);
            if counters[need] != 0 {
                return false;
            }
            counters[room] = 0;
            true
        }
        Op::Room { r } => counters[2 * r as usize + 1] > 0,
        Op::Spare { r } => {
            let room = counters[2 * r as usize + 1];
            layout.keys.as_ref().map_or(room > 0, |k| room > k.missing(keys))
        }
        Op::Viable { r, mask, other } => {
            let counter = (r != NO_COUNTER).then(|| (counters[2 * r as usize], counters[2 * r as usize + 1]));
            match &layout.keys {
                Some(k) => k.viable(counter, mask, other, keys),
                None => other && counter.is_none_or(|(_, room)| room > 0),
            }
        }
        _ => match &layout.keys {
            Some(k) => k.step(op, keys),
            // An object without declared keys has no key register: nothing is required, everything is undeclared.
            None => !matches!(op, Op::Take { .. } | Op::Avail { .. }),
        },
    }
}

impl Keys {
    fn step(&self, op: Op, words: &mut [u32]) -> bool {
        let any = self.order == PropertyOrder::Any;
        match op {
            Op::Take { key } => {
                if !self.available(key, words) {
                    return false;
                }
                if any {
                    words[key as usize / 32] |= 1 << (key % 32);
                } else {
                    words[0] = key + 1;
                }
                true
            }
            Op::Avail { mask } => self.masks[mask as usize].iter().any(|&key| self.available(key, words)),
            Op::Other if any => true,
            Op::Other => {
                let free = self.next_required(words[0]).is_none();
                words[0] = self.count;
                free
            }
            Op::More if self.open => true,
            Op::More if any => words.iter().map(|w| w.count_ones()).sum::<u32>() < self.count,
            Op::More => words[0] < self.count,
            Op::Close => {
                let complete = self.missing(words) == 0;
                words.fill(0);
                complete
            }
            _ => true,
        }
    }

    /// See [`Op::Viable`]. `counter`: need and room of the pairs.
    fn viable(&self, counter: Option<(u32, u32)>, mask: u32, other: bool, words: &[u32]) -> bool {
        let missing = self.missing(words);
        let declared = self.order == PropertyOrder::Declared;
        if other && !(declared && missing > 0) && counter.is_none_or(|(_, room)| room > missing) {
            return true;
        }
        self.masks[mask as usize].iter().any(|&key| {
            self.available(key, words)
                && counter.is_none_or(|(need, room)| {
                    let rest = missing - u32::from(self.required.binary_search(&key).is_ok());
                    room > rest && (self.open || !declared || self.count - key >= need)
                })
        })
    }

    pub(super) fn available(&self, key: u32, words: &[u32]) -> bool {
        match self.order {
            PropertyOrder::Any => words[key as usize / 32] >> (key % 32) & 1 == 0,
            PropertyOrder::Declared => key >= words[0] && self.next_required(words[0]).is_none_or(|r| key <= r),
        }
    }

    /// The first required key at or after a position.
    fn next_required(&self, position: u32) -> Option<u32> {
        self.required.get(self.required.partition_point(|&r| r < position)).copied()
    }

    /// Number of required keys not yet seen.
    fn missing(&self, words: &[u32]) -> u32 {
        match self.order {
            PropertyOrder::Any => self.required_words.iter().zip(words).map(|(r, w)| (r & !w).count_ones()).sum(),
            PropertyOrder::Declared => (self.required.len() - self.required.partition_point(|&r| r < words[0])) as u32,
        }
    }
}

/// The class of a register file for masks (R7): no token can tell two files of one class apart. A token ticks a counter
/// at most `reach` times, so a room above `reach` is as good as unbounded, and all needs above it are alike.
pub fn clamp(layout: &Layout, reach: u32, words: &mut [u32]) {
    for pair in words[..2 * layout.counters as usize].chunks_exact_mut(2) {
        pair[0] = pair[0].min(reach + 1);
        if pair[1] > reach {
            pair[1] = UNBOUNDED;
        }
    }
}
