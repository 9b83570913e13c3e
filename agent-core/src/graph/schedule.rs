//! Which node of a graph is to be started next. Pure.
