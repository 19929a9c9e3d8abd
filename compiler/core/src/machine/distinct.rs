//! Items in marked states.

use smallvec::SmallVec;

use super::{Item, Machine, UNKNOWN};

impl Machine {
    /// The set without its items in marked states, itself if there are none; `None` if nobody has looked yet.
    #[inline]
    pub fn unmarked(&self, set: u32) -> Option<u32> {
        let known = self.sets[set as usize].unmarked;
        (known != UNKNOWN).then_some(known)
    }

    /// The same, looking if need be.
    pub fn find_unmarked(&mut self, set: u32) -> u32 {
        if let Some(known) = self.unmarked(set) {
            return known;
        }
        let kernel: SmallVec<[Item; 8]> = SmallVec::from_slice(self.kernels.get(set));
        let marked = |i: &Item| !i.is_mark() && self.nodes[i.node as usize].unit.is_marked(i.state);
        let rest: SmallVec<[Item; 8]> = kernel.iter().filter(|i| !marked(i)).copied().collect();
        let found = if rest.len() == kernel.len() {
            set
        } else {
            self.fresh.clear();
            self.fresh.extend_from_slice(&rest);
            self.intern_fresh()
        };
        self.sets[set as usize].unmarked = found;
        found
    }
}
