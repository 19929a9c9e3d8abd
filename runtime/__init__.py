"""Running requests: compiled grammars, matchers and token bitmasks."""
