//! An empty crate: the benches are targets of their own.
