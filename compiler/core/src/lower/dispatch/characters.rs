//! UTF-8 in free text: what characters begin with, and what may follow within one.

use crate::fsm::NONE;

pub(super) const MIDDLES: usize = 7;
/// Characters begun: the bytes that may follow, and what is begun then.
pub(super) const MIDDLE: [(u8, u8, u32); MIDDLES] = [
    (0x80, 0xbf, NONE), // one more byte
    (0x80, 0xbf, 0),    // two more
    (0x80, 0xbf, 1),    // three more
    (0xa0, 0xbf, 0),    // after E0
    (0x80, 0x9f, 0),    // after ED
    (0x90, 0xbf, 1),    // after F0
    (0x80, 0x8f, 1),    // after F4
];
/// First bytes of characters, and what they begin.
pub(super) const LEAD: [(u8, u8, u32); 9] = [
    (0x00, 0x7f, NONE),
    (0xc2, 0xdf, 0),
    (0xe0, 0xe0, 3),
    (0xe1, 0xec, 1),
    (0xed, 0xed, 4),
    (0xee, 0xef, 1),
    (0xf0, 0xf0, 5),
    (0xf1, 0xf3, 2),
    (0xf4, 0xf4, 6),
];

/// What is begun after one more symbol of a pattern.
pub(super) fn next_middle(middle: u32, symbol: u64) -> u32 {
    let Ok(byte) = u8::try_from(symbol) else { return NONE };
    match MIDDLE.get(middle as usize) {
        Some(m) => m.2,
        None => LEAD.iter().find(|l| l.0 <= byte && byte <= l.1).map_or(NONE, |l| l.2),
    }
}
