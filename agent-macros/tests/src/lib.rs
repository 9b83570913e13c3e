//! Examples of the `#[tool]` attribute, from its documentation.

#![doc = include_str!("../../src/tool.md")]
