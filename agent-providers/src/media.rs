//! Files on their way to a model: those that can be passed on, and the notes that replace the others.
//!
//! A file that cannot be shown never ends a run: the model gets a note instead. The media types that a service takes,
//! and their form, are the business of its wire.

use entourage_core::message::{Content, Media, MediaSource, ToolResult};

/// Source of a file's content, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source<'a> {
    /// Padded base64 text.
    Inline(&'a str),
    /// An `http` or `https` address.
    Url(&'a str),
}

/// The content of `media`, or the note that replaces it if no service could take it.
pub(crate) fn source(media: &Media) -> Result<Source<'_>, String> {
    match &media.source {
        MediaSource::Base64(data) if is_base64(data) => Ok(Source::Inline(data)),
        MediaSource::Base64(_) => Err(left_out(media, "its base64 text is broken")),
        MediaSource::Url(url) if url.starts_with("https://") || url.starts_with("http://") => {
            Ok(Source::Url(url))
        }
        MediaSource::Url(_) => Err(left_out(media, "only http and https addresses are passed on")),
        _ => Err(not_shown(media)),
    }
}

/// The note for a file that this wire cannot represent.
pub(crate) fn not_shown(media: &Media) -> String {
    left_out(media, "this service cannot be shown such a file")
}

/// The note for a file that is left out because of `why`.
pub(crate) fn left_out(media: &Media, why: &str) -> String {
    format!("[{}: left out, {why}]", describe(media))
}

/// Media type and name, for people and models.
pub(crate) fn describe(media: &Media) -> String {
    match &media.name {
        Some(name) => format!("{} {name}", media.mime),
        None => media.mime.clone(),
    }
}

/// A line with the origin of a file in a tool result.
pub(crate) fn origin(file: &Media, result: &ToolResult) -> String {
    format!("{} returned by the tool `{}`", describe(file), result.name)
}

/// The text of a result, for wires whose results hold only text. Each file is passed to `show`, which puts it into the
/// user message that follows, or returns the note that replaces it.
pub(crate) fn result_text<'a>(
    result: &'a ToolResult,
    mut show: impl FnMut(&'a Media) -> Result<(), String>,
) -> String {
    let pieces = result.content.iter().map(|content| match content {
        Content::Text(text) => text.clone(),
        Content::Media(file) => match show(file) {
            Ok(()) => format!("[{}: see the next message of the user]", describe(file)),
            Err(note) => note,
        },
        other => other.as_text(),
    });
    pieces.collect::<Vec<_>>().join("\n")
}

/// True if the text is padded base64. Services answer broken text with an error that ends the run.
pub(crate) fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let padding = text.len().saturating_sub(body.len());
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && padding <= 2
        && body.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_base64_and_web_addresses_are_passed_on() {
        for (text, fine) in
            [("aGk=", true), ("aGkh", true), ("", false), ("aGk", false), ("a===", false), ("a-_=", false)]
        {
            assert_eq!(is_base64(text), fine, "{text}");
        }
        let media = |source| Media::new("image/png", source);
        let inline = media(MediaSource::Base64("aGk=".into()));
        assert_eq!(source(&inline), Ok(Source::Inline("aGk=")));
        let url = media(MediaSource::Url("https://h/i".into()));
        assert_eq!(source(&url), Ok(Source::Url("https://h/i")));
        let mut file = media(MediaSource::Url("file:///etc/x".into()));
        file.name = Some("x.png".into());
        let note = "[image/png x.png: left out, only http and https addresses are passed on]";
        assert_eq!(source(&file), Err(note.to_owned()));
    }
}
