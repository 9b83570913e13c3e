//! The durability of appends: one setting for all stores that write to this machine's disk.

/// The failures that a returned append survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Durability {
    /// Survives a power cut. Each append waits for the disk.
    #[default]
    PowerLoss,
    /// Survives the death of the process. A power cut may undo the last appends, but never half of one. Much faster on
    /// slow disks.
    ProcessDeath,
}
