//! Units and manifests as bytes: what is stored and streamed.
//!
//! # What a value must not be able to do
//!
//! Bytes come from a disk that may fail and from peers that may lie. Three checks stand between them and the machine:
//!
//! 1. *Structure* ([`FlatUnit::parse`]): every number that something is indexed by is in bounds, edges are sorted, a unit is
//!    not nullable. Whatever passes can be stepped without a panic. It is repeated at every reading, since it costs little
//!    more than the copy.
//! 2. *Identity* ([`verify`]): the digest is derived again from content. A rule that refers to itself through others brings
//!    the shapes of its circle with it, from which the digests of all its members follow. Done once, when a value arrives
//!    from outside.
//! 3. *Company* ([`crate::program::UnitStore::take_over`]): what a unit refers to is there, and takes the arguments it is
//!    called with.
//!
//! # Form
//!
//! Little-endian words of 32 bits throughout, behind a magic of eight bytes and the format version; digests are 32 bytes
//! on a word boundary. A unit is read with one pass of copies into the flat arrays that the machine walks: some hundreds
//! of nanoseconds, since units are small. Mask entries, the large values, have a form of their own (`entry::codec`).

mod manifest;
mod unit;
mod verify;

pub use manifest::Manifest;
pub use unit::{callee_order, write_node, FlatUnit, What};
pub use verify::verify;

use crate::unit::Digest;
use crate::FORMAT_VERSION;

/// Why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

type Read<T> = Result<T, Malformed>;

/// Words being written.
struct Writer(Vec<u8>);

impl Writer {
    fn new(magic: &[u8; 8]) -> Writer {
        let mut w = Writer(Vec::with_capacity(512));
        w.0.extend_from_slice(magic);
        w.word(FORMAT_VERSION);
        w
    }

    fn word(&mut self, v: u32) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }

    fn len(&mut self, n: usize) {
        self.word(n as u32);
    }

    fn digest(&mut self, d: &Digest) {
        self.0.extend_from_slice(d);
    }

    /// Its length and the bytes, filled up to a word.
    fn bytes(&mut self, b: &[u8]) {
        self.len(b.len());
        self.0.extend_from_slice(b);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }
}

/// Words being read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8], magic: &[u8; 8]) -> Read<Reader<'a>> {
        let mut r = Reader(bytes);
        if r.take(8)? != magic {
            return Err(Malformed("it does not begin like one"));
        }
        if r.word()? != FORMAT_VERSION {
            return Err(Malformed("it was written by another format version"));
        }
        Ok(r)
    }

    fn take(&mut self, n: usize) -> Read<&'a [u8]> {
        if n > self.0.len() {
            return Err(Malformed("it ends early"));
        }
        let (head, tail) = self.0.split_at(n);
        self.0 = tail;
        Ok(head)
    }

    fn word(&mut self) -> Read<u32> {
        let b = self.take(4)?;
        Ok(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// A length of things that take at least `each` bytes: no more than what is left can hold.
    fn len(&mut self, each: usize) -> Read<usize> {
        Ok(self.marked_len(each, 0)?.0)
    }

    /// The same where one bit of the word is a flag.
    fn marked_len(&mut self, each: usize, flag: u32) -> Read<(usize, bool)> {
        let word = self.word()?;
        let n = (word & !flag) as usize;
        if n > self.0.len() / each {
            return Err(Malformed("a length is more than what follows"));
        }
        Ok((n, word & flag != 0))
    }

    fn words(&mut self, n: usize) -> Read<impl Iterator<Item = u32> + 'a> {
        let bytes = self.take(n.checked_mul(4).ok_or(Malformed("a length overflows"))?)?;
        Ok(bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])))
    }

    fn digest(&mut self) -> Read<Digest> {
        let mut d = [0; 32];
        d.copy_from_slice(self.take(32)?);
        Ok(d)
    }

    fn bytes(&mut self) -> Read<&'a [u8]> {
        let n = self.len(1)?;
        let b = self.take(n)?;
        let filling = self.take(n.next_multiple_of(4) - n)?;
        if filling.iter().any(|&x| x != 0) {
            return Err(Malformed("a filling is not zero"));
        }
        Ok(b)
    }

    fn end(&self) -> Read<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Malformed("something follows its end"))
        }
    }
}
