//! The mask-cache entries of one unit, and what those of all units of a store hold together.
//!
//! Entries are built long after their unit came into a store, by whichever thread needs them first. Who decides whether a store has
//! grown too large must not go through all of its units to find out, so what they hold is kept count of: in a [`Meter`] that
//! the store has, to which a unit's entries count as long as a node of the store has the unit.

use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::entry::onward::Onward;
use crate::entry::{Beneath, BeneathKey, Entry, Family, Remainder};
use crate::machine::Looked;
use crate::unit::{EntryKey, Layout};

/// What the units of a store hold.
#[derive(Debug, Default)]
pub struct Meter {
    entries: AtomicUsize,
    bytes: AtomicUsize,
}

impl Meter {
    pub fn entries(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// Bytes of entries and families.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// A unit's part of it.
#[derive(Debug, Default)]
struct Share {
    entries: usize,
    bytes: usize,
    /// The store's meter, while nodes have the unit.
    meter: Option<Arc<Meter>>,
    nodes: u32,
}

/// What is kept under `key`, `value` if nothing was; and whether it is new.
fn keep<K: Eq + Hash, V: Clone>(known: &RwLock<FxHashMap<K, V>>, key: K, value: V) -> (V, bool) {
    let mut known = known.write();
    let before = known.len();
    let kept = known.entry(key).or_insert(value).clone();
    (kept, known.len() > before)
}

/// An entry that was built here, for which registers, and what was asked of them.
#[derive(Debug)]
struct Built {
    regs: SmallVec<[u32; 4]>,
    looked: Looked,
    entry: Arc<Entry>,
}

/// Entries of one state that are looked through for one that is right for other registers.
const MOST_BUILT: usize = 16;

/// Nodes of token trees for which a unit's part is kept.
const MOST_BENEATH: usize = 64;

/// Remainders for which a unit's entries are kept.
const MOST_ONWARD: usize = 8;

/// See the module.
#[derive(Debug, Default)]
pub struct MaskCache {
    entries: RwLock<FxHashMap<EntryKey, Arc<Entry>>>,
    built: RwLock<FxHashMap<u32, Vec<Built>>>,
    families: RwLock<FxHashMap<u32, Option<Arc<Family>>>>,
    beneath: RwLock<FxHashMap<BeneathKey, Arc<Beneath>>>,
    onward: RwLock<Onward>,
    share: Mutex<Share>,
}

impl MaskCache {
    /// By state and register class.
    pub fn entries(&self) -> RwLockReadGuard<'_, FxHashMap<EntryKey, Arc<Entry>>> {
        self.entries.read()
    }

    /// By state; `None`: it is known that the state has none.
    pub fn families(&self) -> RwLockReadGuard<'_, FxHashMap<u32, Option<Arc<Family>>>> {
        self.families.read()
    }

    /// Keeps an entry and returns the one that is kept: of two threads that built it the first one's, so that equal entries
    /// stay one.
    pub fn keep_entry(&self, key: EntryKey, entry: Arc<Entry>) -> Arc<Entry> {
        let (kept, new) = keep(&self.entries, key, entry);
        if new {
            self.count(1, kept.size());
        }
        kept
    }

    /// An entry of the state that is right for these registers too; it is kept for them from now on.
    pub fn alike(&self, layout: &Layout, (state, regs): &EntryKey) -> Option<Arc<Entry>> {
        let entry = {
            let built = self.built.read();
            let right = |b: &&Built| b.looked.alike(layout, &b.regs, regs);
            built.get(state)?.iter().find(right)?.entry.clone()
        };
        let (kept, new) = keep(&self.entries, (*state, regs.clone()), entry);
        if new {
            self.count(1, std::mem::size_of::<EntryKey>());
        }
        Some(kept)
    }

    /// Remember what was asked of the registers that an entry was built for.
    pub fn note_built(&self, (state, regs): &EntryKey, looked: Looked, entry: &Arc<Entry>) {
        let mut built = self.built.write();
        let built = built.entry(*state).or_default();
        if built.len() < MOST_BUILT {
            built.push(Built { regs: regs.clone(), looked, entry: entry.clone() });
        }
    }

    /// What [`MaskCache::keep_entry`] does, for a family.
    pub fn keep_family(&self, state: u32, family: Option<Arc<Family>>) -> Option<Arc<Family>> {
        let (kept, new) = keep(&self.families, state, family);
        if new {
            self.count(0, kept.as_ref().map_or(0, |f| f.size()));
        }
        kept
    }

    /// What a state allows below a node of a token tree, worked out by `make` if it is not known.
    pub fn beneath(&self, key: BeneathKey, make: impl FnOnce() -> Beneath) -> Arc<Beneath> {
        if let Some(known) = self.beneath.read().get(&key) {
            return known.clone();
        }
        let made = Arc::new(make());
        if self.beneath.read().len() >= MOST_BENEATH {
            return made;
        }
        let (kept, new) = keep(&self.beneath, key, made);
        if new {
            self.count(0, kept.size());
        }
        kept
    }

    /// What the unit's beginning takes of `rest`, worked out by `make` if it is not known. `None`: enough are kept for others.
    pub fn onward(&self, rest: &Arc<Remainder>, make: impl FnOnce() -> Entry) -> Option<Arc<Entry>> {
        let find = |known: &Onward| known.iter().find(|k| Arc::ptr_eq(&k.0, rest)).map(|k| k.1.clone());
        {
            let known = self.onward.read();
            match find(&known) {
                Some(entry) => return Some(entry),
                None if known.len() >= MOST_ONWARD => return None,
                None => {}
            }
        }
        let made = Arc::new(make());
        let mut known = self.onward.write();
        if let Some(entry) = find(&known) {
            return Some(entry);
        }
        self.count(0, made.size());
        known.push((rest.clone(), made.clone()));
        Some(made)
    }

    fn count(&self, entries: usize, bytes: usize) {
        let mut share = self.share.lock();
        share.entries += entries;
        share.bytes += bytes;
        if let Some(meter) = &share.meter {
            meter.entries.fetch_add(entries, Ordering::Relaxed);
            meter.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// A node of the store with this meter has the unit.
    pub(crate) fn join(&self, meter: &Arc<Meter>) {
        let mut share = self.share.lock();
        share.nodes += 1;
        if share.nodes == 1 {
            meter.entries.fetch_add(share.entries, Ordering::Relaxed);
            meter.bytes.fetch_add(share.bytes, Ordering::Relaxed);
            share.meter = Some(meter.clone());
        }
    }

    /// A node that had the unit is gone.
    pub(crate) fn leave(&self) {
        let mut share = self.share.lock();
        share.nodes = share.nodes.saturating_sub(1);
        if share.nodes > 0 {
            return;
        }
        if let Some(meter) = share.meter.take() {
            meter.entries.fetch_sub(share.entries, Ordering::Relaxed);
            meter.bytes.fetch_sub(share.bytes, Ordering::Relaxed);
        }
    }
}
