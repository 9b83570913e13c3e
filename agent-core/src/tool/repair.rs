//! The hook that repairs a model's tool calls.

use std::fmt;

use super::Tools;
use crate::message::RawCall;

/// Repair hook of a program, for calls that cannot be run as they came.
pub trait Repair: Send + Sync + fmt::Debug {
    /// The repaired call, or `None` to leave it invalid. `problem` describes the error. The result is checked again.
    fn repair(&self, call: &RawCall, problem: &str, offered: &Tools) -> Option<RawCall>;
}
