"""Sources to compiled grammars.

    from gramary.compiler import Compiler, Tokenizer

    compiler = Compiler(Tokenizer.from_file("tokenizer.json"))
    grammar = compiler.compile_json_schema(schema)

`Compiler` takes JSON Schema, regular expressions, lists of tools and tags; `Limits` bounds what a hostile source may
cost; every failure is a class of `gramary.compiler.errors`.
"""

from gramary.compiler.compiler import Compiler
from gramary.compiler.errors import (
    Cancelled,
    CompileError,
    GramaryError,
    InvalidGrammar,
    InvalidPattern,
    InvalidSchema,
    LimitExceeded,
    MatcherError,
    RollbackError,
    TokenizerError,
    ToolError,
    UnsatisfiableSchema,
    UnsupportedSchema,
)
from gramary.compiler.tokenizer import Tokenizer
from gramary.runtime._core import FORMAT_VERSION, Limits, Vocabulary

__all__ = [
    "FORMAT_VERSION",
    "Cancelled",
    "CompileError",
    "Compiler",
    "GramaryError",
    "InvalidGrammar",
    "InvalidPattern",
    "InvalidSchema",
    "LimitExceeded",
    "Limits",
    "MatcherError",
    "RollbackError",
    "Tokenizer",
    "TokenizerError",
    "ToolError",
    "UnsatisfiableSchema",
    "UnsupportedSchema",
    "Vocabulary",
]
