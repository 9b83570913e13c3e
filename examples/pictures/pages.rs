//! Pages with pictures: a picture follows the line `<!-- picture: name -->`, as a block of Mermaid.

use std::{
    fs,
    path::{Path, PathBuf},
};

use entourage::prelude::*;

use super::drawn::Picture;

const BEGIN: &str = "```mermaid\n";
const END: &str = "\n```\n";

/// The pages that hold pictures.
pub(crate) fn all() -> Result<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/concepts");
    let mut pages = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .filter(|path| path.as_ref().map_or(true, |path| path.extension().is_some_and(|it| it == "md")))
        .collect::<std::io::Result<Vec<_>>>()?;
    pages.sort();
    Ok(pages)
}

/// The page with each of its pictures replaced by the one of that name.
///
/// # Errors
/// [`ErrorKind::NotFound`] for a name that none has, or a mark that no block of Mermaid follows.
pub(crate) fn with_pictures(page: &str, pictures: &[Picture]) -> Result<String> {
    let mut drawn = String::with_capacity(page.len());
    let mut rest = page;
    while let Some((before, marked)) = rest.split_once("<!-- picture: ") {
        let none = |text: &str| Error::new(ErrorKind::NotFound, text.to_owned());
        let (name, after) =
            marked.split_once(" -->\n").ok_or_else(|| none("a mark of a picture has no end"))?;
        let picture = pictures.iter().find(|picture| picture.name == name);
        let picture = picture.ok_or_else(|| none(&format!("no picture is named `{name}`")))?;
        let block = after.strip_prefix(BEGIN).and_then(|block| block.split_once(END));
        let (_, after) =
            block.ok_or_else(|| none(&format!("no block of Mermaid follows the mark of `{name}`")))?;
        drawn.push_str(before);
        drawn.push_str(&format!("<!-- picture: {name} -->\n{BEGIN}{}{END}", picture.mermaid.trim_end()));
        rest = after;
    }
    drawn.push_str(rest);
    Ok(drawn)
}
