use super::*;
use crate::automata::dead_ends::has_dead_ends;
use crate::ir::{Body, Dfa, Grammar, Rule};
use crate::schema::naive;

fn automaton(name: &str) -> Dfa {
    let e = format(name, Alphabet::Utf8).unwrap_or_else(|| panic!("{name}")).unwrap();
    lower::dfa(&e, &Budget::new(Limits { fsm_states: 50_000_000, ..Limits::default() })).unwrap()
}

fn accepts(dfa: &Dfa, text: &str) -> bool {
    let mut q = 0usize;
    for b in text.bytes() {
        match dfa.states[q].edges.iter().find(|e| e.0 <= b && b <= e.1) {
            Some(e) => q = e.2 as usize,
            None => return false,
        }
    }
    dfa.states[q].accept
}

#[test]
fn each_format_takes_its_own() {
    let table: &[(&str, &[&str], &[&str])] = &[
        (
            "date-time",
            &[
                "1963-06-19T08:30:06.283185Z",
                "1990-12-31t15:59:59.123-08:00",
                "1998-12-31T23:59:60Z",
                "1998-12-31T15:59:60.1-08:00",
                "2000-02-29T00:00:00z",
            ],
            &[
                "1990-02-31T15:59:59Z",
                "1998-12-31T22:59:60Z",
                "1998-12-31T23:58:60Z",
                "1963-06-19 08:30:06Z",
                "1900-02-29T00:00:00Z",
                "1963-06-19T08:30:06",
                "1963-06-19T24:00:00Z",
                "1963-06-19T08:30:06.Z",
                "0000-01-01T00:00:00Z",
                "2013-350T01:01:01",
                "1963-06-1৪T00:00:00Z",
            ],
        ),
        (
            "date",
            &["2020-02-29", "1963-06-19", "2000-12-31", "9999-04-30"],
            &[
                "2021-02-29",
                "2100-02-29",
                "2020-04-31",
                "2020-13-01",
                "2020-00-01",
                "20200101",
                "2020-1-1",
                "2020-01-00",
                "0000-01-01",
                "0000-02-29",
            ],
        ),
        (
            "time",
            &[
                "08:30:06Z",
                "08:30:06.283185Z",
                "08:30:06+00:20",
                "23:59:60Z",
                "01:29:60+01:30",
                "23:29:60+23:30",
                "15:59:60-08:00",
                "00:29:60-23:30",
                "08:30:06z",
            ],
            &[
                "22:59:60Z",
                "23:58:60Z",
                "23:59:60+01:00",
                "23:59:60+00:30",
                "23:59:60-01:00",
                "23:59:60-00:30",
                "24:00:00Z",
                "00:60:00Z",
                "00:00:61Z",
                "01:02:03+24:00",
                "08:30:06",
                "8:30:06Z",
                "08:30:06#00:20",
                "12:00:00+00:60",
            ],
        ),
        (
            "duration",
            &["P4DT12H30M5S", "P4Y", "PT0S", "P1M", "PT36H", "P1W", "P1Y2M3DT4H5M6S", "P0D"],
            &[
                "PT1D", "P", "PT", "P1", "4DT12H", "P2D1Y", "P1D2H", "P2S", "P1Y2W", "P1Y2D", "PT1H2S", "P1.5D",
                "P1DT", "p1d",
            ],
        ),
        (
            "email",
            &[
                "joe.bloggs@example.com",
                "te~st@example.com",
                "\"joe bloggs\"@example.com",
                "\"joe\\\"x\"@a",
                "joe@[127.0.0.1]",
                "joe@[IPv6:::1]",
            ],
            &[
                "2962",
                ".test@example.com",
                "test.@example.com",
                "te..st@example.com",
                "joe@invalid=domain.com",
                "joe@[127.0.0.300]",
                "@example.com",
                "joe@",
                "joe bloggs@example.com",
                "a@b@c",
                "a@-b",
            ],
        ),
        (
            "idn-email",
            &["실례@실례.테스트", "joe@example.com", "\"δ\"@example.com", "𝕏@example.com"],
            &["2962", "user＠example.com"],
        ),
        (
            "hostname",
            &["www.example.com", "1host", "a--b.com", "xn--4gbwdl.xn--wgbh1c"],
            &["", ".", ".example", "example.", "-a", "a-", "a_b", "ex．com", "a..b"],
        ),
        (
            "idn-hostname",
            &["실례.테스트", "a。b", "example.com", "παράδειγμα.ελ"],
            &["", ".", "。a", "a.", "〮실례.테스트", "-a", "a-", "aa--b", "a_b"],
        ),
        (
            "ipv4",
            &["192.168.0.1", "0.0.0.0", "255.255.255.255"],
            &["256.0.0.1", "127.0.0", "01.2.3.4", "1.2.3.4.5", "1.2.3.4/24", "0x7f.1.1.1", "1.2.3.4 "],
        ),
        (
            "ipv6",
            &[
                "::1",
                "::",
                "1::",
                "1:2:3:4:5:6:7:8",
                "::abef",
                "1::2:3:4",
                "::42:ff:1",
                "d6::",
                "1:2::192.168.0.1",
                "::ffff:1.2.3.4",
                "1:2:3:4:5:6:7::",
                "1:d6::42",
                "::2:3:4:5:6:7:8",
            ],
            &[
                "12345::",
                "1:1:1:1:1:1:1:1:1",
                "1::1::1",
                ":2:3:4:5:6:7:8",
                "1:2:3:4:5:6:7:",
                "::1%eth0",
                "1:2:3:4",
                "::1/64",
                "1:2:3:4:5:6:7:1.2.3.4",
                "::ffff:1.2.3.256",
                ":::",
                "1:2:3:4:5:6:7:8:",
                "::laptop",
            ],
        ),
        (
            "uri",
            &[
                "http://foo.bar/?baz=qux#quux",
                "http://foo.com/blah_(wikipedia)_blah#cite-1",
                "urn:oasis:names:x",
                "mailto:a@b.c",
                "http://[::1]:80/",
                "ftp://u:p@h:21/p;a=b",
                "x:",
                "http://a/%41",
                "tel:+1-816-555-1212",
            ],
            &[
                "//foo.bar/",
                "/abc",
                "abc",
                "http:// x",
                ":// x",
                "bar,baz:/x",
                "http://a b",
                "http://[::1",
                "http://a/\\",
                "http://é.x/",
                "http://a/%4",
                "1a:b",
                "http://a/<b>",
                "http://h:port/",
                "http://a@b@c/",
            ],
        ),
        (
            "uri-reference",
            &["", "//foo.bar/?baz", "/abc", "abc", "#f", "?q=1", "./this:that", "http://a", "//", "a/b:c"],
            &["\\\\W\\f", "#f\\m", "/%zz", "/[::1]", "1:b", "//e.com:abc/p", "//a@b@e.com/", "/é"],
        ),
        (
            "iri",
            &["http://ƒøø.ßår/?∂éœ=πîx#πîüx", "http://[2001:0db8::7334]"],
            &["/abc", "âππ", "http://2001:0db8:85a3:0000:0000:8a2e:0370:7334", "http:// a"],
        ),
        ("iri-reference", &["/âππ", "âππ", "#ƒrägmênt", ""], &["\\\\WINDOWS\\filëßåré", "#ƒräg\\mênt"]),
        (
            "uuid",
            &["2EB8AA08-aa98-11ea-B4Aa-73B441D16380"],
            &[
                "2eb8aa08-aa98-11ea-b4aa-73b441d1638",
                "2eb8aa08aa9811eab4aa73b441d16380",
                "2eb8aa08-aa98-11ea-b4aa-73b441d1638g",
            ],
        ),
        (
            "uri-template",
            &["http://e.com/{term:1}/{term}", "http://e.com/dictionary", "dictionary/{term:1}", "{+x,y*}{?q.z}", ""],
            &["http://e.com/{term:1}/{term", "{}", "{a b}", "}", "{x:0}"],
        ),
        ("json-pointer", &["", "/", "/foo/bar~0/baz~1/%a", "//", "/a b"], &["/foo/bar~", "a", "#/a", "/~2", "0"]),
        (
            "relative-json-pointer",
            &["1", "0/foo", "0#", "120/foo/bar", "0//"],
            &["/foo", "-1/a", "01/a", "0##", "", "0/~2", "1#/foo"],
        ),
        (
            "regex",
            &[
                "([abc])+\\s+$",
                "^a{2,5}?[^\\d-]$",
                "(?:a|(b))*",
                "[]",
                "[^]",
                "\\cA",
                "^(?!x)y",
                "(?<=a)b(?<!c)",
                "[a-zA-F_0-9]",
                "",
                "a|",
            ],
            &[
                "^(abc]", "\\a", "[z-a]", "a**", "(", "a)", "*", "a{3,2}", "[a", "(?=a)*", "(?<=a)+", "(?<n>a)",
                "\\k<n>", "\\k",
            ],
        ),
    ];
    for (name, yes, no) in table {
        if matches!(*name, "hostname" | "idn-hostname") {
            continue;
        }
        let dfa = automaton(name);
        for text in *yes {
            assert!(accepts(&dfa, text), "{name} takes {text:?}");
        }
        for text in *no {
            assert!(!accepts(&dfa, text), "{name} refuses {text:?}");
        }
    }
    // The parts of those that count apart, since their lengths written out are large automata.
    let parts = |name: &str| -> Vec<Dfa> {
        let Expr::And(parts) = format(name, Alphabet::Utf8).unwrap().unwrap() else { panic!() };
        parts.iter().map(|p| lower::dfa(p, &Budget::new(Limits::default())).unwrap()).collect()
    };
    for name in ["hostname", "idn-hostname"] {
        let (dfas, (_, yes, no)) = (parts(name), table.iter().find(|t| t.0 == name).unwrap());
        for (text, want) in yes.iter().map(|s| (s, true)).chain(no.iter().map(|s| (s, false))) {
            assert_eq!(dfas.iter().all(|d| accepts(d, text)), want, "{name} {text:?}");
        }
    }
    let dfas = parts("hostname");
    let all = |s: &str| dfas.iter().all(|d| accepts(d, s));
    let (l63, l64) = ("a".repeat(63), "a".repeat(64));
    assert!(all(&l63) && !all(&l64) && all(&format!("{l63}.{l63}.{l63}.{}", "a".repeat(61))));
    assert!(!all(&format!("{l63}.{l63}.{l63}.{}", "a".repeat(62))));
}

#[test]
fn unknown_formats_are_none() {
    for name in ["", "unknown", "int32", "password", "byte", "Date"] {
        assert!(format(name, Alphabet::Json).is_none());
    }
    assert!(is_known("int32") && is_known("password") && is_known("uuid") && !is_known("unknown"));
}

#[test]
fn the_json_alphabet_spells_quotes() {
    let Expr::Automaton(dfa) = format("email", Alphabet::Json).unwrap().unwrap() else { panic!() };
    assert!(accepts(&dfa, r#"\"joe\"@a.b"#) && !accepts(&dfa, "\"joe\"@a.b") && accepts(&dfa, "joe@a.b"));
}

/// As lowered: two counters in one unit, and few states, some of them for the last characters before the bound.
#[test]
fn host_names_are_counted() {
    let budget = Budget::new(Limits::default());
    let e = format("hostname", Alphabet::Json).unwrap().unwrap();
    let fsm = lower::lower_expr(&e, &[], &budget).unwrap().fsm;
    assert!(fsm.counters == 2 && fsm.states.len() < 200, "{} {}", fsm.counters, fsm.states.len());
    assert_eq!(has_dead_ends(&fsm, 1 << 20, &budget).unwrap(), Some(false));
    let host = |labels: &[usize]| labels.iter().map(|&n| "a".repeat(n)).collect::<Vec<_>>().join(".");
    for (text, want) in [
        (host(&[63]), true),
        (host(&[64]), false),
        (host(&[3, 63, 2]), true),
        (host(&[3, 64, 2]), false),
        (host(&[63, 63, 63, 61]), true),
        (host(&[63, 63, 63, 62]), false),
        (host(&[1; 127]), true),
        (host(&[1; 128]), false),
        ("a-b.c--d".into(), true),
        ("a-.b".into(), false),
    ] {
        assert_eq!(crate::automata::run::accepts(&fsm, text.as_bytes()), want, "{text}");
    }
}

/// As a grammar, where nothing else is asked of a string.
#[test]
fn patterns_nest_and_have_names() {
    let yes = [
        "((((a))))",
        "(?=(?:(a|(b)*)+?))",
        // One name, anywhere.
        "(?<name>x)",
        "(?<Name_$1>)*",
        "(?<$>a)|(?<=b)c|(?<!d)e",
        "((?:(?<a1>x)*)y){2,3}z",
        "(?=(?<a>x))y",
        "(?<name>(?:(x|y)))+?z",
        // In the order of the alphabet, or against it.
        "^(?<year>\\d{4})-(?<month>\\d{2})-(?<day>\\d{2})$",
        "(?<hour>\\d\\d):(?<Minute>\\d\\d)(?::(?:\\d))?(?<second>)",
        "(?<a>x)(?<b>y)|(?<z>)(?<_>w)",
        // Referred to.
        "(?<n>a)\\k<n>",
        "(?<q>['\"])[^'\"]*\\k<q>+?|\\k<q>",
    ];
    let no = [
        "((a)",
        "(a))",
        "(?=a)*",
        "(?<=a)+",
        "(?<!a){2}",
        // Declared twice, though only in other alternatives.
        "(?<a>x)(?<a>y)",
        "(?<a>x)|(?<a>y)",
        "(?<ab>x)(?<ab>y)",
        "(?<a>(?<a>x))",
        "((?<a>x))(?<a>y)",
        "(?<b>)(?<a>)(?<b>)",
        // Not names.
        "(?<1a>x)",
        "(?<>x)",
        "(?<a b>x)",
        "(?<a-b>x)",
        "(?P<a>x)",
        "(?a>x)",
        // Not ended.
        "(?<",
        "(?<a",
        "(?<a>",
        "(?<a>x",
        "(?<a)>x)",
        "(?<n>a)\\k<n",
        // Of no such group.
        "\\k<n>",
        "\\k",
        "(?<n>a)\\k",
        "(?<n>a)\\k<m>",
        "(?<nn>a)\\k<n>",
        "(?<n>a)\\k<nn>",
        "(?<n>a)(?<o>b)\\k<p>",
    ];
    let grammar = Grammar { rules: patterns::rules(0).unwrap(), root: 0 };
    for (text, want) in yes.iter().map(|s| (*s, true)).chain(no.iter().map(|s| (*s, false))) {
        let quoted = serde_json::to_string(text).unwrap();
        let inner = &quoted.as_bytes()[1..quoted.len() - 1];
        assert_eq!(naive::matches(&grammar, inner), want, "{text}");
    }
}

/// The grammar has every pattern of the automaton, and its references are shifted with it.
#[test]
fn patterns_as_a_grammar_are_those_of_the_automaton_and_more() {
    let (grammar, base) = (Grammar { rules: patterns::rules(0).unwrap(), root: 0 }, 7);
    let dfa = lower::dfa(&format("regex", Alphabet::Json).unwrap().unwrap(), &Budget::new(Limits::default())).unwrap();
    let mut taken = 0;
    let parts = ["a", "(", ")", "(?:", "(?=", "(?<!", "|", "*", "{2}", "[^a-c]", "\\\\d", "^"];
    for i in 0..parts.len().pow(4) {
        let text = (0..4).map(|k| parts[i / parts.len().pow(k) % parts.len()]).collect::<String>();
        if accepts(&dfa, &text) {
            assert!(naive::matches(&grammar, text.as_bytes()), "{text}");
            taken += 1;
        }
    }
    assert!(taken > 500, "{taken}");
    let moved = patterns::rules(base).unwrap();
    let mut rules = vec![Rule { name: "unused".into(), body: Body::Expr(Expr::Never) }; base as usize];
    rules.extend(moved);
    let moved = Grammar { rules, root: base };
    let budget = Budget::new(Limits::default());
    let digest = |g: &Grammar| {
        let lowered = lower::grammar::lower_grammar(g, &budget).unwrap();
        lowered.digests.unit[lowered.root as usize]
    };
    assert_eq!(digest(&grammar), digest(&moved));
}
