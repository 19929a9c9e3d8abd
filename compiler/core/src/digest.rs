//! Digests
