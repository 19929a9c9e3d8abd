//! Whether a value that begins like an earlier one can still become another.

use gramary_compiler::machine::DEAD_SET;
use gramary_compiler::unit::has_byte;
use rustc_hash::FxHashSet;

use super::strings::{Along, Item, Strings};
use crate::matcher::{Access, Step};

/// More places than this are not looked at; the string is then taken to be alive.
const MOST: usize = 1 << 14;
/// The same for other values.
const MOST_OF_VALUES: usize = 1 << 11;
/// Bytes that may follow where a string is taken to go on as it likes.
const WIDE: u32 = 16;

/// Whether the text can be completed, as far as the values at hand decide it, after a token, or the like, that led from
/// `before` to `step`. `None`: a memo is missing.
#[inline]
pub(crate) fn alive(access: &mut Access<'_>, before: &Step, step: &Step, strings: &mut Strings) -> Option<bool> {
    if let Some(along) = step.place.along().filter(|_| !step.place.at_start()) {
        if !search(access, step.set, along, strings)? {
            return Some(false);
        }
    }
    match strings.item(&step.place) {
        Some(item) => value_alive(access, before, step, item, strings),
        None => Some(true),
    }
}

/// Whether many bytes may follow: inside of a string nearly always.
pub(super) fn is_wide(access: &mut Access<'_>, set: u32) -> Option<bool> {
    Some(access.live(set)?.iter().map(|w| w.count_ones()).sum::<u32>() >= WIDE)
}

#[cold]
fn value_alive(access: &mut Access<'_>, before: &Step, step: &Step, item: Item, strings: &mut Strings) -> Option<bool> {
    // Masks do not look at the many tokens that only go on in such a string.
    if step.place.is_in_the_string_of(&before.place) && is_wide(access, before.set)? {
        return Some(true);
    }
    if !strings.is_like_another(&step.place, &item) {
        return Some(true);
    }
    let found = find_end(access, step, item, strings);
    strings.back_to(&step.place);
    found
}

/// Whether some way on ends the item without being refused. From everywhere a short way to the end comes first: nearly
/// always that makes a new value at once.
fn find_end(access: &mut Access<'_>, step: &Step, item: Item, strings: &mut Strings) -> Option<bool> {
    // A place, what may follow, the byte that comes first, and where in the order of the others to go on.
    let look = |access: &mut Access<'_>, strings: &Strings, at: Step| {
        let spot = strings.spot(at.set, &at.place, &item);
        let exit = access.ending(spot)?;
        Some((at, spot, access.live(at.set)?, exit, usize::from(exit.is_none())))
    };
    let mut path = vec![look(access, strings, *step)?];
    let mut looked = 0;
    // Once an end is refused: what has been looked at, so that more space or more zeros are not.
    let mut seen: Option<FxHashSet<(u32, u128)>> = None;
    while let Some((from, spot, live, exit, next)) = path.last_mut() {
        let b = match (&exit, *next) {
            (Some(exit), 0) => *exit,
            (_, n) if n <= 256 => spot.order()[n - 1],
            _ => {
                path.pop();
                continue;
            }
        };
        let again = *next > 0 && *exit == Some(b);
        *next += 1;
        if again || !has_byte(live, b) {
            continue;
        }
        let mut to = *from;
        to.set = access.step(from.set, b)?;
        if to.set == DEAD_SET {
            continue;
        }
        let before = *from;
        strings.back_to(&before.place);
        if !super::read(access, &mut to, before.set, b, strings)? {
            seen.get_or_insert_default();
            continue;
        }
        looked += 1;
        if item.has_ended(&to.place) || looked > MOST_OF_VALUES {
            return Some(true);
        }
        if seen.as_mut().is_some_and(|seen| !seen.insert((to.set, strings.begun(&to.place, &item)))) {
            continue;
        }
        let next = look(access, strings, to)?;
        path.push(next);
    }
    Some(false)
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
