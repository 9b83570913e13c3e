//! Likeness of vectors.

/// Returns the cosine of the angle between two vectors: 1 for the same direction, about 0 for unrelated texts. `None`
/// for vectors of different lengths, for a zero vector, and if a number is not finite.
///
/// ```
/// use entourage_runtime::cosine;
///
/// assert_eq!(cosine(&[3.0, 4.0], &[6.0, 8.0]), Some(1.0));
/// ```
#[must_use]
pub fn cosine(a: &[f32], b: &[f32]) -> Option<f64> {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let cosine = dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
    (a.len() == b.len() && cosine.is_finite()).then(|| cosine.clamp(-1.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::cosine;

    #[test]
    fn the_cosine_of_vectors_without_a_direction_is_none() {
        let (most, least) = (f32::MAX, f32::from_bits(1));
        for (a, b, expected) in [
            (&[1.0, 0.0][..], &[0.0, 7.0][..], Some(0.0)),
            (&[1.0, 1.0], &[-2.0, -2.0], Some(-1.0)),
            (&[most, most], &[most, most], Some(1.0)),
            (&[least], &[most], Some(1.0)),
            (&[0.0], &[1.0], None),
            (&[-0.0, 0.0], &[0.0, 0.0], None),
            (&[1.0, 2.0], &[1.0], None),
            (&[], &[], None),
            (&[f32::NAN, 1.0], &[1.0, 1.0], None),
            (&[f32::INFINITY, 1.0], &[1.0, 1.0], None),
            (&[f32::INFINITY], &[f32::INFINITY], None),
        ] {
            assert_eq!((cosine(a, b), cosine(b, a)), (expected, expected), "{a:?} {b:?}");
        }
    }
}
