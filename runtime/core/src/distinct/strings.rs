//! What has been read: open containers, the string at hand, and the strings and other values of each container.
//!
//! Everything is in stacks that only grow while the text does. A [`Place`] says how much of them belongs to a text, so going
//! back (a rollback, a trial) is cutting them off, and happens where a text is next continued from an earlier place.

use super::digest::{self, is_scalar, Reading};
use super::endings::{Spot, Written};
use super::spelling::Spelling;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// In no container whose strings are compared.
    Off,
    Outside,
    Inside,
}

/// Where a text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    mode: Mode,
    spelling: Spelling,
    /// The trie node of what is written of the string at hand; [`NONE`] if no earlier string of its container begins so.
    node: u32,
    /// The root of the innermost container.
    container: u32,
    /// Where in `text` the string at hand begins.
    start: u32,
    /// How much of each stack there is.
    text: u32,
    nodes: u32,
    ended: u32,
    raw: u32,
    known: u32,
    /// Where in `raw` the number or literal at hand begins, or [`NONE`].
    scalar: u32,
}

impl Place {
    pub const START: Place = Place {
        mode: Mode::Off,
        spelling: Spelling::START,
        node: NONE,
        container: NONE,
        start: 0,
        text: 0,
        nodes: 0,
        ended: 0,
        raw: 0,
        known: 0,
        scalar: NONE,
    };

    #[inline]
    pub fn is_off(&self) -> bool {
        self.mode == Mode::Off
    }

    #[inline]
    pub(super) fn is_inside(&self) -> bool {
        self.mode == Mode::Inside
    }

    /// Whether this is further on in the string that `from` is in.
    pub(super) fn is_in_the_string_of(&self, from: &Place) -> bool {
        self.is_inside() && from.is_inside() && (self.start, self.container) == (from.start, from.container)
    }

    /// Inside a string that begins like an earlier one: how it goes on.
    pub(super) fn along(&self) -> Option<Along> {
        (self.mode == Mode::Inside && self.node != NONE).then_some(Along { spelling: self.spelling, node: self.node })
    }

    /// A place right behind an opening quote.
    pub(super) fn at_start(&self) -> bool {
        self.node == self.container && self.spelling.is_plain()
    }
}

/// A position along earlier strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Along {
    pub spelling: Spelling,
    node: u32,
}

/// A node of the tries of earlier strings.
#[derive(Clone, Copy, Debug)]
struct Node {
    byte: u8,
    /// A string ends here.
    ends: bool,
    /// A container's root; `parent` is then the container around it.
    root: bool,
    parent: u32,
    first: u32,
    next: u32,
    /// Of a container: where in `raw` it begins, and the newest of its known values.
    from: u32,
    last: u32,
}

/// A value that is no string.
#[derive(Clone, Copy, Debug)]
struct Known {
    container: u32,
    /// The one before it in its container.
    previous: u32,
    digest: u128,
    // Its parts: from where to where.
    members: (u32, u32),
    digits: (u32, u32),
}

/// The item at hand of a container that has other values already.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    container: u32,
    /// Where it begins in `raw`.
    from: u32,
    /// It is a number or a literal.
    scalar: bool,
}

impl Item {
    /// Whether it has ended by `place`.
    pub fn has_ended(&self, place: &Place) -> bool {
        place.container == self.container && place.mode == Mode::Outside && place.scalar == NONE || place.is_off()
    }
}

/// What a byte has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Nothing,
    /// An opening bracket that does not open a container of the text as it has been read.
    Bracket,
    /// A string has ended.
    Ended,
    /// A container has ended that stands in another and begins here in `raw`.
    Closed(u32),
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strings {
    /// The decoded strings, one behind the other.
    text: Vec<u8>,
    nodes: Vec<Node>,
    /// Nodes at which strings end, in the order of the text.
    ended: Vec<u32>,
    /// The text itself, where containers are compared.
    raw: Vec<u8>,
    known: Vec<Known>,
    /// Parts of the known values: see [`Reading`].
    members: Vec<(u64, u64)>,
    digits: Vec<u8>,
}

impl Strings {
    /// Forget what is not part of the text up to `place`.
    #[inline]
    pub fn back_to(&mut self, place: &Place) {
        let most = (place.text as usize, place.nodes as usize, place.ended as usize, place.raw as usize);
        if (self.text.len(), self.nodes.len(), self.ended.len(), self.raw.len()) != most {
            self.cut(place);
        }
    }

    fn cut(&mut self, place: &Place) {
        while self.known.len() > place.known as usize {
            let Some(k) = self.known.pop() else { break };
            self.nodes[k.container as usize].last = k.previous;
            self.members.truncate(k.members.0 as usize);
            self.digits.truncate(k.digits.0 as usize);
        }
        self.raw.truncate(place.raw as usize);
        for node in self.ended.drain(place.ended as usize..) {
            self.nodes[node as usize].ends = false;
        }
        while self.nodes.len() > place.nodes as usize {
            let Some(n) = self.nodes.pop() else { break };
            if !n.root {
                // The newest child comes first.
                self.nodes[n.parent as usize].first = n.next;
            }
        }
        self.text.truncate(place.text as usize);
    }

    /// Read a byte. Before it, a number or literal may have ended: see [`Strings::ends_scalar`].
    #[inline]
    pub(super) fn feed(&mut self, place: &mut Place, b: u8) -> Event {
        let opens = b == b'[' || b == b'{';
        if place.mode == Mode::Off {
            return if opens { Event::Bracket } else { Event::Nothing };
        }
        let at = place.raw;
        self.raw.push(b);
        place.raw += 1;
        if place.mode == Mode::Outside {
            return self.feed_outside(place, b, at);
        }
        if place.spelling.closes(b) {
            let rest = place.spelling.close();
            self.spell(place, &rest);
            place.mode = Mode::Outside;
            return Event::Ended;
        }
        let spelled = place.spelling.take(b);
        self.spell(place, &spelled);
        if opens {
            return Event::Bracket;
        }
        Event::Nothing
    }

    fn feed_outside(&mut self, place: &mut Place, b: u8, at: u32) -> Event {
        if is_scalar(b) {
            place.scalar = place.scalar.min(at);
            return Event::Nothing;
        }
        place.scalar = NONE;
        match b {
            b'"' => {
                let root = &self.nodes[place.container as usize];
                place.node = if root.first != NONE || root.ends { place.container } else { NONE };
                (place.mode, place.spelling, place.start) = (Mode::Inside, Spelling::START, place.text);
            }
            b'[' | b'{' => self.open(place, place.container, at),
            b']' | b'}' => {
                let closed = self.nodes[place.container as usize];
                place.container = closed.parent;
                if place.container != NONE {
                    return Event::Closed(closed.from);
                }
                place.mode = Mode::Off;
            }
            _ => {}
        }
        Event::Nothing
    }

    fn spell(&mut self, place: &mut Place, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
        place.text += bytes.len() as u32;
        place.node = bytes.iter().fold(place.node, |node, &b| self.child(node, b));
    }

    fn open(&mut self, place: &mut Place, around: u32, from: u32) {
        let container =
            Node { byte: 0, ends: false, root: true, parent: around, first: NONE, next: NONE, from, last: NONE };
        place.container = self.push(container);
        place.nodes = self.nodes.len() as u32;
    }

    /// The bracket just read opens a container whose strings are compared, whatever was thought of the text before.
    pub(super) fn begin(&mut self, place: &mut Place) {
        self.open(place, NONE, place.raw);
        (place.mode, place.scalar) = (Mode::Outside, NONE);
    }

    /// Add the string that has just ended to its container's. False: it is there already.
    pub(super) fn note(&mut self, place: &mut Place) -> bool {
        let mut at = place.container;
        for i in place.start as usize..place.text as usize {
            let byte = self.text[i];
            at = match self.child(at, byte) {
                NONE => {
                    let next = self.nodes[at as usize].first;
                    let (from, last) = (NONE, NONE);
                    let new =
                        self.push(Node { byte, ends: false, root: false, parent: at, first: NONE, next, from, last });
                    self.nodes[at as usize].first = new;
                    new
                }
                known => known,
            };
        }
        place.nodes = self.nodes.len() as u32;
        if std::mem::replace(&mut self.nodes[at as usize].ends, true) {
            return false;
        }
        self.ended.push(at);
        place.ended += 1;
        true
    }

    /// Where the number or literal at hand begins, if byte `b` is not part of it.
    #[inline]
    pub(super) fn ends_scalar(&self, place: &Place, b: u8) -> Option<u32> {
        (place.scalar != NONE && place.mode == Mode::Outside && !is_scalar(b)).then_some(place.scalar)
    }

    /// Add the value that begins at `from` in `raw` and has just ended to its container's. False: it is there already.
    pub(super) fn note_value(&mut self, place: &mut Place, from: u32) -> bool {
        let mut reading = Reading::of(&self.raw[from as usize..place.raw as usize]);
        let Some(digest) = reading.digest else { return true };
        reading.members.sort_unstable();
        if self.known_in(place.container).any(|k| k.digest == digest) {
            return false;
        }
        let (members, digits) = (self.members.len() as u32, self.digits.len() as u32);
        self.members.extend(reading.members);
        self.digits.extend(reading.digits);
        let members = (members, self.members.len() as u32);
        let digits = (digits, self.digits.len() as u32);
        let container = &mut self.nodes[place.container as usize];
        let previous = std::mem::replace(&mut container.last, self.known.len() as u32);
        self.known.push(Known { container: place.container, previous, digest, members, digits });
        place.known = self.known.len() as u32;
        true
    }

    /// The known values of a container, newest first.
    fn known_in(&self, container: u32) -> impl Iterator<Item = &Known> {
        let get = |id: u32| self.known.get(id as usize);
        std::iter::successors(get(self.nodes[container as usize].last), move |k| get(k.previous))
    }

    /// The item that the text is in, if its container has other values; the innermost if there are several.
    pub(super) fn item(&self, place: &Place) -> Option<Item> {
        let (mut container, mut inside) = (place.container, None);
        while place.mode != Mode::Off && container != NONE {
            let node = &self.nodes[container as usize];
            let scalar = inside.is_none();
            let from = inside.unwrap_or(place.scalar);
            if node.last != NONE && from != NONE {
                return Some(Item { container, from, scalar });
            }
            (container, inside) = (node.parent, Some(node.from));
        }
        None
    }

    /// Where the text is in an item: how many of its containers are open, and what the next byte is part of.
    pub(super) fn spot(&self, set: u32, place: &Place, item: &Item) -> Spot {
        let (mut depth, mut container) = (0, place.container);
        while container != item.container && container != NONE {
            depth += 1;
            container = self.nodes[container as usize].parent;
        }
        let written = match place.mode {
            Mode::Inside if place.spelling.is_escape() => Written::Escape,
            Mode::Inside => Written::Inside,
            _ => Written::Outside,
        };
        Spot { set, depth, written }
    }

    /// Whether an item that begins here may be compared with known values of its container.
    pub(super) fn may_begin(&self, place: &Place) -> bool {
        place.mode == Mode::Outside && self.nodes[place.container as usize].last != NONE
    }

    /// Whether some known value has all that is certain of an item.
    pub(super) fn is_like_another(&self, place: &Place, item: &Item) -> bool {
        if item.scalar {
            return true;
        }
        let mut members = digest::certain(&self.raw[item.from as usize..place.raw as usize]);
        members.sort_unstable();
        if members.windows(2).any(|m| m[0].0 == m[1].0) {
            // A name comes twice: only its last value will count, which may be yet to come.
            return true;
        }
        self.known_in(item.container).any(|k| {
            let known = &self.members[k.members.0 as usize..k.members.1 as usize];
            members.iter().all(|m| known.binary_search(m).is_ok())
        })
    }

    /// A digest of what is written of an item.
    pub(super) fn begun(&self, place: &Place, item: &Item) -> u128 {
        digest::begun(&self.raw[item.from as usize..place.raw as usize])
    }

    /// The digits of all numbers in the known values around a place, sorted.
    pub(super) fn numbers(&self, place: &Place) -> Vec<&[u8]> {
        let (mut container, mut found) = (place.container, vec![]);
        while container != NONE {
            for k in self.known_in(container) {
                let digits = &self.digits[k.digits.0 as usize..k.digits.1 as usize];
                // A point ends each.
                found.extend(digits.split(|b| *b == b'.').take(digits.iter().filter(|b| **b == b'.').count()));
            }
            container = self.nodes[container as usize].parent;
        }
        found.sort_unstable();
        found
    }

    /// The number or literal at hand, as far as it is written.
    pub(super) fn scalar(&self, place: &Place) -> &[u8] {
        let from = place.scalar.min(place.raw);
        &self.raw[from as usize..place.raw as usize]
    }

    fn push(&mut self, node: Node) -> u32 {
        self.nodes.push(node);
        self.nodes.len() as u32 - 1
    }

    fn child(&self, node: u32, b: u8) -> u32 {
        if node == NONE {
            return NONE;
        }
        let mut at = self.nodes[node as usize].first;
        while at != NONE && self.nodes[at as usize].byte != b {
            at = self.nodes[at as usize].next;
        }
        at
    }

    /// The beginning of a string where there are earlier ones.
    pub(super) fn opening(&self, place: &Place) -> Option<Along> {
        if place.mode != Mode::Outside {
            return None;
        }
        let root = &self.nodes[place.container as usize];
        (root.first != NONE || root.ends).then_some(Along { spelling: Spelling::START, node: place.container })
    }

    /// `along` after a byte that does not close the string; `None` if it then differs from all earlier strings.
    pub(super) fn go(&self, along: Along, b: u8) -> Option<Along> {
        let Along { mut spelling, node } = along;
        let spelled = spelling.take(b);
        let node = spelled.iter().fold(node, |node, &b| self.child(node, b));
        (node != NONE).then_some(Along { spelling, node })
    }

    /// Whether a string that ends here is an earlier one.
    pub(super) fn is_earlier(&self, along: Along) -> bool {
        let Along { mut spelling, node } = along;
        let node = spelling.close().iter().fold(node, |node, &b| self.child(node, b));
        node != NONE && self.nodes[node as usize].ends
    }

    /// The bytes with which earlier strings go on, or end, or may go on in another spelling, at a plain position.
    pub(super) fn next_bytes(&self, along: Along) -> gramary_compiler::unit::ByteSet {
        let mut set = [0u64; 4];
        [b'"', b'\\'].iter().for_each(|&b| set[b as usize / 64] |= 1 << (b % 64));
        let mut at = self.nodes[along.node as usize].first;
        while at != NONE {
            let n = &self.nodes[at as usize];
            set[n.byte as usize / 64] |= 1 << (n.byte % 64);
            at = n.next;
        }
        set
    }
}
