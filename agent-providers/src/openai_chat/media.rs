//! Files as this wire represents them: images, sound, PDF documents.

use entourage_core::{message::Media, provider::Profile};
use serde_json::{Value, json};

use crate::media::{Source, left_out, not_shown, source};

/// Types of files that the model sees, as far as known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sight {
    pub(super) images: bool,
    pub(super) documents: bool,
}

impl Sight {
    pub(super) fn of(profile: &Profile) -> Self {
        Self { images: profile.vision != Some(false), documents: profile.documents != Some(false) }
    }

    /// The content part for `media`, or the note that replaces it.
    pub(super) fn part(self, media: &Media) -> Result<Value, String> {
        if media.mime.starts_with("image/") && !self.images {
            return Err(left_out(media, "this model sees no images"));
        }
        if media.mime == "application/pdf" && !self.documents {
            return Err(left_out(media, "this model reads no documents"));
        }
        part(media)
    }
}

fn part(media: &Media) -> Result<Value, String> {
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
