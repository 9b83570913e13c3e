//! Nothing: the benches are targets of their own.
