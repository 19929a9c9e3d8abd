"""EBNF and choice: what is accepted, what is refused and how, and random grammars against a recogniser of their own."""

import random

import pytest

from gramary.compiler import (
    Compiler,
    InvalidGrammar,
    LimitExceeded,
    Limits,
    Tokenizer,
    UnsatisfiableSchema,
    UnsupportedSchema,
)
from tests.ebnf_grammars import random_grammar, texts_of


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(Tokenizer.from_bytes())


def accepts(compiler: Compiler, grammar: str, text: str, root: str = "root") -> bool:
    matcher = compiler.compile_ebnf(grammar, root=root).matcher()
    return matcher.accept_bytes(text) and matcher.is_complete()


@pytest.mark.parametrize(
    ("grammar", "yes", "no"),
    [
        ('root ::= "a" "b" |\n  "c"', ["ab", "c"], ["a", "b", "abc", ""]),
        ('root ::= "a"{2} | "b"{2,} | "c"{,2} | "d"{1,3}', ["aa", "bbb", "", "cc", "ddd"], ["a", "b", "ccc", "dddd"]),
        ("root ::= [a-c\\-\\]] [^a-c] [-x] [y-]", ["-d-y", "]éx-"], ["aaxy", "ddxy"]),
        ('root ::= [\\x41-\\u0043] "\\U0001F600" "\\ud83d\\ude00" "\\n\\"\\\\"', ['B😀😀\n"\\'], ["D😀😀"]),
        ("root ::= [^] .", ["a\n", "é😀"], ["", "a"]),
        ("root ::= a-b c.d _e 1f\na-b ::= [a]\nc.d ::= [c]\n_e ::= [e]\n1f ::= [f]", ["acef"], ["a"]),
        ('root ::= "a" # one\n | # two\n "b" # three', ["a", "b"], ["ab", "#"]),
        ('root ::= root "+" n | n\nn ::= [0-9]+', ["1", "1+22+3"], ["", "1+", "+1"]),
        ('root ::= "(" root ")" root | ""', ["", "()", "(())()"], ["(", ")("]),
        ('root ::= a\na ::= b "x" | "y"\nb ::= a | ""', ["y", "yx", "yxx", "x"], ["", "xy"]),
        ('root ::= "a"[0-9]x\nx ::= "b"{1000}', ["a1" + "b" * 1000], ["a1" + "b" * 999, "a1" + "b" * 1001]),
        ('root ::= Regex("a+|b") "c" Regex("D", flags="i")', ["aacd", "bcD"], ["abcd"]),
        ('root ::= "\\"" Regex("é\\"?", json_string=true) "\\""', ['"é"', '"\\u00e9\\""'], ['"é""']),
        ('root ::= Substring("the ", "quick ", "the ", "fox")', ["", "quick the ", "the fox"], ["the the ", "he "]),
        ('root ::= TagDispatch(("<a>", x), ("<ab>", x))\nx ::= [xy]', ["", "..<a>x<ab>y.", "<a"], ["<a>", "<a>z"]),
        ('root ::= "!" TagDispatch(("<", x), loop_after_dispatch=false) "?"\nx ::= "y"', ["!a<y?", "!?"], ["!<y.?"]),
        ('root ::= TagDispatch(("<", x), excludes=("no", "so"))\nx ::= "no"', ["<non", "s<noo"], ["no", "<noso"]),
        ("root ::= TagDispatch((\"<\", x))\nx ::= 'y'?".replace("'", '"'), ["<", "<y", "<yy", "<<y<"], []),
        ('root[capture] ::= x (= "b") | "c"\nx ::= "a"', ["a", "c"], ["b"]),
        ('main::="a"b\nb::="c"', [], []),
    ],
)
def test_what_grammars_mean(compiler: Compiler, grammar: str, yes: list[str], no: list[str]) -> None:
    for text in yes:
        assert accepts(compiler, grammar, text), text
    for text in no:
        assert not accepts(compiler, grammar, text), text


def test_another_root(compiler: Compiler) -> None:
    assert accepts(compiler, 'main::="a"b\nb::="c"', "ac", root="main")
    assert accepts(compiler, 'main::="a"b\nb::="c"', "c", root="b")


@pytest.mark.parametrize(
    ("grammar", "line", "column", "says"),
    [
        ('root ::= "a', 1, 10, "not closed"),
        ("root ::= [a", 1, 10, "not closed"),
        ('root ::= "a"\n  | ("b"', 2, 5, "not closed"),
        ('root ::= "a")', 1, 13, "closes nothing"),
        ("root ::= ", 1, 10, 'write ""'),
        ("root ::= x-y\nx_y ::= [a]", 1, 10, "did you mean `x_y`"),
        ('root ::= "a"\nroot ::= "b"', 2, 1, "already defined at line 1, column 1"),
        ("root ::= [z-a]", 1, 11, "smaller end first"),
        ('root ::= "\\q"', 1, 11, "no escape"),
        ('root ::= "\\ud83d"', 1, 11, "no character"),
        ('root ::= "a"{2,1}', 1, 13, "swap"),
        ('root ::= "a"{99999999999}', 1, 14, "too large"),
        ('root ::= "a"?*', 1, 14, "parentheses"),
        ('root = "a"', 1, 1, "`::=`"),
        ('root ::= "a" (= "b") "c"', 1, 14, "last"),
        ("root ::= TagDispatch((x, x))", 1, 22, "trigger"),
        ('root ::= Regex("a", sausage=true)', 1, 21, "no argument `sausage`"),
    ],
)
def test_errors_name_the_place_and_a_remedy(
    compiler: Compiler, grammar: str, line: int, column: int, says: str
) -> None:
    with pytest.raises(InvalidGrammar) as caught:
        compiler.compile_ebnf(grammar)
    assert caught.value.pointer == f"line {line}, column {column}"
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("grammar", "keyword"),
    [
        ('start: "a"', "Lark"),
        ("root ::= 'a'", "single quotes"),
        ("root ::= /a/", "/pattern/"),
        ("root ::= [\\d]", "\\d"),
        ('root[max_tokens=3] ::= "a"', "the rule option `max_tokens`"),
        ('root ::= Token("a")', "a token by text"),
        ("root ::= <[12]>", "<token>"),
    ],
)
def test_what_other_languages_have_is_refused_by_name(compiler: Compiler, grammar: str, keyword: str) -> None:
    with pytest.raises(UnsupportedSchema) as caught:
        compiler.compile_ebnf(grammar)
    assert caught.value.keyword == keyword
    assert caught.value.remedy


def test_nothing_to_match(compiler: Compiler) -> None:
    for grammar in ("root ::= []", "root ::= root", 'root ::= a "x"\na ::= a'):
        with pytest.raises(UnsatisfiableSchema):
            compiler.compile_ebnf(grammar)
    with pytest.raises(InvalidGrammar, match="name one as root"):
        compiler.compile_ebnf('main ::= "a"')
    with pytest.raises(InvalidGrammar, match="no token 99999"):
        compiler.compile_ebnf("root ::= Token(99999)")


def test_hints_are_warned_of(compiler: Compiler) -> None:
    warnings = compiler.compile_ebnf('root[capture="x"] ::= "a" (= "b")').warnings
    assert [w["keyword"] for w in warnings] == ["capture", "(="]


def test_hostile_grammars_meet_their_limits(compiler: Compiler) -> None:
    with pytest.raises(LimitExceeded):
        compiler.compile_ebnf("root ::= " + "(" * 100_000)
    with pytest.raises(LimitExceeded):
        compiler.compile_ebnf("root ::= " + "(" * 3_000 + '"a"' + ")" * 3_000)
    with pytest.raises(LimitExceeded):
        compiler.compile_ebnf("root ::= " + "a " * 200, limits=Limits(source_bytes=100))
    doubled = "\n".join(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(60)) + "\nr60 ::= [a]"
    grammar = compiler.compile_ebnf("root ::= r0?\n" + doubled)
    assert grammar.matcher().accept_bytes("a" * 100)


def test_choice(compiler: Compiler) -> None:
    choices = ["yes", "no", "", "no, not at all", 'é"\n', "yes"]
    grammar = compiler.compile_choice(choices)
    for text in choices:
        matcher = grammar.matcher()
        assert (matcher.accept_bytes(text), matcher.is_complete()) == (True, True)
    for text in ("y", "nope", "no,", "yes "):
        matcher = grammar.matcher()
        assert not (matcher.accept_bytes(text) and matcher.is_complete())
    assert compiler.compile_choice(["b", "a"]).digest == compiler.compile_choice(["a", "b", "a"]).digest
    with pytest.raises(InvalidGrammar, match="at least one"):
        compiler.compile_choice([])
    with pytest.raises(TypeError, match="list of strings"):
        compiler.compile_choice("yes")


def test_how_a_grammar_is_cut_into_small_rules_does_not_matter(compiler: Compiler) -> None:
    one = compiler.compile_ebnf('root ::= [a-z]+ "=" [0-9]{1,5}')
    cut = compiler.compile_ebnf(
        'root ::= name eq value\nname ::= [a-z]+\neq ::= "="\nvalue ::= digit{1,5}\ndigit ::= [0-9]'
    )
    assert one.digest == cut.digest


@pytest.mark.parametrize("seed", range(8))
def test_random_grammars(compiler: Compiler, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        grammar = random_grammar(rng)
        texts = texts_of(grammar, rng, 12)
        expected = {text: grammar.accepts(text) for text in texts}
        try:
            compiled = compiler.compile_ebnf(grammar.text())
        except UnsatisfiableSchema:
            assert not any(expected.values()), grammar.text()
            continue
        for text in texts:
            matcher = compiled.matcher()
            assert (matcher.accept_bytes(text) and matcher.is_complete()) == expected[text], (grammar.text(), text)
