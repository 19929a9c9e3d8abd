//! Tests of whole grammars.
