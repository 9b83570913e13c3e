//! How far a value is from a schema, to choose the nearest of several.

/// Distance of a value from a schema.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Misfit {
    /// Number of problems, as far as they were counted; 0 if the value fits.
    pub(super) count: usize,
    /// Levels from the value down to its first problem.
    pub(super) depth: usize,
    /// A constant field names another alternative.
    pub(super) other: bool,
}

impl Misfit {
    pub(super) const NONE: Self = Self { count: 0, depth: 0, other: false };
    pub(super) const HERE: Self = Self { count: 1, depth: 0, other: false };
    pub(super) const OTHER: Self = Self { count: 1, depth: 1, other: true };

    pub(super) fn fits(self) -> bool {
        self.count == 0
    }

    /// The same, seen from the value around it.
    pub(super) fn one_up(self) -> Self {
        if self.fits() { self } else { Self { depth: self.depth.saturating_add(1), other: false, ..self } }
    }

    pub(super) fn add(&mut self, more: Self) {
        if self.fits() {
            self.depth = more.depth;
        }
        self.count = self.count.saturating_add(more.count);
        self.other |= more.other;
    }

    /// Sort key of alternatives: first the one that the value names, then the fewest problems, then the deepest.
    pub(super) fn rank(self) -> (bool, usize, usize) {
        (self.other, self.count, usize::MAX.saturating_sub(self.depth))
    }
}
