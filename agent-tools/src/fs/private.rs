//! Directories that nobody but the user can look into, from their beginning: a program may be killed at any moment.

use std::{io, path::Path};

use cap_std::fs::Dir;

/// Permissions of such a directory.
#[cfg(unix)]
const MODE: u32 = 0o700;

/// Makes new directories so.
#[cfg(unix)]
pub(super) fn builder() -> std::fs::DirBuilder {
    let mut builder = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, MODE);
    builder
}

#[cfg(not(unix))]
pub(super) fn builder() -> std::fs::DirBuilder {
    std::fs::DirBuilder::new()
}

/// Creates a directory and those above it where they are missing. One that exists stays as it is.
pub(super) fn create_all(dir: &Path) -> io::Result<()> {
    builder().recursive(true).create(dir)
}

/// Opens a directory of the library's own, and creates it where it is missing. One that others can look into, as an
/// older version made it, is closed to them.
#[cfg(unix)]
pub(super) fn open(above: &Dir, name: &str) -> io::Result<Dir> {
    use cap_std::fs::{DirBuilder, DirBuilderExt, Permissions, PermissionsExt};
    let mut builder = DirBuilder::new();
    builder.mode(MODE);
    match above.create_dir_with(name, &builder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let dir = above.open_dir(name)?;
    let mode = dir.dir_metadata()?.permissions().mode() & 0o7777;
    if mode & !MODE != 0 {
        dir.set_permissions(".", Permissions::from_mode(mode & MODE))?;
    }
    Ok(dir)
}

#[cfg(not(unix))]
pub(super) fn open(above: &Dir, name: &str) -> io::Result<Dir> {
    above.create_dir_all(name)?;
    above.open_dir(name)
}
