//! The vocabulary: what a tokenizer's tokens are as bytes, and the trie over them. See the module's task in its files.
