//! What the benches share; they are targets of their own.

/// Returns the middle one of the values, of an even number the later one; not a number without values.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The parts of a bench that its arguments name: all of them where they name none.
#[derive(Debug)]
pub struct Parts {
    named: Vec<String>,
    /// True to run each part small: `cargo test --benches` only checks that it runs.
    pub quick: bool,
}

impl Parts {
    /// Reads the arguments of this process.
    #[must_use]
    pub fn of_arguments() -> Self {
        let (options, named): (Vec<_>, Vec<_>) =
            std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
        Self { named, quick: options.iter().any(|option| option == "--test") }
    }

    /// True for a part that is to run.
    #[must_use]
    pub fn want(&self, part: &str) -> bool {
        self.are_all() || self.named.iter().any(|name| name == part)
    }

    /// True if no part is named.
    #[must_use]
    pub fn are_all(&self) -> bool {
        self.named.is_empty()
    }
}

/// Returns the line of a figure, beside its target.
#[must_use]
pub fn line(name: &str, value: f64, target: f64) -> String {
    let missed = if value > target { " MISSED" } else { "" };
    format!("{name} {value:.2} (target {target:.1}){missed}")
}
