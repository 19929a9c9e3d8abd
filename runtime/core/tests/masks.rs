//! Masks equal brute force: a token is in the mask exactly if stepping its bytes one by one succeeds.

use std::sync::Arc;

use gramary_compiler::digest::digests;
use gramary_compiler::ir::Expr;
use gramary_compiler::lower::grammar::{LoweredGrammar, LoweredRule};
use gramary_compiler::lower::{json_string_fsm, lower_expr};
use gramary_compiler::program::{Program, UnitStore};
use gramary_compiler::vocab::{TokenSpec, Vocabulary};
use gramary_compiler::{Budget, Limits};
use gramary_runtime::{Grammar, Matcher, Tokens};

fn grammar(rules: Vec<Option<Expr>>, vocab: Vocabulary) -> Arc<Grammar> {
    let budget = Budget::new(Limits::default());
    let nullable = vec![false; rules.len()];
    let rules: Vec<LoweredRule> = rules
        .into_iter()
        .enumerate()
        .map(|(i, e)| LoweredRule {
            name: format!("r{i}"),
            fsm: e.map_or_else(json_string_fsm, |e| lower_expr(&e, &nullable, &budget).unwrap().fsm),
            holes: vec![],
        })
        .collect();
    let d = digests(&rules, &budget).unwrap();
    let store = Arc::new(UnitStore::default());
    let artifact = Arc::new(store.install(LoweredGrammar { rules, root: 0, root_nullable: false, digests: d }));
    let n = vocab.len();
    Arc::new(Grammar::new(
        Arc::new(Tokens::new(vocab)),
        Program::of(&store, artifact),
        Limits::default(),
        None,
        Box::new([0]),
        n,
    ))
}

fn vocabulary(words: &[&[u8]]) -> Vocabulary {
    let mut tokens = vec![TokenSpec::special("</s>")];
    tokens.extend(words.iter().map(|w| TokenSpec::text(*w)));
    tokens.extend((0..=255u8).map(|b| TokenSpec::text(vec![b])));
    Vocabulary::from_tokens(tokens, vec![("</s>".into(), 0)]).unwrap()
}

/// Follow `text` byte by byte; at each position compare the mask with brute force.
fn check(g: &Arc<Grammar>, text: &[u8]) -> bool {
    let m = Matcher::new(g.clone(), None, 16);
    let n = g.tokens.vocab.len() as u32;
    let mut row = vec![0u32; g.row_words];
    for (i, b) in std::iter::once(None).chain(text.iter().map(Some)).enumerate() {
        if let Some(&b) = b {
            if !m.accept_bytes(&[b]).unwrap() {
                return false;
            }
        }
        m.fill(&mut row).unwrap();
        for t in 0..n {
            let masked = row[t as usize / 32] >> (t % 32) & 1 == 1;
            let brute = m.fork().accept(t).unwrap();
            let bytes = String::from_utf8_lossy(g.tokens.vocab.bytes(t)).into_owned();
            assert_eq!(masked, brute, "token {t} {bytes:?} after {i} bytes of {:?}", String::from_utf8_lossy(text));
        }
    }
    m.is_complete()
}

const WORDS: [&[u8]; 16] = [
    b"aa",
    b"ab",
    b"\"a",
    b"\",",
    b"\"]",
    b"a\",\"b",
    b"\xc3",
    b"\xc3\xa9x",
    b"[[",
    b"]]",
    b"],",
    b"\\u",
    b"12",
    b"1]",
    b"aaaa",
    b"a\"]",
];

#[test]
fn arrays_of_strings_and_numbers() {
    let digits = || Expr::Class(vec![(b'0', b'9')]).plus();
    let value =
        || Expr::alt([Expr::Rule(0), Expr::json_string(1, 1, Some(3)), Expr::json_string(1, 0, None), digits()]);
    let list = Expr::seq([Expr::lit("["), value(), Expr::seq([Expr::lit(","), value()]).star(), Expr::lit("]")]);
    let g = grammar(vec![Some(list), None], vocabulary(&WORDS));
    assert!(check(&g, b"[[12,\"a\xc3\xa9b\"],[1,\"\\u00e9\\ud83d\\ude00aaaa\"],[\"\"]]"));
    assert!(!check(&g, b"[1,,"));
    println!("{:?}", g.stats());
}

#[test]
fn counted_strings_in_lists() {
    let list = Expr::seq([
        Expr::lit("["),
        Expr::json_string(1, 2, Some(5)),
        Expr::seq([Expr::lit(","), Expr::json_string(1, 2, Some(5))]).repeat(1, Some(3)),
        Expr::lit("]"),
    ]);
    let g = grammar(vec![Some(list), None], vocabulary(&WORDS));
    assert!(check(&g, b"[\"ab\",\"aaaab\",\"a\xc3\xa9a\"]"));
    assert!(!check(&g, b"[\"aaaaaa"));
    assert!(!check(&g, b"[\"ab\"]"));
}

#[test]
fn recursion_of_all_kinds() {
    let a = || Expr::lit("a");
    let grammars = [
        vec![Expr::alt([a(), Expr::seq([a(), Expr::lit("b"), Expr::Rule(0)])])],
        vec![Expr::alt([a(), Expr::seq([Expr::Rule(0), Expr::lit("b"), a()])])],
        vec![Expr::alt([a(), Expr::seq([Expr::Rule(0), Expr::Rule(0)])])],
        vec![
            Expr::alt([a(), Expr::seq([Expr::Rule(1), Expr::lit("[")])]),
            Expr::alt([Expr::lit("b"), Expr::seq([Expr::Rule(0), Expr::lit("]")])]),
        ],
        vec![
            Expr::alt([Expr::Rule(1), Expr::Rule(2)]),
            Expr::alt([Expr::Rule(0), a(), Expr::seq([Expr::Rule(0), Expr::lit("["), Expr::Rule(2)])]),
            Expr::seq([Expr::lit("b"), Expr::Rule(2).opt()]),
        ],
        vec![Expr::alt([
            a(),
            Expr::lit("b"),
            Expr::seq([a(), Expr::Rule(0), a()]),
            Expr::seq([Expr::lit("b"), Expr::Rule(0), Expr::lit("b")]),
        ])],
    ];
    let texts: [&[u8]; 6] = [b"ababa", b"aaaa", b"a[]a", b"b[][", b"a[bb[bb", b"abaaba"];
    for (i, rules) in grammars.into_iter().enumerate() {
        let g = grammar(rules.into_iter().map(Some).collect(), vocabulary(&WORDS));
        for t in texts {
            println!("{i} {:?} {}", String::from_utf8_lossy(t), check(&g, t));
        }
    }
}

#[test]
fn steps_do_not_depend_on_earlier_steps() {
    // After a counted class comes a wider one: up to the count a digit takes the edges of both, of which one fails.
    let class = |lo, hi| Expr::Class(vec![(lo, hi)]);
    let rule = || Expr::seq([class(b'0', b'9').repeat(20, Some(24)), class(b'!', b'~').star()]);
    let new = || grammar(vec![Some(rule())], vocabulary(&WORDS));
    let shared = new();
    for n in 0..30 {
        let prefix = vec![b'7'; n];
        for b in (0..=255u8).chain((0..=255).rev()) {
            let takes = |g: &Arc<Grammar>| {
                let m = Matcher::new(g.clone(), None, 16);
                assert!(m.accept_bytes(&prefix).unwrap());
                m.accept_bytes(&[b]).unwrap()
            };
            assert_eq!(takes(&shared), takes(&new()), "byte {b:#x} after {n} digits");
        }
    }
}
