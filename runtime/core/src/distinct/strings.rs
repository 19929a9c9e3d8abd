//! What has been read: open containers, the string at hand, and the strings of each container.
//!
//! Everything is in stacks that only grow while the text does. A [`Place`] says how much of them belongs to a text, so going
//! back (a rollback, a trial) is cutting them off, and happens where a text is next continued from an earlier place.

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
    };

    #[inline]
    pub fn is_off(&self) -> bool {
        self.mode == Mode::Off
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
}

/// What a byte has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Nothing,
    /// An opening bracket that does not open a container of the text as it has been read.
    Bracket,
    /// A string has ended.
    Ended,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strings {
    /// The decoded strings, one behind the other.
    text: Vec<u8>,
    nodes: Vec<Node>,
    /// Nodes at which strings end, in the order of the text.
    ended: Vec<u32>,
}

impl Strings {
    /// Forget what is not part of the text up to `place`.
    #[inline]
    pub fn back_to(&mut self, place: &Place) {
        let most = (place.text as usize, place.nodes as usize, place.ended as usize);
        if (self.text.len(), self.nodes.len(), self.ended.len()) != most {
            self.cut(place);
        }
    }

    fn cut(&mut self, place: &Place) {
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

    /// Read a byte.
    #[inline]
    pub(super) fn feed(&mut self, place: &mut Place, b: u8) -> Event {
        let opens = b == b'[' || b == b'{';
        match place.mode {
            Mode::Off if opens => return Event::Bracket,
            Mode::Off => {}
            Mode::Outside => match b {
                b'"' => {
                    let root = &self.nodes[place.container as usize];
                    place.node = if root.first != NONE || root.ends { place.container } else { NONE };
                    (place.mode, place.spelling, place.start) = (Mode::Inside, Spelling::START, place.text);
                }
                b'[' | b'{' => self.open(place, place.container),
                b']' | b'}' => {
                    place.container = self.nodes[place.container as usize].parent;
                    if place.container == NONE {
                        place.mode = Mode::Off;
                    }
                }
                _ => {}
            },
            Mode::Inside if place.spelling.closes(b) => {
                let rest = place.spelling.close();
                self.spell(place, &rest);
                place.mode = Mode::Outside;
                return Event::Ended;
            }
            Mode::Inside => {
                let spelled = place.spelling.take(b);
                self.spell(place, &spelled);
                if opens {
                    return Event::Bracket;
                }
            }
        }
        Event::Nothing
    }

    fn spell(&mut self, place: &mut Place, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
        place.text += bytes.len() as u32;
        place.node = bytes.iter().fold(place.node, |node, &b| self.child(node, b));
    }

    fn open(&mut self, place: &mut Place, around: u32) {
        place.container = self.push(Node { byte: 0, ends: false, root: true, parent: around, first: NONE, next: NONE });
        place.nodes = self.nodes.len() as u32;
    }

    /// The bracket just read opens a container whose strings are compared, whatever was thought of the text before.
    pub(super) fn begin(&mut self, place: &mut Place) {
        self.open(place, NONE);
        place.mode = Mode::Outside;
    }

    /// Add the string that has just ended to its container's. False: it is there already.
    pub(super) fn note(&mut self, place: &mut Place) -> bool {
        let mut at = place.container;
        for i in place.start as usize..place.text as usize {
            let byte = self.text[i];
            at = match self.child(at, byte) {
                NONE => {
                    let next = self.nodes[at as usize].first;
                    let new = self.push(Node { byte, ends: false, root: false, parent: at, first: NONE, next });
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
