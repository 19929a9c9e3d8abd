//! Tags: which of them a text is in, and what opened or closed since somebody asked.

use std::collections::VecDeque;

use super::{Matcher, Step};
use crate::grammar::Place;
use crate::table::Table;

/// A tag that opened or closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagEvent {
    pub opened: bool,
    pub tag: u32,
    /// Offset of the first byte after the tag's begin or end.
    pub at: u64,
}

impl Matcher {
    /// Note the tag that the last byte opened or closed.
    pub(super) fn watch(&self, table: &Table, step: &mut Step, events: &mut VecDeque<TagEvent>) {
        let code = table.place(step.set, || {
            let (place, around) = self.place(table, step.set);
            match place {
                Place::Outside => 0,
                Place::Ending => 1,
                Place::In(tag) => (tag + 1) << 1 | u32::from(around),
            }
        });
        let (place, around) = match code {
            0 => (Place::Outside, false),
            1 => (Place::Ending, false),
            code => (Place::In((code >> 1) - 1), code & 1 == 1),
        };
        let event = match (place, step.tag) {
            // Seen from inside its content only: the begin was the trigger itself, one byte ago.
            (Place::In(tag), None) => TagEvent { opened: true, tag, at: step.at - u64::from(around) },
            (Place::Outside, Some(tag)) => TagEvent { opened: false, tag, at: step.at },
            _ => return,
        };
        step.tag = event.opened.then_some(event.tag);
        step.events += 1;
        events.push_back(event);
    }

    /// Where a set stands: among its own items, or (then `true`) around them, through return sets.
    fn place(&self, table: &Table, set: u32) -> (Place, bool) {
        let Some(tags) = &self.grammar.tags else { return (Place::Outside, false) };
        let machine = &table.machine;
        let among = |set: u32| {
            let places = machine.kernel(set).iter().filter_map(|item| {
                let link = machine.link(item.node)?;
                match tags.choices.get(&link) {
                    Some(states) => Some(states.place(item.state)),
                    None => tags.inside.get(&link).map(|&tag| Place::In(tag)),
                }
            });
            places.max_by_key(|p| match p {
                Place::Outside => 0,
                Place::Ending => 1,
                Place::In(_) => 2,
            })
        };
        if let Some(place) = among(set) {
            return (place, false);
        }
        // One chain is enough: all items of a set are in the same tag, or in none. Return sets are older than the sets
        // that name them, so the chain ends.
        let mut at = set;
        while let Some(ret) = machine.kernel(at).first().and_then(|&item| machine.return_of(item)) {
            match among(ret) {
                Some(place @ Place::In(_)) => return (place, true),
                Some(_) => break,
                None => at = ret,
            }
        }
        (Place::Outside, false)
    }

    /// Tag events since the last call.
    pub fn tag_events(&self) -> Vec<TagEvent> {
        let _table = self.grammar.table.read();
        let mut record = self.record.lock();
        let skip = (record.unreported - record.first_event) as usize;
        let new: Vec<TagEvent> = record.events.iter().skip(skip).copied().collect();
        record.unreported = record.first_event + record.events.len() as u64;
        self.trim(&mut record);
        new
    }
}
