//! Compaction: what of a conversation becomes notes or a summary, and what stays. Pure.

mod fit;
mod plan;
mod prompt;

pub(crate) use fit::fitted;
pub(crate) use plan::{Frame, Plan, Room, plan, summary_plan};
pub(crate) use prompt::{built_in as summary_prompt, instruction, summary_message};
