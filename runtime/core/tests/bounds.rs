//! Bounds beside tags: a token may begin outside of a tag and end inside, and the other way round. What the mask has is what is
//! taken.

use std::sync::Arc;

use gramary_compiler::vocab::{TokenSpec, Vocabulary};
use gramary_compiler::Limits;
use gramary_runtime::structural::StructuralOptions;
use gramary_runtime::{Bounds, Engine, Matcher, Tokens};

const WORDS: [&str; 9] =
    ["é", " é", "<f>\"é", "<f>\"e", "\"</f>é", "\"</f> e", "x é\"</f>é", "<f>1</f>é", "1</f>é<f>\"é"];

fn engine() -> Engine {
    let mut tokens = vec![TokenSpec::special("</s>")];
    tokens.extend((0..=255u8).map(|b| TokenSpec::text(vec![b])));
    tokens.extend(WORDS.map(TokenSpec::text));
    let vocab = Vocabulary::from_tokens(tokens, vec![("</s>".into(), 0)]).unwrap();
    let n = vocab.len();
    Engine::new(Arc::new(Tokens::new(vocab)), n, Box::new([0]), 1 << 26)
}

fn word(text: &str) -> u32 {
    257 + WORDS.iter().position(|w| *w == text).unwrap() as u32
}

#[test]
fn ascii_beside_tags() {
    let e = engine();
    let tag = r#"{"format":{"type":"triggered_tags","triggers":["<f>"],"tags":[
        {"begin":"<f>","content":{"type":"json_schema","json_schema":{"type":["string","integer"]}},"end":"</f>"}]}}"#;
    let options =
        StructuralOptions { bounds: Bounds { ascii: true, ..Bounds::default() }, ..StructuralOptions::default() };
    let grammar = e.structural_tag(tag.as_bytes(), &options, Limits::default()).unwrap().grammar;
    let outside = ["é", " é", "<f>\"e", "<f>1</f>é"];
    let string = ["\"</f>é", "\"</f> e"];
    for (text, taken, refused) in [
        ("", &outside[..], &["<f>\"é"][..]),
        ("<f>\"e", &string, &["é", "x é\"</f>é"]),
        ("<f>\"e\\", &string[1..], &string[..1]),
        ("<f>1", &[], &["1</f>é<f>\"é"]),
        ("<f>\"e\"</f>", &outside, &["<f>\"é"]),
    ] {
        let matcher = Matcher::new(grammar.clone(), None, 4);
        assert!(matcher.accept_bytes(text.as_bytes()).unwrap(), "{text}");
        let mut row = vec![0u32; grammar.row_words];
        matcher.fill(&mut row).unwrap();
        for token in 1..257 + WORDS.len() as u32 {
            let allowed = row[token as usize / 32] >> (token % 32) & 1 == 1;
            assert_eq!(matcher.fork().accept(token).unwrap(), allowed, "token {token} after {text:?}");
        }
        for (words, right) in [(taken, true), (refused, false)] {
            for w in words {
                assert_eq!(matcher.fork().accept(word(w)).unwrap(), right, "{w} after {text:?}");
            }
        }
    }
}
