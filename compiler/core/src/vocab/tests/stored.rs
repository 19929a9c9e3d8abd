//! Vocabularies on disk: kept exactly, and refused when damaged.

use super::*;

fn sample() -> Vocabulary {
    let mut tokens: Vec<TokenSpec> = ["a", "ab", "é", "日本", " the", "ab"].map(TokenSpec::text).into();
    tokens.extend([TokenSpec::special("<eos>"), TokenSpec::unused(), TokenSpec::added("<tool>")]);
    tokens.push(TokenSpec::text([0xe6, 0x97]));
    Vocabulary::from_tokens(tokens, vec![("<eos>".into(), 6), ("<tool>".into(), 8)]).unwrap()
}

fn folder(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("gramary-vocab-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Touch everything that a user of the vocabulary may touch.
fn walk(vocabulary: &Vocabulary) {
    let trie = vocabulary.trie();
    for node in 0..trie.len() as u32 {
        let mut own = trie.tokens_at(node).iter();
        assert!(own.all(|&t| vocabulary.bytes(t).len() <= vocabulary.max_token_len()));
        assert!(trie.token_range(node).end as usize <= trie.order.len());
        assert!(trie.children(node).count() < 257 || node == 0);
        assert!(trie.depth[node as usize] as usize <= vocabulary.max_token_len());
        let (depth, after) = (&trie.depth, node as usize + 1);
        let end = (after..trie.len()).find(|&j| depth[j] <= depth[node as usize]).unwrap_or(trie.len());
        assert_eq!(trie.end[node as usize] as usize, end);
        let _ = trie.bytes_below(node);
    }
    assert!(vocabulary.special_tokens().all(|(_, id)| (id as usize) < vocabulary.len()));
}

#[test]
fn a_saved_vocabulary_is_the_same() {
    let folder = folder("same");
    let path = folder.join("a.vocab");
    let vocabulary = sample();
    vocabulary.save(&path).unwrap();
    vocabulary.save(&path).unwrap();
    let opened = Vocabulary::open(&path).unwrap();
    assert_eq!(opened.as_bytes(), vocabulary.as_bytes());
    assert_eq!(opened.fingerprint(), vocabulary.fingerprint());
    assert_eq!(opened.trie().order, vocabulary.trie().order);
    assert_eq!(opened.special_tokens().collect::<Vec<_>>(), vocabulary.special_tokens().collect::<Vec<_>>());
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "no temporary file stays behind");
    walk(&opened);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn errors_of_the_file_system_name_the_path() {
    let missing = std::env::temp_dir().join("gramary-no-such-folder").join("x.vocab");
    for result in [Vocabulary::open(&missing).map(drop), sample().save(&missing)] {
        assert!(result.unwrap_err().to_string().contains("x.vocab"));
    }
}

#[test]
fn every_truncation_is_refused() {
    let bytes = sample().as_bytes().to_vec();
    for n in 0..bytes.len() {
        assert!(Vocabulary::from_bytes(&bytes[..n]).is_err());
    }
    let folder = folder("short");
    for n in [0, 1, 79, 80, bytes.len() - 1] {
        let path = folder.join(format!("{n}"));
        std::fs::write(&path, &bytes[..n]).unwrap();
        assert!(matches!(Vocabulary::open(&path), Err(VocabError::Damaged { .. })));
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn every_flipped_bit_is_noticed() {
    let mut bytes = sample().as_bytes().to_vec();
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Vocabulary::from_bytes(&bytes).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    bytes[8] = 99;
    assert!(matches!(Vocabulary::from_bytes(&bytes), Err(VocabError::Version { found: 99, .. })));
}

/// A hostile file has a right checksum: whatever else it holds, it is refused or safe to walk.
#[test]
fn hostile_files_are_refused_or_harmless() {
    let good = sample().as_bytes().to_vec();
    let mut refused = 0;
    let mut opened = 0;
    let mut attempt = |at: usize, value: &[u8]| {
        let mut bytes = good.clone();
        bytes[at..at + value.len()].copy_from_slice(value);
        layout::seal(&mut bytes);
        match Vocabulary::from_bytes(&bytes) {
            Ok(vocabulary) => {
                walk(&vocabulary);
                opened += 1;
            }
            Err(_) => refused += 1,
        }
    };
    for at in 0..good.len() {
        for value in [0, 1, 2, 0x7f, 0x80, 0xff] {
            attempt(at, &[value]);
        }
    }
    for at in (0..good.len() - 8).step_by(2) {
        for value in [0, 1, u32::MAX as u64, u64::MAX, 1 << 63, good.len() as u64] {
            attempt(at, &value.to_le_bytes());
            attempt(at, &(value as u32).to_le_bytes());
        }
    }
    assert!(refused > 1000 && opened > 100, "{refused} {opened}");
}
