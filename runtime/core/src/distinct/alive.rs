//! Whether a string that begins like an earlier one can still become another.

use gramary_compiler::machine::DEAD_SET;
use gramary_compiler::unit::has_byte;
use rustc_hash::FxHashSet;

use super::strings::{Along, Place, Strings};
use crate::matcher::Access;

/// More places than this are not looked at; the string is then taken to be alive.
const MOST: usize = 1 << 14;

/// Whether the text can be completed from `set`, as far as the string at hand decides it. `None`: a memo is missing.
#[inline]
pub(crate) fn alive(access: &mut Access<'_>, set: u32, place: &Place, strings: &Strings) -> Option<bool> {
    match place.along() {
        Some(along) if !place.at_start() => search(access, set, along, strings),
        _ => Some(true),
    }
}

fn search(access: &mut Access<'_>, set: u32, along: Along, strings: &Strings) -> Option<bool> {
    let mut seen: FxHashSet<(u32, Along)> = FxHashSet::default();
    let mut work = vec![(set, along)];
    while let Some((set, along)) = work.pop() {
        let live = access.live(set)?;
        let plain = along.spelling.is_plain();
        if plain {
            // Nearly always some byte is none of those with which the earlier strings go on, and that settles it.
            let next = strings.next_bytes(along);
            for b in (0..=255u8).filter(|&b| has_byte(&live, b) && !has_byte(&next, b)) {
                if access.step(set, b)? != DEAD_SET {
                    return Some(true);
                }
            }
        }
        for b in (0..=255u8).filter(|&b| has_byte(&live, b)) {
            let to = access.step(set, b)?;
            if to == DEAD_SET {
                continue;
            }
            if along.spelling.closes(b) {
                if !strings.is_earlier(along) || access.unmarked(to)? != DEAD_SET {
                    return Some(true);
                }
                continue;
            }
            match strings.go(along, b) {
                None => return Some(true),
                Some(next) => {
                    if seen.insert((to, next)) {
                        work.push((to, next));
                    }
                }
            }
        }
        if seen.len() > MOST {
            return Some(true);
        }
    }
    Some(false)
}
