//! The tokens of a vocabulary in which strings begin.

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
    /// Where each byte leads from the root of the vocabulary's trie; 0 if nowhere.
    pub(super) roots: Box<[u32; 256]>,
}

impl Quoted {
    pub fn of(vocab: &Vocabulary) -> Quoted {
        let (mut several, mut opening, mut begun) = (vec![], vec![], vec![]);
        for t in 0..vocab.len() as u32 {
            if !matches!(vocab.kind(t), TokenKind::Text | TokenKind::Added) {
                continue;
            }
            let text = vocab.bytes(t);
            let Some(first) = text.iter().position(|&b| b == b'"') else { continue };
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
        Quoted { several: several.into(), opening: opening.into(), begun: Remainder::build(begun, false), roots }
    }
}
