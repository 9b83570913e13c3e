//! What a returned append survives, the same for every store that writes to this machine's disk.

/// How much a returned append survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Durability {
    /// A power cut. Each append waits for the disk.
    #[default]
    PowerLoss,
    /// The death of the process, but a power cut may undo the last appends (never half of one). Much faster on slow
    /// disks.
    ProcessDeath,
}
