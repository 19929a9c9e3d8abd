//! The one byte buffer behind a vocabulary, the same in memory and on disk.
//!
//! ```text
//! Header | section table | sections, each 8-byte aligned
//! ```
//!
//! All numbers are little-endian. The header holds a checksum (xxh3) of everything else; it finds accidents. Hostile
//! files are another matter: whoever writes a file can write its checksum. So every number that something will be indexed
//! by is checked on opening as well, and nothing is ever cast without `bytemuck`'s checks.

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use bytemuck::{Pod, Zeroable};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::error::VocabError;
use super::trie::{ByteSet, Trie};
use super::TokenKind;

#[cfg(target_endian = "big")]
compile_error!("stored vocabularies are little-endian and used in place");

const MAGIC: [u8; 8] = *b"GRMVOCAB";
/// Version of this layout.
const VERSION: u32 = 1;

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    version: u32,
    sections: u32,
    /// Length of the whole buffer.
    length: u64,
    fingerprint: [u8; 32],
    max_token_len: u32,
    reserved: u32,
    /// xxh3 of what precedes it and what follows it.
    checksum: u64,
}

const HEADER: usize = size_of::<Header>();
const CHECKSUM_AT: usize = HEADER - 8;

/// The sections, in file order.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub(super) enum Section {
    /// Per token, where its bytes begin in `TokenBytes`; one more than tokens. u32.
    TokenOffsets,
    TokenBytes,
    /// Per token, its [`TokenKind`]. u8.
    TokenKinds,
    /// Ids of the added tokens, ascending by text. u32.
    AddedIds,
    /// Per added token, where its text begins in `AddedText`; one more than added tokens. u32.
    AddedOffsets,
    AddedText,
    TrieByte,
    TrieDepth,
    TrieEnd,
    TrieLo,
    TrieOrder,
    TrieHeight,
    TrieSub,
    TrieUtf8,
    TrieSets,
}

const SECTIONS: usize = Section::TrieSets as usize + 1;

/// The bytes themselves.
#[derive(Debug)]
enum Backing {
    /// `u64`s for their alignment; the length in bytes.
    Owned(Vec<u64>, usize),
    Mapped(memmap2::Mmap),
}

/// A checked buffer.
#[derive(Debug)]
pub(super) struct Buffer {
    backing: Backing,
    sections: [Range<usize>; SECTIONS],
    pub fingerprint: [u8; 32],
    pub max_token_len: u32,
}

impl Buffer {
    /// Lay out `sections` (in the order of [`Section`]) as one buffer.
    pub fn from_sections(sections: [&[u8]; SECTIONS], fingerprint: [u8; 32], max_token_len: u32) -> Buffer {
        let table_end = HEADER + SECTIONS * 16;
        let mut at = table_end;
        let ranges = sections.map(|s| {
            let start = at;
            at = (at + s.len()).next_multiple_of(8);
            start..start + s.len()
        });
        let mut words = vec![0u64; at / 8];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        for (i, (range, section)) in ranges.iter().zip(sections).enumerate() {
            bytes[range.clone()].copy_from_slice(section);
            let entry = [range.start as u64, section.len() as u64];
            bytes[HEADER + i * 16..][..16].copy_from_slice(bytemuck::bytes_of(&entry));
        }
        let mut header = Header {
            magic: MAGIC,
            version: VERSION,
            sections: SECTIONS as u32,
            length: at as u64,
            fingerprint,
            max_token_len,
            reserved: 0,
            checksum: 0,
        };
        bytes[..HEADER].copy_from_slice(bytemuck::bytes_of(&header));
        header.checksum = checksum(bytes);
        bytes[..HEADER].copy_from_slice(bytemuck::bytes_of(&header));
        Buffer { backing: Backing::Owned(words, at), sections: ranges, fingerprint, max_token_len }
    }

    /// Map a file and check it.
    pub fn open(path: &Path) -> Result<Buffer, VocabError> {
        let file = File::open(path).map_err(|e| VocabError::io("open", path, e))?;
        let length = file.metadata().map_err(|e| VocabError::io("open", path, e))?.len();
        if length < HEADER as u64 {
            return Err(VocabError::Damaged { what: "shorter than its header" });
        }
        // SAFETY: the mapping must not change while it is borrowed. Prepared vocabularies are written to a file of
        // another name and renamed, never written in place (see `save`), so an inode that has this name does not change
        // any more; replacing the file gives the name to another inode and leaves this mapping as it is. Should somebody
        // else write into it all the same, what is read are plain integers that are used through checked indexing.
        // (Cutting a mapped file short ends the process, as it does for every program that maps files.)
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|e| VocabError::io("map", path, e))?;
        Buffer::check(Backing::Mapped(map))
    }

    /// Check a copy of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Buffer, VocabError> {
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Buffer::check(Backing::Owned(words, bytes.len()))
    }

    fn check(backing: Backing) -> Result<Buffer, VocabError> {
        let damaged = |what| VocabError::Damaged { what };
        let bytes = backing.bytes();
        let header = bytes.get(..HEADER).ok_or(damaged("shorter than its header"))?;
        let header: Header = bytemuck::pod_read_unaligned(header);
        if header.magic != MAGIC {
            return Err(damaged("it does not begin like one"));
        }
        if header.version != VERSION {
            return Err(VocabError::Version { found: header.version, expected: VERSION });
        }
        if header.sections as usize != SECTIONS || header.length != bytes.len() as u64 {
            return Err(damaged("its length is not what the header says"));
        }
        let table = bytes.get(HEADER..HEADER + SECTIONS * 16).ok_or(damaged("shorter than its section table"))?;
        if checksum(bytes) != header.checksum {
            return Err(damaged("checksum"));
        }
        let mut sections = [const { 0..0 }; SECTIONS];
        let mut at = (HEADER + SECTIONS * 16) as u64;
        for (range, entry) in sections.iter_mut().zip(table.chunks_exact(16)) {
            let [start, length]: [u64; 2] = bytemuck::pod_read_unaligned(entry);
            let end = start.checked_add(length).filter(|&e| e <= bytes.len() as u64);
            let end = end.ok_or(damaged("a section lies outside"))?;
            if start != at {
                return Err(damaged("sections are not in order"));
            }
            at = end.next_multiple_of(8);
            *range = start as usize..end as usize;
        }
        let buffer = Buffer { sections, fingerprint: header.fingerprint, max_token_len: header.max_token_len, backing };
        buffer.check_tokens()?;
        buffer.check_trie()?;
        Ok(buffer)
    }

    /// Whether what tokens are indexed by is in bounds.
    fn check_tokens(&self) -> Result<(), VocabError> {
        let damaged = |what| Err(VocabError::Damaged { what });
        let kinds = self.section(Section::TokenKinds);
        self.check_offsets(Section::TokenOffsets, Section::TokenBytes, kinds.len())?;
        if kinds.len() > u32::MAX as usize || kinds.iter().fold(0, |worst, &k| worst.max(k)) > TokenKind::Unused as u8 {
            return damaged("token kinds");
        }
        let longest = self.slice::<u32>(Section::TokenOffsets).windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
        if self.max_token_len != longest {
            return damaged("longest token");
        }
        let ids = self.checked_slice::<u32>(Section::AddedIds)?;
        self.check_offsets(Section::AddedOffsets, Section::AddedText, ids.len())?;
        if ids.iter().any(|&id| id as usize >= kinds.len()) {
            return damaged("added tokens");
        }
        let text = self.section(Section::AddedText);
        let offsets = self.slice::<u32>(Section::AddedOffsets);
        if offsets.windows(2).any(|w| std::str::from_utf8(&text[w[0] as usize..w[1] as usize]).is_err()) {
            return damaged("texts of added tokens");
        }
        Ok(())
    }

    /// Whether `offsets` has `count + 1` ascending elements from 0 to the length of `blob`.
    fn check_offsets(&self, offsets: Section, blob: Section, count: usize) -> Result<(), VocabError> {
        let offsets = self.checked_slice::<u32>(offsets)?;
        let descends = offsets.windows(2).fold(false, |bad, w| bad | (w[0] > w[1]));
        let ends = (offsets.first().copied(), offsets.last().map(|&e| e as usize));
        if offsets.len() != count + 1 || descends || ends != (Some(0), Some(self.section(blob).len())) {
            return Err(VocabError::Damaged { what: "offsets" });
        }
        Ok(())
    }

    /// Whether the trie is one: a walk over it stays inside its arrays, moves on with each step, and sees properly nested
    /// subtrees of at most the depth of the longest token.
    fn check_trie(&self) -> Result<(), VocabError> {
        let damaged = |what| Err(VocabError::Damaged { what });
        let tokens = self.section(Section::TokenKinds).len();
        let depth = self.checked_slice::<u16>(Section::TrieDepth)?;
        let end = self.checked_slice::<u32>(Section::TrieEnd)?;
        let lo = self.checked_slice::<u32>(Section::TrieLo)?;
        let order = self.checked_slice::<u32>(Section::TrieOrder)?;
        let height = self.checked_slice::<u16>(Section::TrieHeight)?;
        let sub = self.checked_slice::<u32>(Section::TrieSub)?;
        let utf8 = self.section(Section::TrieUtf8);
        let sets = self.checked_slice::<ByteSet>(Section::TrieSets)?;
        let n = self.section(Section::TrieByte).len();
        let lengths = [depth.len(), end.len(), height.len(), sub.len(), utf8.len(), lo.len().wrapping_sub(1)];
        if n == 0 || n >= u32::MAX as usize || lengths.iter().any(|&l| l != n) {
            return damaged("lengths of the trie's arrays");
        }
        // Folds without an early exit are vectorised; the whole check takes a fraction of the time of the checksum.
        let deepest = depth.iter().fold(0, |m, &d| m.max(d));
        let max_sub = sub.iter().fold(0, |m, &s| m.max(s));
        let max_token = order.iter().fold(0, |m, &t| m.max(t));
        let max_flag = utf8.iter().fold(0, |m, &f| m.max(f));
        let descends = lo.windows(2).fold(false, |bad, w| bad | (w[0] > w[1]));
        if depth[0] != 0
            || deepest as u32 > self.max_token_len
            || max_sub as usize >= sets.len()
            || (max_token as usize >= tokens && !order.is_empty())
            || max_flag > 1
            || descends
            || lo[0] != 0
            || lo[n] as usize != order.len()
        {
            return damaged("contents of the trie");
        }
        // Depth-first: each node is at most one deeper than the one before, none but the first is a root.
        if depth.windows(2).fold(false, |bad, w| bad | (w[1] == 0) | (w[1] as u32 > w[0] as u32 + 1)) {
            return damaged("order of the trie");
        }
        // A subtree ends at the first later node that is not deeper than its root. That no end comes too early is seen at
        // each node; that none comes too late, by counting: the sizes of all subtrees add up to as many pairs of a node
        // and one of its ancestors (or itself) as the depths do.
        let too_early = (0..n).fold(false, |bad, node| {
            let after = depth.get(end[node] as usize).copied().unwrap_or(0);
            bad | (end[node] as usize <= node) | (end[node] as usize > n) | (after > depth[node])
        });
        if too_early {
            return damaged("subtrees of the trie");
        }
        let sizes: u64 = end.iter().zip(0u64..).map(|(&end, node)| u64::from(end) - node).sum();
        let ancestors: u64 = depth.iter().map(|&depth| u64::from(depth) + 1).sum();
        if sizes != ancestors {
            return damaged("subtrees of the trie");
        }
        Ok(())
    }

    pub fn bytes(&self) -> &[u8] {
        self.backing.bytes()
    }

    #[inline]
    pub fn section(&self, section: Section) -> &[u8] {
        &self.backing.bytes()[self.sections[section as usize].clone()]
    }

    /// A section as numbers. Its length was checked on opening; a wrong one gives nothing rather than a panic.
    #[inline]
    pub fn slice<T: Pod>(&self, section: Section) -> &[T] {
        bytemuck::try_cast_slice(self.section(section)).unwrap_or(&[])
    }

    fn checked_slice<T: Pod>(&self, section: Section) -> Result<&[T], VocabError> {
        bytemuck::try_cast_slice(self.section(section)).map_err(|_| VocabError::Damaged { what: "length of a section" })
    }

    pub fn trie(&self) -> Trie<'_> {
        Trie {
            byte: self.section(Section::TrieByte),
            depth: self.slice(Section::TrieDepth),
            end: self.slice(Section::TrieEnd),
            lo: self.slice(Section::TrieLo),
            order: self.slice(Section::TrieOrder),
            height: self.slice(Section::TrieHeight),
            sub: self.slice(Section::TrieSub),
            utf8: self.section(Section::TrieUtf8),
            sets: self.slice(Section::TrieSets),
        }
    }

    /// Write the buffer to `path`, which at any time is the old file or the whole new one.
    pub fn save(&self, path: &Path) -> Result<(), VocabError> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}-{}.tmp", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed)));
        let temporary = path.with_file_name(name);
        let written = (|| {
            let mut file = File::create_new(&temporary)?;
            file.write_all(self.bytes())?;
            file.sync_data()?;
            std::fs::rename(&temporary, path)
        })();
        written.map_err(|e| {
            // The temporary file is of no use any more; that it cannot be removed adds nothing to the error.
            let _ = std::fs::remove_file(&temporary);
            VocabError::io("write", path, e)
        })
    }
}

impl Backing {
    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Backing::Owned(words, length) => &bytemuck::cast_slice(words)[..*length],
            Backing::Mapped(map) => map,
        }
    }
}

/// xxh3 of a buffer without its checksum field. `bytes` has at least a header.
fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(&bytes[HEADER..], xxh3_64_with_seed(&bytes[..CHECKSUM_AT], 0))
}

/// Give a tampered buffer the checksum of an honest one.
#[cfg(test)]
pub(super) fn seal(bytes: &mut [u8]) {
    let sum = checksum(bytes);
    bytes[CHECKSUM_AT..HEADER].copy_from_slice(&sum.to_le_bytes());
}
