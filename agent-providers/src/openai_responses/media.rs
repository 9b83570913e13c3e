//! Files as this wire represents them: images and PDF documents.

use entourage_core::{message::Media, provider::Profile};
use serde_json::{Value, json};

use crate::media::{Source, left_out, not_shown, source};

/// Types of files that the model can be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shows {
    pub(super) images: bool,
    pub(super) documents: bool,
}

impl Shows {
    /// The types in a profile. Unknown ones are tried.
    pub(super) fn of(profile: &Profile) -> Self {
        Self { images: profile.vision != Some(false), documents: profile.documents != Some(false) }
    }

    /// The content part for `media`, or the note that replaces it.
    pub(super) fn part(self, media: &Media) -> Result<Value, String> {
        let source = self.checked(media)?;
        let url = match source {
            Source::Url(url) => url.to_owned(),
            Source::Inline(data) => format!("data:{};base64,{data}", media.mime),
        };
        if media.mime.starts_with("image/") {
            return Ok(json!({"type": "input_image", "image_url": url}));
        }
        let name = media.name.as_deref().unwrap_or("document.pdf");
        Ok(match source {
            Source::Url(_) => json!({"type": "input_file", "file_url": url}),
            Source::Inline(_) => json!({"type": "input_file", "filename": name, "file_data": url}),
        })
    }

    /// Source of the content of `media`, or the note that replaces it.
    pub(super) fn checked(self, media: &Media) -> Result<Source<'_>, String> {
        match media.mime.as_str() {
            mime if mime.starts_with("image/") && !self.images => {
                Err(left_out(media, "this model sees no images"))
            }
            mime if mime.starts_with("image/") => source(media),
            "application/pdf" if !self.documents => Err(left_out(media, "this model reads no documents")),
            "application/pdf" => source(media),
            _ => Err(not_shown(media)),
        }
    }
}
