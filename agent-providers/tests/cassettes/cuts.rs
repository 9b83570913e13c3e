//! Where recorded bodies are cut: the recordings do not say how the bytes came, so they may come in any pieces.

use crate::wires::{Reply, Wire};

/// Bodies up to this many bytes are cut at every place.
const SHORT: usize = 3_000;

/// Longer ones at this many places that look random and are the same in every run, one place at a time.
const PLACES: usize = 500;

/// Bytes that may be read again for one long body in all those attempts. Beyond, several places are cut at a time.
const WORK: usize = 4_000_000;

/// And so many times in random pieces.
const SHREDS: usize = 8;

/// Tries the cuts of `body`: how many there were, and the first that gave something else than `whole`.
pub(crate) fn try_all(wire: Wire, body: &[u8], whole: &Reply) -> (usize, Option<String>) {
    let mut seeded = Seeded(body.len() as u64);
    let mut cuts: Vec<Vec<&[u8]>> = vec![body.chunks(1).collect()];
    if body.len() <= SHORT {
        cuts.extend((0..=body.len()).map(|place| at(body, &mut [place])));
    } else {
        let together = (PLACES * body.len()).div_ceil(WORK).min(PLACES / 10);
        for _ in 0..PLACES.div_ceil(together) {
            let mut places: Vec<_> = (0..together).map(|_| seeded.below(body.len())).collect();
            cuts.push(at(body, &mut places));
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

/// Numbers that look random and are the same in every run.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound.max(1)
    }

    /// The body in pieces of very different sizes, as networks give them.
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
