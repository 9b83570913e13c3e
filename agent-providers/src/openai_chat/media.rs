//! Files as this wire shows them to a model: images, sound, PDF documents.

use entourage_core::message::Media;
use serde_json::{Value, json};

use crate::media::{Source, not_shown, source};

/// The content part for `media`, or the note that stands for it where the wire has none.
pub(super) fn part(media: &Media) -> Result<Value, String> {
    match source(media)? {
        Source::Inline(data) => inline(media, data),
        Source::Url(url) if media.mime.starts_with("image/") => {
            Ok(json!({"type": "image_url", "image_url": {"url": url}}))
        }
        Source::Url(_) => Err(not_shown(media)),
    }
}

fn inline(media: &Media, data: &str) -> Result<Value, String> {
    let url = || format!("data:{};base64,{data}", media.mime);
    match media.mime.as_str() {
        mime if mime.starts_with("image/") => Ok(json!({"type": "image_url", "image_url": {"url": url()}})),
        "audio/wav" | "audio/x-wav" => {
            Ok(json!({"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}))
        }
        "audio/mpeg" | "audio/mp3" => {
            Ok(json!({"type": "input_audio", "input_audio": {"data": data, "format": "mp3"}}))
        }
        "application/pdf" => {
            let name = media.name.as_deref().unwrap_or("document.pdf");
            Ok(json!({"type": "file", "file": {"filename": name, "file_data": url()}}))
        }
        _ => Err(not_shown(media)),
    }
}
