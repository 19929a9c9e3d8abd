"""The command line `gramary`: compile a source, check a text against it, look inside, and time it.

Results go to standard output (a table, or JSON with `--json`), progress and errors to standard error. Exit codes: 0
done or matching, 1 not matching, 2 usage, unreadable file or source that does not compile, 3 a limit was hit.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version as installed_version
from time import perf_counter
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from gramary.cluster.agent import cli as nodes
from gramary.cluster.explain import judge
from gramary.cluster.measure import Figures, GreedyEncoder, measure
from gramary.cluster.source import (
    InputError,
    Kind,
    Options,
    compile_source,
    load_tokenizer,
    read_bytes,
    read_cases,
    read_source,
)
from gramary.compiler import Compiler, GramaryError, LimitExceeded, Limits
from gramary.compiler.compiler import OnError, PropertyOrder, Whitespace
from gramary.runtime import CompiledGrammar, allocate_bitmask

EXIT_NO_MATCH = 1
EXIT_BAD_INPUT = 2
EXIT_LIMIT = 3

app = typer.Typer(
    help="Compile the grammars that constrain an LLM's output, and look at what they allow.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

nodes.mount(app)

SourceArgument = Annotated[
    str, typer.Argument(metavar="SOURCE", help='A schema, a list of tools or a pattern; "-" is standard input.')
]
TokenizerOption = Annotated[
    str,
    typer.Option(
        "--tokenizer",
        "-t",
        envvar="GRAMARY_TOKENIZER",
        metavar="PATH",
        help="tokenizer.json, a tekken or tiktoken file, or a folder with one.",
    ),
]
KindOption = Annotated[
    Kind | None, typer.Option("--kind", "-k", help="What the source is; told by its name if not given.")
]
OrderOption = Annotated[PropertyOrder, typer.Option("--property-order", help="Order of object keys.")]
WhitespaceOption = Annotated[Whitespace, typer.Option("--whitespace", help="Whitespace between JSON tokens.")]
LenientOption = Annotated[
    bool, typer.Option("--lenient", help="Warn about what cannot be enforced instead of refusing the source.")
]
OnErrorOption = Annotated[OnError, typer.Option("--on-error", help="What one bad tool of a list does.")]
SecondsOption = Annotated[float | None, typer.Option("--seconds", help="Limit on the time that compiling may take.")]
StatesOption = Annotated[int | None, typer.Option("--fsm-states", help="Limit on automaton states.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]


def _options(
    property_order: PropertyOrder,
    whitespace: Whitespace,
    lenient: bool,
    seconds: float | None,
    fsm_states: int | None,
    on_error: OnError = "raise",
) -> Options:
    given: dict[str, Any] = {"seconds": seconds, "fsm_states": fsm_states}
    limits = {name: value for name, value in given.items() if value is not None}
    return Options(property_order, whitespace, lenient, on_error, Limits(**limits) if limits else None)


@contextmanager
def _reported(as_json: bool) -> Iterator[None]:
    """Turn expected errors into a message with place and remedy, and an exit code."""
    try:
        yield
    except (GramaryError, InputError) as error:
        details = error.as_dict() if isinstance(error, GramaryError) else {"type": "InputError", "message": str(error)}
        if as_json:
            _print_json({"error": details})
        else:
            _print_error(details)
        raise typer.Exit(EXIT_LIMIT if isinstance(error, LimitExceeded) else EXIT_BAD_INPUT) from None


def _print_error(details: dict[str, Any]) -> None:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(f"[bold red]{details['type']}[/]: {escape(details['message'])}")
    for name, label in (("pointer", "at"), ("line", "line"), ("column", "column"), ("remedy", "remedy")):
        if details.get(name):
            console.print(f"  {label}: {escape(str(details[name]))}")


def _print_json(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n")


def _print_facts(rows: Iterable[tuple[str, object]]) -> None:
    """Names and values, one pair a line, however wide the terminal is."""
    lines = [(name, f"{value:,}" if isinstance(value, int) else str(value)) for name, value in rows]
    width = max((len(name) for name, _ in lines), default=0)
    for name, value in lines:
        Console(soft_wrap=True).print(f"[dim]{escape(name):<{width}}[/]  {escape(value)}", highlight=False)


@contextmanager
def _working(message: str, as_json: bool) -> Iterator[None]:
    """A spinner on standard error while something long runs; nothing where nobody watches."""
    console = Console(stderr=True)
    if as_json or not console.is_terminal:
        yield
    else:
        with console.status(message):
            yield


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = perf_counter()
    result = work()
    return result, perf_counter() - start


def _compiler(path: str | None, as_json: bool) -> tuple[Compiler, dict[str, Any]]:
    """A compiler for the tokenizer at `path`, and facts about it."""
    with _working("Loading the tokenizer", as_json):
        tokenizer, seconds = _timed(lambda: load_tokenizer(path))
        compiler = Compiler(tokenizer)
    facts = {
        "path": path,
        "tokens": len(compiler.vocabulary),
        "vocab_size": compiler.vocab_size,
        "fingerprint": compiler.vocabulary.fingerprint.hex(),
        "load_ms": round(seconds * 1e3, 2),
    }
    return compiler, facts


def _compiled(
    path: str, kind: Kind | None, tokenizer: str | None, options: Options, as_json: bool
) -> tuple[Compiler, CompiledGrammar, dict[str, Any]]:
    source = read_source(path, kind)
    compiler, tokenizer_facts = _compiler(tokenizer, as_json)
    with _working(f"Compiling {path}", as_json):
        grammar, seconds = _timed(lambda: compile_source(compiler, source, options))
    facts = {
        "source": path,
        "kind": source.kind.value,
        "digest": grammar.digest.hex(),
        "compile_us": round(seconds * 1e6, 1),
        "tokenizer": tokenizer_facts,
        "warnings": list(grammar.warnings),
        "dropped_tools": list(grammar.dropped_tools),
    }
    return compiler, grammar, facts


def _print_warnings(facts: dict[str, Any]) -> None:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for warning in facts["warnings"]:
        console.print(f"[yellow]warning[/]: {escape(json.dumps(warning, ensure_ascii=False))}")
    for tool in facts["dropped_tools"]:
        console.print(f"[yellow]not as declared[/]: {escape(json.dumps(tool, ensure_ascii=False))}")


@app.command("compile")
def compile_(
    source: SourceArgument,
    tokenizer: TokenizerOption,
    kind: KindOption = None,
    property_order: OrderOption = "declared",
    whitespace: WhitespaceOption = "flexible",
    lenient: LenientOption = False,
    on_error: OnErrorOption = "raise",
    seconds: SecondsOption = None,
    fsm_states: StatesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compile SOURCE for a tokenizer, fill its first mask, and say what it took."""
    with _reported(as_json):
        options = _options(property_order, whitespace, lenient, seconds, fsm_states, on_error)
        compiler, grammar, facts = _compiled(source, kind, tokenizer, options, as_json)
        bitmask = allocate_bitmask(1, compiler.vocab_size)
        matcher = grammar.matcher()
        _, filled = _timed(lambda: matcher.fill_bitmask(bitmask))
        facts["first_mask_us"] = round(filled * 1e6, 1)
        facts["stats"] = grammar.stats()
        if as_json:
            _print_json(facts)
            return
        _print_warnings(facts)
        rows: list[tuple[str, object]] = [
            ("kind", facts["kind"]),
            ("digest", facts["digest"]),
            ("tokenizer", f"{facts['tokenizer']['tokens']:,} tokens, loaded in {facts['tokenizer']['load_ms']} ms"),
            ("compiled in", f"{facts['compile_us']:,} us"),
            ("first mask in", f"{facts['first_mask_us']:,} us"),
            *facts["stats"].items(),
        ]
        _print_facts([("source", source), *rows])


@app.command()
def check(
    source: SourceArgument,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help='The file to check; "-" is standard input.')
    ] = None,
    literal: Annotated[str | None, typer.Option("--text", help="The text itself, instead of a file.")] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option("--tokenizer", "-t", envvar="GRAMARY_TOKENIZER", metavar="PATH", help="Tell its tokens too."),
    ] = None,
    kind: KindOption = None,
    property_order: OrderOption = "declared",
    whitespace: WhitespaceOption = "flexible",
    lenient: LenientOption = False,
    on_error: OnErrorOption = "raise",
    seconds: SecondsOption = None,
    fsm_states: StatesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell whether a text matches SOURCE and, if not, where it stops.

    What was allowed there is told too. The exit code is 1 where the text does not match.
    """
    with _reported(as_json):
        if (text is None) == (literal is None):
            raise InputError("give the text to check either as a file or with --text")
        options = _options(property_order, whitespace, lenient, seconds, fsm_states, on_error)
        data = read_bytes(text) if text is not None else (literal or "").encode()
        compiler, grammar, facts = _compiled(source, kind, tokenizer, options, as_json)
        verdict = judge(compiler, grammar, data)
        if as_json:
            _print_json({**facts, **verdict.as_dict()})
        else:
            _print_warnings(facts)
            _print_verdict(verdict.as_dict(), tokenizer is not None)
    if not verdict.matches:
        raise typer.Exit(EXIT_NO_MATCH)


def _print_verdict(verdict: dict[str, Any], with_tokens: bool) -> None:
    console = Console(highlight=False, soft_wrap=True)
    place = f"byte {verdict['offset']:,} (line {verdict['line']}, column {verdict['column']})"
    if verdict["matches"]:
        console.print(f"[bold green]matches[/]: all {verdict['offset']:,} bytes")
        return
    if verdict["stopped"]:
        console.print(f"[bold red]does not match[/]: stops at {place}, at {escape(repr(verdict['found']))}")
    else:
        console.print(f"[bold red]does not match[/]: the text ends too early, at {place}")
    if verdict["before"]:
        console.print(f"  after: {escape(repr(verdict['before']))}")
    allowed = [*verdict["allowed_bytes"], *(["the end of the text"] if verdict["may_end"] else [])]
    console.print(f"  allowed there: {escape(', '.join(allowed)) or 'nothing'}")
    if with_tokens:
        samples = ", ".join(repr(sample) for sample in verdict["examples"])
        console.print(f"  tokens allowed: {verdict['allowed_tokens']:,}, such as {escape(samples) or 'none'}")


@app.command()
def inspect(
    source: SourceArgument,
    tokenizer: TokenizerOption,
    walk: Annotated[
        str | None,
        typer.Option("--walk", metavar="FILE", help="Build the entries that this matching text needs."),
    ] = None,
    kind: KindOption = None,
    property_order: OrderOption = "declared",
    whitespace: WhitespaceOption = "flexible",
    lenient: LenientOption = False,
    on_error: OnErrorOption = "raise",
    seconds: SecondsOption = None,
    fsm_states: StatesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the units of SOURCE: digests, states, mask entries and what they cost."""
    with _reported(as_json):
        options = _options(property_order, whitespace, lenient, seconds, fsm_states, on_error)
        compiler, grammar, facts = _compiled(source, kind, tokenizer, options, as_json)
        matcher, bitmask = grammar.matcher(), allocate_bitmask(1, compiler.vocab_size)
        tokens = GreedyEncoder(compiler.vocabulary).encode(read_bytes(walk)) if walk is not None else []
        for token in tokens:
            matcher.fill_bitmask(bitmask)
            if not matcher.accept_token(token):
                raise InputError(f"{walk} does not match {source}: gramary check tells where it stops")
        matcher.fill_bitmask(bitmask)
        facts["units"], facts["stats"] = grammar.units(), grammar.stats()
        if as_json:
            _print_json(facts)
            return
        _print_warnings(facts)
        Console().print(_units_table(source, facts["units"]))
        _print_facts([("digest", facts["digest"]), *facts["stats"].items()])


def _units_table(title: str, units: list[dict[str, Any]]) -> Table:
    table = Table(title=escape(title), title_justify="left")
    table.add_column("unit", overflow="fold")
    table.add_column("digest")
    for name in ("states", "edges", "entries", "bytes", "build us"):
        table.add_column(name, justify="right")
    table.add_column("shared")
    for unit in units:
        numbers = [f"{round(unit[name]):,}" for name in ("states", "edges", "entries", "entry_bytes", "build_us")]
        table.add_row(escape(str(unit["name"])), unit["digest"][:12], *numbers, "yes" if unit["shared"] else "")
    return table


@app.command()
def bench(
    sources: Annotated[list[str], typer.Argument(metavar="SOURCES...", help="Schemas, or .jsonl files with cases.")],
    tokenizer: TokenizerOption,
    instances: Annotated[
        list[str] | None, typer.Option("--instance", "-i", metavar="FILE", help="A text that matches the schemas.")
    ] = None,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Rounds over all cases; the first is cold.")] = 2,
    property_order: OrderOption = "declared",
    whitespace: WhitespaceOption = "flexible",
    lenient: LenientOption = False,
    seconds: SecondsOption = None,
    fsm_states: StatesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Time compiling and every mask along texts that match.

    SOURCES are schemas, with their texts as --instance, or .jsonl files with cases. The exit code is 1 where a text
    got the wrong verdict.
    """
    with _reported(as_json):
        options = _options(property_order, whitespace, lenient, seconds, fsm_states)
        cases = [case for path in sources for case in read_cases(path, instances or [])]
        compiler, facts = _compiler(tokenizer, as_json)
        encoder, bitmask = GreedyEncoder(compiler.vocabulary), allocate_bitmask(1, compiler.vocab_size)
        rounds = []
        console = Console(stderr=True)
        for number in range(repeat):
            figures = Figures()
            for case in track(
                cases,
                description=f"Round {number + 1} of {repeat}",
                console=console,
                transient=True,
                disable=as_json or not console.is_terminal,
            ):
                measure(compiler, encoder, case, options, bitmask, figures)
            rounds.append(figures)
        if as_json:
            _print_json({"tokenizer": facts, "rounds": [one.as_dict() for one in rounds], "stats": compiler.stats()})
        else:
            _print_rounds(rounds, compiler)
    if any(one.wrong for one in rounds):
        raise typer.Exit(EXIT_NO_MATCH)


def _print_rounds(rounds: list[Figures], compiler: Compiler) -> None:
    console = Console()
    table = Table(title="microseconds", title_justify="left")
    for name in ("round", "what", "count", "p50", "p90", "p99", "average"):
        table.add_column(name, justify="left" if name in ("round", "what") else "right")
    for number, figures in enumerate(rounds):
        row = figures.as_dict()
        for name, label in (("compile", "compile"), ("first_mask", "compile and first mask"), ("mask", "mask")):
            shown = [row[f"{name}_{column}_us"] for column in ("p50", "p90", "p99", "average")]
            table.add_row(
                ("cold" if number == 0 else f"warm {number}") if name == "compile" else "",
                label,
                f"{row[f'{name}_count']:,}",
                *("" if value is None or math.isnan(float(str(value))) else f"{value:,}" for value in shown),
            )
    console.print(table)
    _print_facts(compiler.stats().items())
    first = rounds[0]
    for title, colour, cases in (("refused", "yellow", first.refused), ("wrong", "red", first.wrong)):
        if cases:
            console.print(f"[bold {colour}]{len(cases)} of {first.cases} cases {title}[/]")
            for name, reason in list(cases.items())[:10]:
                console.print(f"  {escape(name)}: {escape(reason)}", soft_wrap=True, highlight=False)


@app.command()
def version(as_json: JsonOption = False) -> None:
    """Print the version."""
    if as_json:
        _print_json({"version": installed_version("gramary")})
    else:
        print(installed_version("gramary"))


if __name__ == "__main__":
    app()
