//! The pictures of `docs/concepts/`, drawn from runs of scripted models, and written into the pages. A test compares
//! the pages with what is drawn here.
//!
//! ```text
//! cargo run -p entourage-examples --example pictures
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

mod drawn;
mod pages;

use entourage::prelude::*;

fn main() -> Result<()> {
    let pictures = drawn::all()?;
    for path in pages::all()? {
        let page = std::fs::read_to_string(&path)?;
        let drawn = pages::with_pictures(&page, &pictures)?;
        if drawn != page {
            std::fs::write(&path, drawn)?;
            println!("drawn anew: {}", path.display());
        }
    }
    println!("{} pictures", pictures.len());
    Ok(())
}
