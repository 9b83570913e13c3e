//! The least program on Entourage's default features: built for its cost, never measured.

use entourage::prelude::*;

fn main() {
    println!("{:?}", Runtime::in_memory().session().id());
}
