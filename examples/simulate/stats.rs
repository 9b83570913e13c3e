//! Seeded chance, and the permitted distance of a measurement from its closed form.

/// A small generator that gives the same numbers everywhere (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True with probability `p`.
    pub(crate) fn holds(&mut self, p: f64) -> bool {
        self.unit() < p
    }
}

/// True if `hits` of `n` independent tries are plausible for a chance of `p`, with a risk of at most `risk` to say no
/// wrongly. The exact two-sided test, since the normal approximation is useless near 0 and 1.
pub(crate) fn is_plausible(hits: u64, n: u64, p: f64, risk: f64) -> bool {
    if p <= 0.0 || p >= 1.0 {
        let certain = if p <= 0.0 { 0 } else { n };
        return hits == certain;
    }
    let at_most: f64 = (0..=hits).map(|k| binomial(k, n, p)).sum();
    let at_least: f64 = (hits..=n).map(|k| binomial(k, n, p)).sum();
    at_most.min(at_least) >= risk / 2.0
}

fn binomial(k: u64, n: u64, p: f64) -> f64 {
    let ways = ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k);
    (ways + k as f64 * p.ln() + (n - k) as f64 * (1.0 - p).ln()).exp()
}

/// Natural logarithm of `n!`. Stirling's series from 20 on, where it is exact to more digits than are printed.
fn ln_factorial(n: u64) -> f64 {
    if n < 20 {
        return (2..=n).map(|k| (k as f64).ln()).sum();
    }
    let x = n as f64;
    (x + 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + 1.0 / (12.0 * x)
        - 1.0 / (360.0 * x.powi(3))
}

/// Number of standard deviations that a normal variable exceeds, to either side, with the chance `risk`. By bisection.
pub(crate) fn deviations(risk: f64) -> f64 {
    let (mut low, mut high) = (0.0, 40.0);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if 2.0 * upper_tail(middle) > risk { low = middle } else { high = middle }
    }
    high
}

/// The chance that a normal variable exceeds `x` >= 0 (a continued fraction; a series where that is slow).
fn upper_tail(x: f64) -> f64 {
    let density = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if x < 2.0 {
        let (mut term, mut sum, mut k) = (x, x, 1.0);
        while term > 1e-17 {
            term *= x * x / (2.0 * k + 1.0);
            sum += term;
            k += 1.0;
        }
        return 0.5 - density * sum;
    }
    let fraction = (1..=200).rev().fold(x, |below, k| x + f64::from(k) / below);
    density / fraction
}
