//! Tests of the vocabulary.

mod readers;
mod real;
mod stored;
mod trie;

use super::*;

/// A vocabulary of text tokens.
fn texts<T: AsRef<[u8]>>(tokens: &[T]) -> Vocabulary {
    Vocabulary::from_tokens(tokens.iter().map(|t| TokenSpec::text(t.as_ref())).collect(), vec![]).unwrap()
}

#[test]
fn tokens_keep_their_bytes_and_kinds() {
    let vocabulary = Vocabulary::from_tokens(
        vec![
            TokenSpec::text("a"),
            TokenSpec::text(""),
            TokenSpec::unused(),
            TokenSpec::added("<tool>"),
            TokenSpec::special("<eos>"),
            TokenSpec::text([0xff]),
            TokenSpec { bytes: b"gone".to_vec(), kind: TokenKind::Unused },
        ],
        vec![("<tool>".into(), 3), ("<eos>".into(), 4)],
    )
    .unwrap();
    use TokenKind::*;
    let kinds: Vec<_> = (0..8).map(|t| vocabulary.kind(t)).collect();
    assert_eq!(kinds, [Text, Unused, Unused, Added, Special, Text, Unused, Unused]);
    let bytes: Vec<_> = (0..8).map(|t| vocabulary.bytes(t)).collect();
    assert_eq!(bytes, [b"a".as_slice(), b"", b"", b"<tool>", b"<eos>", b"\xff", b"", b""]);
    assert_eq!((vocabulary.text(3), vocabulary.text(4)), (Some(b"<tool>".as_slice()), None));
    assert_eq!((vocabulary.len(), vocabulary.max_token_len()), (7, 6));
    assert_eq!(vocabulary.bytes(u32::MAX), b"");
    assert_eq!(vocabulary.special_tokens().collect::<Vec<_>>(), [("<eos>", 4), ("<tool>", 3)]);
    assert_eq!(vocabulary.special_token("<tool>"), Some(3));
    assert_eq!(vocabulary.special_token("<t"), None);
}

#[test]
fn an_empty_vocabulary_is_one() {
    let vocabulary = texts::<&str>(&[]);
    assert!(vocabulary.is_empty() && vocabulary.trie().is_empty());
    assert_eq!(vocabulary.trie().end, [1]);
}

#[test]
fn fingerprints_depend_on_bytes_and_kinds_alone() {
    let print = |tokens: Vec<TokenSpec>, added: &[(&str, u32)]| {
        let added = added.iter().map(|&(t, i)| (t.to_string(), i)).collect();
        Vocabulary::from_tokens(tokens, added).unwrap().fingerprint()
    };
    let base = print(vec![TokenSpec::text("ab"), TokenSpec::text("c")], &[]);
    assert_eq!(base, print(vec![TokenSpec::text("ab"), TokenSpec::text("c")], &[("name", 1)]));
    for other in [
        vec![TokenSpec::text("a"), TokenSpec::text("bc")],
        vec![TokenSpec::text("c"), TokenSpec::text("ab")],
        vec![TokenSpec::text("ab"), TokenSpec::added("c")],
        vec![TokenSpec::text("ab"), TokenSpec::special("c")],
        vec![TokenSpec::text("ab"), TokenSpec::text("c"), TokenSpec::unused()],
    ] {
        assert_ne!(base, print(other, &[]));
    }
}

#[test]
fn added_tokens_must_exist_and_differ() {
    let added = |a: &[(&str, u32)]| {
        let added = a.iter().map(|&(t, i)| (t.to_string(), i)).collect();
        Vocabulary::from_tokens(vec![TokenSpec::text("a"), TokenSpec::added("b")], added)
    };
    assert!(added(&[("b", 1), ("b", 1)]).is_ok());
    assert!(matches!(added(&[("b", 2)]), Err(VocabError::TokenId { token: 2, .. })));
    assert!(matches!(added(&[("b", 1), ("b", 0)]), Err(VocabError::TokenId { .. })));
}

#[test]
fn pieces_with_lists_of_ids() {
    let pieces: [Option<&[u8]>; 4] = [Some(b"a"), None, Some(b"<eos>"), Some(b"\xff")];
    let vocabulary = Vocabulary::from_pieces(pieces, &[2, 3], &[0, 3]).unwrap();
    use TokenKind::*;
    let kinds: Vec<_> = (0..4).map(|t| vocabulary.kind(t)).collect();
    assert_eq!(kinds, [Added, Unused, Special, Special]);
    assert_eq!(vocabulary.special_tokens().collect::<Vec<_>>(), [("<eos>", 2), ("a", 0)]);
    assert!(matches!(Vocabulary::from_pieces(pieces, &[4], &[]), Err(VocabError::TokenId { token: 4, .. })));
}

#[test]
fn tokens_that_are_too_long_are_refused() {
    let tokens = |n| Vocabulary::from_tokens(vec![TokenSpec::text(vec![b'x'; n])], vec![]);
    let longest = tokens(MAX_TOKEN_BYTES).unwrap();
    assert_eq!(longest.trie().height[0] as usize, MAX_TOKEN_BYTES);
    assert!(matches!(tokens(MAX_TOKEN_BYTES + 1), Err(VocabError::TokenTooLong { token: 0, .. })));
}
