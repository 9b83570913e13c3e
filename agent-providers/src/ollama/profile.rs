//! What the wire alone knows of its models: little, since anybody may bring their own.

use entourage_core::provider::Profile;

/// Whether the model wants a degree of thinking in words; the others think, or do not.
pub(super) fn thinks_in_degrees(model: &str) -> bool {
    model.to_ascii_lowercase().contains("gpt-oss")
}

/// The server makes any model follow a schema, and shows documents to none. Prices, windows and abilities are unknown:
/// they depend on the file that the server loaded.
pub(super) fn profile() -> Profile {
    let mut profile = Profile::default();
    profile.structured_output = Some(true);
    profile.documents = Some(false);
    profile
}
