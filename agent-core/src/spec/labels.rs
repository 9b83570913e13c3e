//! Labels of what agents read.

use serde::{Deserialize, Serialize};

bitflags::bitflags! {
    /// Labels of what an agent reads: a set of untrusted and private. They are recorded with a tool's result, stay with
    /// the conversation that has it, and go on to agents below and, with an outcome, to those above.
    ///
    /// Records of versions without labels have all of them: nobody knows what is in those.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
    #[serde(transparent)]
    pub struct Labels: u8 {
        /// Text that strangers may have written, as pages of the web and answers of servers: it may hold instructions.
        const UNTRUSTED = 1;
        /// Text that is not for everybody, as files and what programs print.
        const PRIVATE = 2;
    }
}
