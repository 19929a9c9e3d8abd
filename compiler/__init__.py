"""Sources to compiled grammars: tokenizers, the compiler, its limits and its errors."""
