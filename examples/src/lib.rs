//! The README's snippets, compiled and run here: they use more than the facade's own tests may depend on.
#![cfg_attr(doctest, doc = include_str!("../../README.md"))]
