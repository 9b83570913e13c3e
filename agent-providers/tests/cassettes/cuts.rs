//! Cuts of recorded bodies: the recordings do not hold the original pieces, so any are possible.

use crate::wires::{Reply, Wire};

/// Name of the variable that asks for the long series; `.ci/full` sets it.
const FULL: &str = "ENTOURAGE_FULL";

/// Number of attempts in a series.
struct Series {
    /// Largest body that is cut at every position, in bytes.
    short: usize,
    /// Number of pseudo-random positions at which longer bodies are cut, one at a time.
    places: usize,
    /// Most bytes that are read again for one long body in all those attempts. Beyond that, several positions are cut
    /// at a time.
    work: usize,
}

impl Series {
    fn asked() -> Self {
        match std::env::var_os(FULL) {
            Some(_) => Self { short: 3_000, places: 500, work: 4_000_000 },
            None => Self { short: 600, places: 120, work: 800_000 },
        }
    }
}

/// Number of additional attempts with random pieces.
const SHREDS: usize = 8;

/// Tries the cuts of `body`. Returns their number, and the first result that differs from `whole`.
pub(crate) fn try_all(wire: Wire, body: &[u8], whole: &Reply) -> (usize, Option<String>) {
    let mut seeded = Seeded(body.len() as u64);
    let mut cuts: Vec<Vec<&[u8]>> = vec![body.chunks(1).collect()];
    let Series { short, places, work } = Series::asked();
    if body.len() <= short {
        cuts.extend((0..=body.len()).map(|place| at(body, &mut [place])));
    } else {
        let together = (places * body.len()).div_ceil(work).min(places / 10);
        for _ in 0..places.div_ceil(together) {
            let mut together: Vec<_> = (0..together).map(|_| seeded.below(body.len())).collect();
            cuts.push(at(body, &mut together));
        }
    }
    cuts.extend((0..SHREDS).map(|_| seeded.pieces(body)));
    let differs = cuts.iter().find(|pieces| wire.decode(pieces.iter().copied()) != *whole);
    let shown = differs.map(|pieces| {
        let sizes: Vec<_> = pieces.iter().take(12).map(|piece| piece.len()).collect();
        format!("into {} pieces of {sizes:?} … bytes", pieces.len())
    });
    (cuts.len(), shown)
}

/// `body` cut at `places`.
fn at<'a>(mut body: &'a [u8], places: &mut [usize]) -> Vec<&'a [u8]> {
    places.sort_unstable();
    let mut pieces = Vec::new();
    let mut before = 0;
    for place in places {
        let (piece, rest) = body.split_at(*place - before);
        pieces.push(piece);
        (body, before) = (rest, *place);
    }
    pieces.push(body);
    pieces
}

/// Pseudo-random numbers, the same in every run.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound.max(1)
    }

    /// The body in pieces of very different sizes, as networks deliver them.
    fn pieces<'a>(&mut self, mut body: &'a [u8]) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        while !body.is_empty() {
            let most = [3, 40, 700, 9_000][self.below(4)];
            let (piece, rest) = body.split_at((1 + self.below(most)).min(body.len()));
            pieces.push(piece);
            body = rest;
        }
        pieces
    }
}
