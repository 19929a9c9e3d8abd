//! The tokens of a vocabulary in which strings begin, and those in which values end.

use gramary_compiler::entry::Remainder;
use gramary_compiler::vocab::{TokenKind, Vocabulary};

/// What is known of them, once per tokenizer and only if some grammar asks.
#[derive(Debug)]
pub(crate) struct Quoted {
    /// Tokens in which text follows a quote that is not the first, or a first one behind a closing bracket: strings of other
    /// containers than the one at hand, or more than one string.
    pub(super) several: Box<[u32]>,
    /// Those of them that open a container.
    pub(super) opening: Box<[u32]>,
    /// The tokens by what follows their first quote, where anything does.
    pub(super) begun: Remainder,
    // Rows of tokens, as masks have them.
    /// Tokens that may end a value and go on with another: see [`goes_on`].
    pub(super) ending: Box<[u32]>,
    /// Those of which what is behind their first quote does so.
    pub(super) ending_quoted: Box<[u32]>,
    /// Those of which what is behind their first `[` does so.
    pub(super) listing: Box<[u32]>,
    /// Tokens with a quote.
    pub(super) quotes: Box<[u32]>,
    /// Where each byte leads from the root of the vocabulary's trie; 0 if nowhere.
    pub(super) roots: Box<[u32; 256]>,
}

impl Quoted {
    pub fn of(vocab: &Vocabulary) -> Quoted {
        let (mut several, mut opening, mut begun) = (vec![], vec![], vec![]);
        let row = || vec![0u32; vocab.len().div_ceil(32)];
        let (mut ending, mut ending_quoted, mut listing, mut quotes) = (row(), row(), row(), row());
        for t in 0..vocab.len() as u32 {
            if !matches!(vocab.kind(t), TokenKind::Text | TokenKind::Added) {
                continue;
            }
            let text = vocab.bytes(t);
            let behind = |at: Option<usize>| at.map_or(&[][..], |at| &text[at..]);
            let add = |row: &mut Vec<u32>| row[t as usize / 32] |= 1 << (t % 32);
            if goes_on(text) {
                add(&mut ending);
            }
            if goes_on(behind(text.iter().position(|&b| b == b'"'))) {
                add(&mut ending_quoted);
            }
            if goes_on(behind(text.iter().position(|&b| b == b'['))) {
                add(&mut listing);
            }
            let Some(first) = text.iter().position(|&b| b == b'"') else { continue };
            add(&mut quotes);
            let tail = &text[first + 1..];
            let Some((_, inner)) = tail.split_last() else { continue };
            begun.push((tail, t, 0));
            let closed = text[..first].iter().any(|b| matches!(b, b']' | b'}'));
            if closed || inner.contains(&b'"') {
                several.push(t);
                if text.iter().any(|b| matches!(b, b'[' | b'{')) {
                    opening.push(t);
                }
            }
        }
        let trie = vocab.trie();
        let mut roots = Box::new([0; 256]);
        trie.children(0).for_each(|node| roots[trie.byte[node as usize] as usize] = node);
        Quoted {
            several: several.into(),
            opening: opening.into(),
            begun: Remainder::build(begun, false),
            ending: ending.into(),
            ending_quoted: ending_quoted.into(),
            listing: listing.into(),
            quotes: quotes.into(),
            roots,
        }
    }
}

/// Whether a value may end in a text, and something else than a comma come after it.
fn goes_on(text: &[u8]) -> bool {
    let end = text.iter().position(|b| matches!(b, b',' | b']' | b'}'));
    end.is_some_and(|end| text[end + 1..].iter().any(|b| *b != b',' && !b.is_ascii_whitespace()))
}
