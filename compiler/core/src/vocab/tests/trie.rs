//! The trie against what it says of itself, computed the slow way.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Every path from the root, with the tokens that end there.
fn naive(vocabulary: &Vocabulary) -> BTreeMap<Vec<u8>, Vec<u32>> {
    let mut paths: BTreeMap<Vec<u8>, Vec<u32>> = BTreeMap::from([(vec![], vec![])]);
    for token in 0..vocabulary.len() as u32 {
        if let Some(bytes) = vocabulary.text(token) {
            for n in 1..bytes.len() {
                paths.entry(bytes[..n].to_vec()).or_default();
            }
            paths.entry(bytes.to_vec()).or_default().push(token);
        }
    }
    paths
}

/// Depth-first order is the order of a sorted map, so node i is path i.
fn check(vocabulary: &Vocabulary) {
    let trie = vocabulary.trie();
    let paths: Vec<(Vec<u8>, Vec<u32>)> = naive(vocabulary).into_iter().collect();
    assert_eq!(trie.len(), paths.len());
    assert_eq!(trie.sets[0], [0; 4]);
    let distinct: std::collections::HashSet<_> = trie.sets.iter().collect();
    assert_eq!(distinct.len(), trie.sets.len());
    let mut order = vec![];
    for (i, (path, tokens)) in paths.iter().enumerate() {
        let node = i as u32;
        let below = || paths[i + 1..].iter().take_while(|(p, _)| p.starts_with(path));
        assert_eq!(trie.depth[i] as usize, path.len());
        assert_eq!(trie.end[i] as usize, i + 1 + below().count());
        assert_eq!(trie.height[i] as usize, below().map(|(p, _)| p.len() - path.len()).max().unwrap_or(0));
        assert_eq!(trie.tokens_at(node), tokens);
        assert_eq!(trie.find(path), Some(node));
        if let Some(&last) = path.last() {
            assert_eq!(trie.byte[i], last);
        }
        let range = trie.token_range(node);
        let in_subtree: Vec<u32> = tokens.iter().chain(below().flat_map(|(_, t)| t)).copied().collect();
        assert_eq!(trie.order[range.start as usize..range.end as usize], in_subtree);
        let mut set = [0u64; 4];
        for (p, _) in below() {
            p[path.len()..].iter().for_each(|&b| set[b as usize >> 6] |= 1 << (b & 63));
        }
        assert_eq!(*trie.bytes_below(node), set);
        let whole = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok();
        // Whole characters: every token below is; a path below that holds no token is a beginning of one.
        let utf8 = whole(path) && below().filter(|(_, t)| !t.is_empty()).all(|(p, _)| whole(&p[path.len()..]));
        assert_eq!(trie.utf8[i] == 1, utf8, "at {path:?}");
        order.extend_from_slice(tokens);
    }
    assert_eq!(trie.order, order);
    assert_eq!(trie.lo.len(), trie.len() + 1);
    let children = trie.children(0).map(|c| trie.byte[c as usize]).collect::<Vec<_>>();
    assert_eq!(children, paths.iter().filter(|(p, _)| p.len() == 1).map(|(p, _)| p[0]).collect::<Vec<_>>());
}

#[test]
fn awkward_vocabularies() {
    check(&texts::<&str>(&[]));
    check(&texts(&["a"]));
    check(&texts(&["a", "a", "", "ab", "a"]));
    check(&texts(&[b"a\0".as_slice(), b"a", b"a\0\0", b"\0", b"abcdefgh", b"abcdefgh\0", b"abcdefghi"]));
    check(&texts(&["é".as_bytes(), &"é".as_bytes()[..1], "日本".as_bytes(), &"日本".as_bytes()[..4]]));
    check(&texts(&[
        b"\xed\xa0\x80".as_slice(),
        b"\xc0\x80",
        b"\xf4\x90\x80\x80",
        b"\xf0\x9f\x98\x80",
        b"\xe0\x80\x80",
    ]));
    check(&texts(&(0..=255u8).map(|b| [b]).collect::<Vec<_>>()));
}

fn token() -> impl Strategy<Value = TokenSpec> {
    let bytes = prop_oneof![
        3 => proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(0), any::<u8>()], 0..12),
        2 => "[aé日😀]{0,4}".prop_map(String::into_bytes),
        1 => ("[é日😀]{1,3}", 0..3usize).prop_map(|(s, cut)| s.as_bytes()[..s.len() - cut.min(s.len())].to_vec()),
    ];
    let kind = prop_oneof![
        8 => Just(TokenKind::Text),
        1 => Just(TokenKind::Added),
        1 => Just(TokenKind::Special),
        1 => Just(TokenKind::Unused)
    ];
    (bytes, kind).prop_map(|(bytes, kind)| TokenSpec { bytes, kind })
}

proptest! {
    #[test]
    fn the_trie_is_what_it_says(tokens in proptest::collection::vec(token(), 0..60)) {
        check(&Vocabulary::from_tokens(tokens, vec![]).unwrap());
    }
}
