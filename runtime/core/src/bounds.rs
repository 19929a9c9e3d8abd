//! Bounds on what JSON leaves open without end: whitespace between tokens, digits of a number; and ASCII only.
//!
//! A grammar of JSON lets whitespace and digits go on for ever, and a model that likes them would. Counting them in the
//! grammar would make states of numbers and of every gap, so they are counted here, over the text: a string ends at its
//! quote, everything else is outside. A byte beyond a bound is refused where another kind of byte may follow, or a token, or
//! where the text may end. Where only bytes of its kind may follow (the zeros of `1e000`, the digits up to a multiple of 5), it
//! must bring such a place nearer ([`way_out`]). So a bound never leads into a dead end, and a run beyond it ends, unless the
//! way out is further than is looked for.
//!
//! Among tags, only what is inside of one is read as JSON; a token may begin outside and end inside of one, or the other way.
//! JSON has bytes above 127 in strings only, so that such a token has a quote before them.

use gramary_compiler::machine::Machine;
use gramary_compiler::vocab::{TokenKind, Vocabulary};
use rustc_hash::FxHashSet;

/// What is bounded. The same units serve all bounds: they are no part of a source's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of whitespace in a row, outside of strings.
    pub whitespace: u32,
    /// Digits in a row, outside of strings.
    pub digits: u32,
    /// No byte above 127, strings included (which then have escapes).
    pub ascii: bool,
}

impl Bounds {
    /// No bounds at all.
    pub const NONE: Bounds = Bounds { whitespace: u32::MAX, digits: u32::MAX, ascii: false };

    #[inline]
    pub fn any(&self) -> bool {
        *self != Bounds::NONE
    }

    /// Of a run of either kind.
    #[inline]
    pub(crate) fn inner(&self) -> u32 {
        self.whitespace.min(self.digits)
    }
}

impl Default for Bounds {
    /// A newline and an indent of 4 to depth 16; more digits than any number in use.
    fn default() -> Bounds {
        Bounds { whitespace: 65, digits: 128, ascii: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Not inside JSON.
    Off,
    Outside,
    Inside,
    /// In a string, after a backslash.
    Escape,
}

/// What bounds say about a byte.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verdict {
    Fine,
    /// Refused, unless only bytes of this kind may stand here and it brings another kind nearer.
    Beyond(fn(u8) -> bool),
    Never,
}

/// What the text so far means for the bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lexer {
    mode: Mode,
    /// Whether the run is of digits.
    digits: bool,
    run: u32,
}

pub(crate) fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\n' | b'\r' | b'\t')
}

impl Lexer {
    pub const OFF: Lexer = Lexer { mode: Mode::Off, digits: false, run: 0 };
    pub const START: Lexer = Lexer { mode: Mode::Outside, digits: false, run: 0 };

    /// Take a byte.
    #[inline]
    pub fn feed(&mut self, bounds: &Bounds, b: u8) -> Verdict {
        if bounds.ascii && b >= 0x80 && self.mode != Mode::Off {
            return Verdict::Never;
        }
        match (self.mode, b) {
            (Mode::Off, _) => {}
            (Mode::Escape, _) | (Mode::Outside, b'"') => *self = Lexer { mode: Mode::Inside, digits: false, run: 0 },
            (Mode::Inside, b'"') => self.mode = Mode::Outside,
            (Mode::Inside, b'\\') => self.mode = Mode::Escape,
            (Mode::Inside, _) => {}
            (Mode::Outside, b) => {
                let digits = b.is_ascii_digit();
                if !digits && !is_space(b) {
                    self.run = 0;
                    return Verdict::Fine;
                }
                let (most, kind): (u32, fn(u8) -> bool) =
                    if digits { (bounds.digits, |b| b.is_ascii_digit()) } else { (bounds.whitespace, is_space) };
                self.run = if self.digits == digits { self.run.saturating_add(1) } else { 1 };
                self.digits = digits;
                if self.run > most {
                    return Verdict::Beyond(kind);
                }
            }
        }
        Verdict::Fine
    }

    /// How many more bytes of whitespace and of digits may follow; `None` inside a string or outside of JSON.
    #[inline]
    pub fn room(&self, bounds: &Bounds) -> Option<(u32, u32)> {
        if self.mode != Mode::Outside {
            return None;
        }
        let left = |most: u32, own: bool| most.saturating_sub(if own { self.run } else { 0 });
        Some((left(bounds.whitespace, !self.digits), left(bounds.digits, self.digits)))
    }

    /// Between the tokens of JSON.
    pub fn is_outside(&self) -> bool {
        self.mode == Mode::Outside
    }

    /// In a string.
    pub fn is_inside(&self) -> bool {
        matches!(self.mode, Mode::Inside | Mode::Escape)
    }

    #[inline]
    pub fn is_off(&self) -> bool {
        self.mode == Mode::Off
    }
}

/// Most sets looked at for a way out. The furthest ways are those to a multiple: the front end tells at most 20,000 remainders
/// apart, before and behind the point. Where more is needed (a multiple within huge bounds), the run is not bounded.
const MOST_SETS: usize = 1 << 16;

/// The least number of bytes of a kind after which something else may follow: another kind of byte, a token, or the end of
/// the text. `None` if there is no such place, or it is very far.
pub(crate) fn way_out(machine: &mut Machine, set: u32, kind: fn(u8) -> bool) -> Option<u32> {
    let mut seen: FxHashSet<u32> = FxHashSet::from_iter([set]);
    let mut layer = vec![set];
    for distance in 0.. {
        let mut next = vec![];
        for &at in &layer {
            if machine.is_done(at) || machine.find_takes_tokens(at) {
                return Some(distance);
            }
            for b in machine.next_bytes(at, 256) {
                if !kind(b) {
                    return Some(distance);
                }
                let to = machine.step(at, b);
                if seen.insert(to) {
                    next.push(to);
                }
            }
        }
        if next.is_empty() || seen.len() > MOST_SETS {
            break;
        }
        layer = next;
    }
    None
}

/// The tokens of a vocabulary that hold runs, longest first.
#[derive(Debug, Default)]
pub struct Runs {
    /// Tokens that begin with whitespace, by how much.
    pub spaces: Vec<(u32, u32)>,
    pub digits: Vec<(u32, u32)>,
    /// Tokens with a run of whitespace or digits further inside, by its length.
    pub inner: Vec<(u32, u32)>,
    /// Words of a mask with the tokens that have no byte above 127.
    pub ascii: Box<[u32]>,
    /// Tokens with a byte above 127 behind a quote.
    pub quoted: Vec<u32>,
    /// The longest run of each list: what a mask asks first, and mostly last.
    pub longest: Longest,
}

/// See [`Runs`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Longest {
    pub spaces: u32,
    pub digits: u32,
    pub inner: u32,
}

impl Runs {
    pub fn of(vocab: &Vocabulary) -> Runs {
        let mut runs = Runs { ascii: vec![u32::MAX; vocab.len().div_ceil(32)].into(), ..Runs::default() };
        for t in 0..vocab.len() as u32 {
            if !matches!(vocab.kind(t), TokenKind::Text | TokenKind::Added) {
                continue;
            }
            let text = vocab.bytes(t);
            if !text.is_ascii() {
                runs.ascii[t as usize / 32] &= !(1 << (t % 32));
                let quote = text.iter().position(|&b| b == b'"');
                if quote.is_some_and(|at| !text[at..].is_ascii()) {
                    runs.quoted.push(t);
                }
            }
            let leading = |kind: fn(u8) -> bool| text.iter().take_while(|&&b| kind(b)).count();
            let (spaces, digits) = (leading(is_space), leading(|b| b.is_ascii_digit()));
            if spaces > 0 {
                runs.spaces.push((spaces as u32, t));
            }
            if digits > 0 {
                runs.digits.push((digits as u32, t));
            }
            let (mut most, mut run, mut last) = (0, 0, 0);
            for &b in &text[spaces.max(digits)..] {
                let kind = if is_space(b) { 1 } else { 2 * u8::from(b.is_ascii_digit()) };
                run = if kind == 0 {
                    0
                } else if kind == last {
                    run + 1
                } else {
                    1
                };
                last = kind;
                most = most.max(run);
            }
            if most > 0 {
                runs.inner.push((most, t));
            }
        }
        for list in [&mut runs.spaces, &mut runs.digits, &mut runs.inner] {
            list.sort_unstable_by_key(|r| (std::cmp::Reverse(r.0), r.1));
        }
        let first = |list: &[(u32, u32)]| list.first().map_or(0, |r| r.0);
        runs.longest = Longest { spaces: first(&runs.spaces), digits: first(&runs.digits), inner: first(&runs.inner) };
        runs
    }
}

/// The tokens of a list whose run is longer than `most`.
pub(crate) fn beyond(list: &[(u32, u32)], most: u32) -> impl Iterator<Item = u32> + '_ {
    list.iter().take_while(move |r| r.0 > most).map(|r| r.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bounds: &Bounds, text: &str) -> bool {
        let mut lexer = Lexer::START;
        text.bytes().all(|b| matches!(lexer.feed(bounds, b), Verdict::Fine))
    }

    #[test]
    fn runs_are_counted_outside_of_strings_only() {
        let bounds = Bounds { whitespace: 2, digits: 3, ascii: true };
        for yes in ["{  \"a    \\\"   12345\":  123.456e789, \t[1,2]}", "1 2", "\"\\\\\"  1"] {
            assert!(read(&bounds, yes), "{yes}");
        }
        for no in ["[   1", "1234", "1.2345", "\"a\"   ", "\"\\\\\"   ", "\"é\""] {
            assert!(!read(&bounds, no), "{no}");
        }
        assert!(read(&Bounds::NONE, &" ".repeat(1000)));
    }
}
