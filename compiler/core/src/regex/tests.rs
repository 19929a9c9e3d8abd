//! Patterns against a backtracking matcher that follows ECMA-262's semantics directly, on all short strings.

use proptest::prelude::*;

use super::ast::Node;
use super::class::CharSet;
use super::*;
use crate::error::CompileError;
use crate::limits::Limits;

/// Whether `node` matches at `i` so that the continuation succeeds. Look-behind tries every start before `i`.
fn search_at(node: &Node, s: &[char], i: usize, k: &mut dyn FnMut(usize) -> bool) -> bool {
    match node {
        Node::Empty => k(i),
        Node::Set(set) => i < s.len() && set.contains(s[i] as u32) && k(i + 1),
        Node::Seq(v) => seq_at(v, s, i, k),
        Node::Alt(v) => v.iter().any(|n| search_at(n, s, i, k)),
        Node::Repeat { body, min, max } => repeat_at(body, *min, *max, s, i, k),
        Node::Start => i == 0 && k(i),
        Node::End => i == s.len() && k(i),
        Node::Edge { not, word } => {
            let before = i > 0 && word.contains(s[i - 1] as u32);
            let after = i < s.len() && word.contains(s[i] as u32);
            ((before != after) != *not) && k(i)
        }
        Node::Look { behind, not, body, .. } => {
            let found = match behind {
                false => search_at(body, s, i, &mut |_| true),
                true => (0..=i).any(|j| search_at(body, s, j, &mut |end| end == i)),
            };
            found != *not && k(i)
        }
    }
}

fn seq_at(v: &[Node], s: &[char], i: usize, k: &mut dyn FnMut(usize) -> bool) -> bool {
    match v.split_first() {
        None => k(i),
        Some((first, rest)) => search_at(first, s, i, &mut |j| seq_at(rest, s, j, k)),
    }
}

/// An iteration beyond the minimum must consume something, as the specification says.
fn repeat_at(body: &Node, min: u32, max: Option<u32>, s: &[char], i: usize, k: &mut dyn FnMut(usize) -> bool) -> bool {
    if max == Some(0) {
        return k(i);
    }
    let (fewer, less) = (min.saturating_sub(1), max.map(|m| m - 1));
    let again = search_at(body, s, i, &mut |j| (j > i || min > 0) && repeat_at(body, fewer, less, s, j, k));
    again || (min == 0 && k(i))
}

fn oracle(node: &Node, s: &[char], anchoring: Anchoring) -> bool {
    match anchoring {
        Anchoring::Search => (0..=s.len()).any(|i| search_at(node, s, i, &mut |_| true)),
        Anchoring::Full => search_at(node, s, 0, &mut |j| j == s.len()),
    }
}

/// Where the strings of an expression that start at `from` end.
fn ends(e: &Expr, s: &[u8], from: usize) -> Vec<usize> {
    let mut out = match e {
        Expr::Empty => vec![from],
        Expr::Never => vec![],
        Expr::Bytes(b) if s[from..].starts_with(b) => vec![from + b.len()],
        Expr::Bytes(_) => vec![],
        Expr::Chars(r) => match std::str::from_utf8(&s[from..]).unwrap().chars().next() {
            Some(c) if r.iter().any(|r| r.0 <= c as u32 && c as u32 <= r.1) => vec![from + c.len_utf8()],
            _ => vec![],
        },
        Expr::Seq(v) => v.iter().fold(vec![from], |at, e| step(&at, |i| ends(e, s, i))),
        Expr::Alt(v) => v.iter().flat_map(|e| ends(e, s, from)).collect(),
        Expr::Repeat { body, min, max } => {
            let mut at = vec![from];
            for _ in 0..*min {
                at = step(&at, |i| ends(body, s, i));
            }
            let mut all = at.clone();
            let mut n = *min;
            while !at.is_empty() && max.is_none_or(|m| n < m) && n < min + s.len() as u32 + 1 {
                at = step(&at, |i| ends(body, s, i));
                all.extend(&at);
                n += 1;
            }
            all
        }
        Expr::And(v) => {
            let mut sets = v.iter().map(|e| ends(e, s, from));
            let first = sets.next().unwrap();
            sets.fold(first, |acc, set| acc.into_iter().filter(|i| set.contains(i)).collect())
        }
        Expr::Sub(a, b) => {
            let b = ends(b, s, from);
            ends(a, s, from).into_iter().filter(|i| !b.contains(i)).collect()
        }
        Expr::Automaton(dfa) => {
            let (mut q, mut i, mut out) = (0usize, from, vec![]);
            loop {
                if dfa.states[q].accept {
                    out.push(i);
                }
                let next = s.get(i).and_then(|b| dfa.states[q].edges.iter().find(|e| e.0 <= *b && *b <= e.1));
                let Some(e) = next else { break };
                (q, i) = (e.2 as usize, i + 1);
            }
            out
        }
        e => panic!("not expected here: {e:?}"),
    };
    out.sort_unstable();
    out.dedup();
    out
}

fn step(at: &[usize], f: impl Fn(usize) -> Vec<usize>) -> Vec<usize> {
    let mut v: Vec<usize> = at.iter().flat_map(|&i| f(i)).collect();
    v.sort_unstable();
    v.dedup();
    v
}

fn matches(e: &Expr, s: &str) -> bool {
    ends(e, s.as_bytes(), 0).contains(&s.len())
}

fn budget() -> Budget {
    Budget::new(Limits::default())
}

fn strings(alphabet: &[char], len: usize) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut last = all.clone();
    for _ in 0..len {
        last = last.iter().flat_map(|s| alphabet.iter().map(move |c| format!("{s}{c}"))).collect();
        all.extend(last.iter().cloned());
    }
    all
}

fn check(pattern: &str, alphabet: &str, len: usize) {
    let budget = budget();
    let node = parse::parse(pattern, &budget).unwrap_or_else(|e| panic!("{pattern}: {e}"));
    check_node(&node, pattern, alphabet, len);
}

fn check_node(node: &Node, shown: &str, alphabet: &str, len: usize) {
    let alphabet: Vec<char> = alphabet.chars().collect();
    let all = strings(&alphabet, len);
    for anchoring in [Anchoring::Search, Anchoring::Full] {
        let search = anchoring == Anchoring::Search;
        let e = compile(node, Alphabet::Utf8, anchoring, &budget()).unwrap_or_else(|e| panic!("{shown}: {e}"));
        let dfa = boolean::automaton(node, search, search, Alphabet::Utf8, &budget()).unwrap();
        let dfa = Expr::Automaton(std::sync::Arc::new(dfa));
        for s in &all {
            let chars: Vec<char> = s.chars().collect();
            let expected = oracle(node, &chars, anchoring);
            assert_eq!(matches(&e, s), expected, "{shown} ({anchoring:?}) on {s:?}: {e:?}");
            assert_eq!(matches(&dfa, s), expected, "{shown} ({anchoring:?}) on {s:?}, as an automaton");
        }
    }
}

#[test]
fn anchors_anywhere() {
    for p in [
        "a",
        "^a",
        "a$",
        "^a$",
        "^a|b$",
        "(^|b)a",
        "a($|b)",
        "(^a|b)(c|a$)",
        "^^a$$",
        "a^b",
        "a$b",
        "(a|^)*b",
        "(^a|b)*",
        "(a$|b)*",
        "(^|a){2}b",
        "(^a$)?",
        "(^a$|b){2}",
        "((^|b)a?($|c))*",
        "(a?^b?)+c",
        "(b?$a?){2,3}",
        "^(a?($|b))*$",
        "|a",
        "a|",
        "^$|b",
        "()",
        "(^|$)",
        "(?:^|b)(?:^|a)(?:$|c)",
        "(a|$)(b|^)",
        "",
        "^",
        "$",
        "(^)*a",
        "(?:$){2}",
        "(^a|$){3}",
        "[^]a",
        "[]",
        "a|[]",
        "([]|a)*$",
        "(?m)^a$",
        "(?m)(a|^)b$",
    ] {
        check(p, "abc\n", 4);
    }
}

#[test]
fn repeats() {
    for p in
        ["a{2}", "^a{2,3}$", "^(ab?){1,2}c", "a*?b+?", "^a{0}$", "a{0,0}b", "(a|b?){2,}c$", "(?:a{1,2}b){2}", "x{,2}a"]
    {
        check(p, "abc", 5);
    }
    let e = regex("^[a-z]{2,100000}$", Alphabet::Utf8, Anchoring::Search, &budget()).unwrap();
    assert_eq!(e, Expr::Chars(vec![(97, 122)]).repeat(2, Some(100_000)));
}

/// Every loop over two kinds of iteration, each bound to the start, the end, both or neither, empty or not or perhaps.
#[test]
fn anchored_loops() {
    let mut kinds = vec![];
    for (start, end) in [("", ""), ("^", ""), ("", "$"), ("^", "$")] {
        kinds.extend(["", "a", "a*", "b?a"].map(|body| format!("{start}{body}{end}")));
    }
    for (i, one) in kinds.iter().enumerate() {
        for other in &kinds[i..] {
            for count in ["*", "+", "{0}", "{1}", "{2}", "{0,2}", "{2,}", "{2,3}", "{3,}"] {
                check(&format!("(?:{one}|{other}){count}"), "ab", 3);
                check(&format!("^b(?:{one}|{other}){count}|(?:{one}|{other}){count}a$"), "ab", 3);
            }
        }
    }
}

#[test]
fn word_edges() {
    for p in [
        r"\b",
        r"\B",
        r"\ba\b",
        r"\ba",
        r"a\b",
        r"a\Bb",
        r"\Ba\B",
        r"(\b|-)a",
        r"^\b",
        r"\b$",
        r"a*\b-*\ba*",
        r"^(a|-)*\b(-|a)*$",
        r"(a\b-?)+",
        r"(\b[a-]){3}",
        r"(\ba|b-)*$",
        r"(\B-)*a",
        r"(?:\b){2}a",
        r"a?\b-?\b",
        r"^\B$",
        r"(?i)\bk",
    ] {
        check(p, "ab-", 5);
    }
}

#[test]
fn look_around() {
    for p in [
        "(?=a)",
        "(?!a)",
        "^(?!a)",
        "^(?!ab)",
        "^(?!ab$)b?a",
        "(?=ab)a",
        "(?!ab)a",
        "a(?!b)",
        "a(?=b|$)",
        "^(?=.*b)(?=.*a).{2}$",
        "^(?!.*bb).*$",
        "^(?:(?!ab).)*$",
        "((?!ab).)+b",
        "^(a(?!bb)|b)*$",
        "^(?!(?!a)b)",
        "(?=(?=a)b)",
        "^(?!^a)",
        "c(?!^ab)b",
        r"(?!ab\b)a",
        "(?<=a)b",
        "(?<!a)b",
        "(?<=^|b)a",
        "(?<=ab)c",
        "(?<!ab)c",
        "(?<=a.)b$",
        "(?<!^a)b",
        r"(?<=\bab)c",
        "^(?!a|b)(c|)",
        "(a(?!b.)|c)?b",
        "^(?=ab)?c",
        "(?<=(?<!a)b)c",
        "(a(?=bc)){1,2}b",
        "(?!)a",
        "(?=)a",
        "(?<=)a|(?<!)b",
        "(?!$)b?",
        "^(?!.*$)",
        "((?<!a)b)*c",
        "((?<=a|^)b|a)+$",
        "a(?!a)(?!b.)[^]",
        "(?=a*b)a+(?=bc)",
        r"^(?=a\b|b)(?:a|b)-?",
    ] {
        check(p, "abc", 5);
    }
}

fn pattern_node() -> impl Strategy<Value = Node> {
    let set = proptest::sample::subsequence(vec!['a', 'b', '-'], 1..=3)
        .prop_map(|v| Node::Set(CharSet::new(v.into_iter().map(|c| (c as u32, c as u32)).collect())));
    let leaf = prop_oneof![
        5 => set,
        1 => Just(Node::Empty),
        1 => Just(Node::Start),
        1 => Just(Node::End),
        1 => any::<bool>().prop_map(|not| Node::Edge { not, word: class::word().clone() }),
    ];
    leaf.prop_recursive(4, 16, 4, |inner| {
        let v = proptest::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            4 => v.clone().prop_map(Node::Seq),
            2 => v.prop_map(Node::Alt),
            2 => (inner.clone(), 0..3u32, proptest::option::of(0..3u32)).prop_map(|(n, min, more)| Node::Repeat {
                body: Box::new(n),
                min,
                max: more.map(|m| min + m),
            }),
            1 => (inner, any::<bool>(), any::<bool>()).prop_map(|(n, behind, not)| {
                // Look-ahead inside look-behind is refused.
                let behind = behind && !n.any(&|n| matches!(n, Node::Look { behind: false, .. }));
                Node::Look { behind, not, body: Box::new(n), at: 0 }
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, max_shrink_iters: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_patterns(node in pattern_node()) {
        check_node(&node, &format!("{node:?}"), "ab-", 4);
    }
}

#[test]
fn characters_and_escapes() {
    let yes = [
        (r"^\x41\u0042\u{43}\cJ\0\t$", "AB\x43\n\0\t"),
        (r"^\uD83D\uDE00$", "😀"),
        (r"^[\uD83D\uDE00-\uD83D\uDE02]$", "😁"),
        (r"^[\u{1F600}-\u{1F602}]$", "😂"),
        (r"^.$", "😀"),
        (r"^\-\_\/\@\'\,\ $", "-_/@', "),
        (r"^a{b}{,3}]$", "a{b}{,3}]"),
        (r"^[\w-.]$", "-"),
        (r"^[a-c-e]$", "-"),
        (r"^[[a]$", "["),
        (r"^[\]\-\b]{3}$", "]-\u{8}"),
        (r"^\p{L}\P{L}$", "é1"),
        (r"^[\p{Lu}\d]+$", "É5"),
        (r"^\s$", "\u{FEFF}"),
        (r"^(?i)a$", "never"),
        (r"(?i)^straße|K$", "\u{212A}"),
        (r"(?s)^.$", "\n"),
        (r"^(?i:a)b$", "Ab"),
        (r"^(?<year>\d{4})(?P<m>-\d\d)$", "2020-12"),
    ];
    for (p, s) in yes {
        match regex(p, Alphabet::Utf8, Anchoring::Search, &budget()) {
            Ok(e) => assert!(matches(&e, s), "{p} on {s:?}: {e:?}"),
            Err(_) => assert_eq!(s, "never", "{p}"),
        }
    }
    let no = [
        ("^.$", "\u{2028}"),
        (r"^\d$", "٣"),
        (r"^\w$", "é"),
        (r"^(?i:a)b$", "aB"),
        (r"[\uD800-\uDFFF]", "a"),
        ("^a$", "a\n"),
        (r"(?i)[^k]", "\u{212A}"),
    ];
    for (p, s) in no {
        let e = regex(p, Alphabet::Utf8, Anchoring::Search, &budget()).unwrap();
        assert!(!matches(&e, s), "{p} on {s:?}: {e:?}");
    }
}

#[test]
fn json_spelling_of_classes() {
    let e = regex(r#"^ab"[x-z]\n$"#, Alphabet::Json, Anchoring::Search, &budget()).unwrap();
    let one = |c: u32| Expr::JsonChars { ranges: vec![(c, c)], free: false };
    let xz = Expr::JsonChars { ranges: vec![(120, 122)], free: false };
    assert_eq!(e, Expr::seq([Expr::lit("ab"), one(34), xz, one(10)]));
}

#[test]
fn automata_in_json_spelling() {
    let e = regex(r"^((?!ab)[^c])*$", Alphabet::Json, Anchoring::Search, &budget()).unwrap();
    for (text, want) in [
        (r##"b\na\""##, true),
        (r"\u00e9é", true),
        (r"\ud83d\ude00", true),
        ("", true),
        ("xab", false),
        ("a\nb", false),
        ("ac", false),
        (r"a\/b", true),
        (r"\ud83d", false),
    ] {
        assert_eq!(matches(&e, text), want, "{text}");
    }
}

#[test]
fn errors_say_where() {
    let invalid = [
        ("a**", "nothing to repeat at character 2"),
        ("*", "at character 0"),
        ("(a", "`(` is not closed at character 0"),
        ("a)", "unmatched `)` at character 1"),
        ("[a", "not closed at character 0"),
        ("[b-a]", "out of order at character 1"),
        ("a{3,2}", "out of order at character 1"),
        ("{2}", "nothing to repeat"),
        ("^*", "cannot be repeated"),
        (r"\", "at the end"),
        (r"é\a", "unknown escape `\\a` at character 1"),
        (r"\Z", "its `$` is the end"),
        (r"\u12", "four hexadecimal digits"),
        (r"\u{110000}", "at character 0"),
        (r"\x1", "two hexadecimal"),
        (r"\c1", "letter"),
        (r"\p{Foo}", "unknown Unicode property `Foo`"),
        (r"\2(a)", "no group 2"),
        ("(?<1>a)", "group name"),
        ("(?>a)", "atomic"),
        ("a(?i)b", "flags in the middle"),
        ("a++", "nothing to repeat"),
    ];
    for (p, text) in invalid {
        match regex(p, Alphabet::Utf8, Anchoring::Search, &budget()) {
            Err(CompileError::Invalid { message, .. }) => assert!(message.contains(text), "{p}: {message}"),
            other => panic!("{p}: {other:?}"),
        }
    }
    for (p, text) in
        [(r"(a)\1", "back-reference at character 3"), (r"(?<n>a)\k<n>", "at character 7"), ("(?x)a", "flag `x`")]
    {
        match regex(p, Alphabet::Utf8, Anchoring::Search, &budget()) {
            Err(CompileError::Unsupported { keyword, .. }) => assert!(keyword.contains(text), "{p}: {keyword}"),
            other => panic!("{p}: {other:?}"),
        }
    }
}

#[test]
fn hostile_patterns_end() {
    let compiles = |p: &str| regex(p, Alphabet::Json, Anchoring::Search, &budget());
    assert!(compiles(&"a".repeat(1 << 20)).is_ok());
    assert!(compiles(&"(a|b)".repeat(200_000)).is_ok());
    assert!(compiles(&"(a|b".repeat(10)).is_err());
    assert!(matches!(compiles(&"(".repeat(1 << 20)), Err(CompileError::Limit { name: "depth", .. })));
    let deep = format!("{}a{}", "(".repeat(250), ")*".repeat(250));
    assert!(compiles(&deep).is_ok());
    assert!(compiles(&"a|".repeat(500_000)).is_ok());
    for p in [
        "(^|a)".repeat(3_000),
        r"(\b|a)".repeat(3_000),
        "(?!ab)a".repeat(3_000),
        r"(?!a\b.)(a|-)".repeat(300),
        format!("^({})*$", "(?!ab)a?".repeat(500)),
        "((?!ab)a{1000}){1000}".into(),
        format!("(?<=ab){}", "a?".repeat(1_400)),
        r"(?:(?!b.)a\b?){700}".into(),
        "(?:(?!b.)a?){700}$".into(),
        r"(\w*\b){20}".into(),
        "(?=(?=(?=a*b)*c)*d)*".into(),
    ] {
        let _ = compiles(&p);
    }
}
