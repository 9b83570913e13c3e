//! Permission for calls: the scope (may this agent ever?), what a tool may ask of the rules, and the approver (a person
//! or program).
//!
//! A call is judged when it is executed, never when tools are advertised. The rules, and the judge, are in the runtime.

mod admission;
mod approver;
mod scope;

pub use crate::base::ApprovalId;
pub use admission::{Admission, RuleEffect, Rules};
pub use approver::{Answer, ApprovalRequest, Approver, Decision, Grants};
pub use scope::Scope;
