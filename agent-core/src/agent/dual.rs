//! Two agents: one works, the other checks, and only the checker may call the task complete.
