//! Facts from the wire alone: few, since users may add any model.

use entourage_core::provider::Profile;

/// True if the model takes a degree of thinking in words; the others think, or do not.
pub(super) fn thinks_in_degrees(model: &str) -> bool {
    model.to_ascii_lowercase().contains("gpt-oss")
}

/// Facts about every model: the server makes any model follow a schema, and shows documents to none. Prices, windows
/// and abilities are unknown: they depend on the file that the server loaded.
pub(super) fn profile() -> Profile {
    let mut profile = Profile::default();
    profile.structured_output = Some(true);
    profile.structured_beside_tools = Some(false);
    profile.documents = Some(false);
    profile
}
