//! File tools, confined to a [`Workspace`]: [`view`], [`ls`], [`glob`] and [`grep`] read, and those of
//! [`Workspace::write_tools`] change files.
//!
//! A workspace is the only way to a file: it turns a model's path into a place below its root, and every file is
//! opened through a handle on that root. So neither `..` nor a link leads out, however the tree changes meanwhile.
//! Nothing opens a file by an absolute path.

mod beside;
mod change;
mod diff;
mod document;
mod glob;
mod grep;
mod history;
mod level;
mod loose;
mod ls;
mod path;
#[cfg(feature = "shell")]
mod places;
mod private;
#[cfg(feature = "web")]
mod received;
mod replace;
mod rules;
mod save;
mod seen;
#[cfg(feature = "lsp")]
mod several;
mod sight;
mod similar;
mod snapshots;
mod sniff;
#[cfg(feature = "lsp")]
mod source;
mod stop;
mod temporary;
mod text;
mod tool;
mod view;
mod workspace;

#[cfg(test)]
mod tests;

#[cfg(feature = "shell")]
pub(crate) use places::Places;
#[cfg(feature = "lsp")]
pub(crate) use seen::Stamp;
#[cfg(feature = "lsp")]
pub(crate) use several::{Changed, Limits, Parts};
pub use snapshots::FileSnapshots;
#[cfg(feature = "lsp")]
pub(crate) use source::Source;
pub use temporary::TemporaryWorkspace;
pub use workspace::Workspace;

use std::sync::Arc;

use entourage_core::tool::Tool;

use tool::{FileTool, Place};

/// Shows lines of a file in the current directory.
///
/// Making the tool does nothing; the directory is opened when an agent first calls it, and kept from then on. If it
/// cannot be opened, each call is an error result and the next call tries again. Use [`Workspace`] for another one.
///
/// # Contract
/// Lines are numbered from 1, 200 unless the model asks for others, each cut at 2,000 bytes; a section over 200 KiB is
/// an error result. PNG, JPEG, GIF and WebP images of at most 5 MiB are returned as media. Only the section shown, and
/// the lines before it, are read. A call ends after 20 seconds, and reading stops when its future is dropped.
#[must_use]
pub fn view() -> Arc<dyn Tool> {
    FileTool::<view::View>::shared(Place::current())
}

/// Lists the current directory as a tree of at most 1,000 entries. See [`view()`] for when the directory is opened.
///
/// # Contract
/// Shallow entries come first when there are too many. `.gitignore` and `.ignore` files are honoured, hidden names are
/// left out unless asked for, links are named and never followed. A call ends after 20 seconds with the entries found
/// so far.
#[must_use]
pub fn ls() -> Arc<dyn Tool> {
    FileTool::<ls::Ls>::shared(Place::current())
}

/// Finds files of the current directory by name. See [`view()`] for when the directory is opened.
///
/// # Contract
/// At most 100 paths, the shortest first and then by name; ignored and hidden files are left out. A call ends after 30
/// seconds with the paths found so far.
#[must_use]
pub fn glob() -> Arc<dyn Tool> {
    FileTool::<glob::Find>::shared(Place::current())
}

/// Searches the files of the current directory for a regular expression. See [`view()`] for when the directory is
/// opened.
///
/// # Contract
/// At most 100 lines, those of the newest file first, each cut at 500 columns; ignored, hidden and binary files and
/// links are left out. A call ends after 5 seconds with the lines found so far. Matching takes time linear in the
/// text.
#[must_use]
pub fn grep() -> Arc<dyn Tool> {
    FileTool::<grep::Grep>::shared(Place::current())
}
