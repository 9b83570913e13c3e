//! Files as this wire represents them: images, sound, video, PDF and plain documents.

use entourage_core::message::Media;
use serde_json::{Value, json};

use super::content::Mode;
use crate::media::{Source, left_out, not_shown, source};

/// The documented image types; the service answers others with an error that ends the run.
const IMAGES: [&str; 6] = ["image/png", "image/jpeg", "image/jpg", "image/webp", "image/heic", "image/heif"];

/// The content part for `media`, or the note that replaces it.
pub(super) fn part(media: &Media, mode: Mode) -> Result<Value, String> {
    let mime = media.mime.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let image = IMAGES.contains(&mime.as_str());
    let moving = mime.starts_with("video/");
    let document = mime == "application/pdf";
    if !(image || moving || document || mime.starts_with("audio/") || mime.starts_with("text/")) {
        return Err(not_shown(media));
    }
    if (image || moving) && !mode.vision {
        return Err(left_out(media, "this model does not see images"));
    }
    if document && !mode.documents {
        return Err(left_out(media, "this model does not read documents"));
    }
    Ok(match source(media)? {
        Source::Inline(data) => json!({"inlineData": {"mimeType": media.mime, "data": data}}),
        Source::Url(url) => json!({"fileData": {"mimeType": media.mime, "fileUri": url}}),
    })
}
