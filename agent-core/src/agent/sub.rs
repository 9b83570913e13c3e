//! An agent as a tool of another one.
