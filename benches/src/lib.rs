//! What the benches share; they are targets of their own.

/// Returns the middle one of the values, of an even number the later one; not a number without values.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
