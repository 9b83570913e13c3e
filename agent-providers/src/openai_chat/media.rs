//! Files as this wire shows them to a model: images, sound, PDF documents.

use entourage_core::message::{Media, MediaSource};
use serde_json::{Value, json};

/// The content part for `media`, or the note that stands for it where the wire has none.
pub(super) fn part(media: &Media) -> Result<Value, String> {
    let note = |why: &str| Err(format!("[{}: {why}]", describe(media)));
    match &media.source {
        MediaSource::Base64(data) if !is_base64(data) => note("left out, its base64 text is broken"),
        MediaSource::Base64(data) => inline(media, data),
        MediaSource::Url(url) if !(url.starts_with("https://") || url.starts_with("http://")) => {
            note("left out, only http and https addresses are passed on")
        }
        MediaSource::Url(url) if media.mime.starts_with("image/") => {
            Ok(json!({"type": "image_url", "image_url": {"url": url}}))
        }
        _ => note("left out, this service cannot be shown such a file"),
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
        _ => Err(format!("[{}: left out, this service cannot be shown such a file]", describe(media))),
    }
}

/// Media type and name, for people and models.
pub(super) fn describe(media: &Media) -> String {
    match &media.name {
        Some(name) => format!("{} {name}", media.mime),
        None => media.mime.clone(),
    }
}

/// Whether the text is padded base64; services answer broken text with an error that ends the run.
fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let padding = text.len().saturating_sub(body.len());
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && padding <= 2
        && body.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}
