//! automata
