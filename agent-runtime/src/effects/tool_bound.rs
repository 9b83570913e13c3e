//! Bounds on a tool's output: the run's limits for each kind of content. Pure.

use entourage_core::{
    bound::{self, Flaw},
    message::{Arguments, Content, Media, MediaSource},
    run::Limits,
    tool::ToolOutput,
};

use crate::session::journal::weight::media_weight;

/// Bytes of text in a result, at most, whatever the limits say: an event has to fit into every store.
const TEXT: usize = 16 << 20;
/// Bytes of files in a result, at most, whatever the limits say.
const MEDIA: usize = 64 << 20;
/// Pieces of a result, at most. The texts of more pieces become one.
const PIECES: usize = 1_000;

/// Returns the output within `limits`. A text of its own names what was left out, so that the model knows.
pub(crate) fn bounded(mut output: ToolOutput, limits: &Limits) -> ToolOutput {
    let media = files(&mut output.content, limits.tool_media.min(MEDIA));
    let metadata = metadata(&mut output, limits.tool_metadata.min(bound::VALUE));
    output.content = capped(output.content, limits.tool_output.min(TEXT));
    output.content.extend(media.into_iter().chain(metadata).map(Content::Text));
    output
}

/// Returns the output, or an error result if a file in it is not valid base64, which services refuse.
pub(crate) fn checked(output: ToolOutput) -> ToolOutput {
    let broken = output.content.iter().find_map(|piece| match piece {
        Content::Media(Media { mime, source: MediaSource::Base64(text), .. }) if !is_base64(text) => {
            Some(mime)
        }
        _ => None,
    });
    let Some(mime) = broken else { return output };
    let text = format!("the tool answered with a file of type {mime} whose content is no valid base64");
    let mut output = output;
    (output.content, output.is_error) = (vec![Content::Text(text)], true);
    output
}

/// True if the text is base64 with padding, and not empty.
fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let padding = text.len().saturating_sub(body.len());
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    !body.is_empty() && text.len().is_multiple_of(4) && padding <= 2 && body.bytes().all(known)
}

/// Removes the files that do not fit into `most` bytes. Returns a note about them.
fn files(content: &mut Vec<Content>, most: usize) -> Option<String> {
    let (mut kept, mut lost, mut count) = (0_usize, 0_usize, 0_usize);
    content.retain(|piece| {
        let Content::Media(media) = piece else { return true };
        // Also a file that is nearly nothing takes its place.
        let bytes = media_weight(media).saturating_add(64);
        let fits = bytes <= most.saturating_sub(kept);
        if fits {
            kept = kept.saturating_add(bytes);
        } else {
            (lost, count) = (lost.saturating_add(bytes), count.saturating_add(1));
        }
        fits
    });
    let files = match count {
        0 => return None,
        1 => "a file".to_owned(),
        _ => format!("{count} files"),
    };
    Some(format!("[… {files} of {lost} bytes left out: a result may hold {most} bytes of files …]"))
}

/// Removes metadata that cannot be kept. Returns a note about it.
fn metadata(output: &mut ToolOutput, most: usize) -> Option<String> {
    let flaw = bound::check(output.metadata.as_ref()?, most).err()?;
    output.metadata = None;
    Some(match flaw {
        Flaw::Large(most) => format!("[… metadata left out: of a result {most} bytes are kept …]"),
        flaw => format!("[… metadata left out: {flaw} …]"),
    })
}

/// Returns content of at most `limit` bytes of text. Of longer text it keeps the beginning and the end, in one piece:
/// many small pieces, each with its own note, would be no bound.
fn capped(content: Vec<Content>, limit: usize) -> Vec<Content> {
    let total: usize =
        content.iter().map(|piece| if let Content::Text(text) = piece { text.len() } else { 0 }).sum();
    if total <= limit && content.len() <= PIECES {
        return content;
    }
    let (texts, mut rest): (Vec<_>, Vec<_>) =
        content.into_iter().partition(|piece| matches!(piece, Content::Text(_)));
    let keep = if total <= limit { total } else { limit / 2 };
    let (mut head, mut tail, mut before) = (String::new(), String::new(), 0_usize);
    for piece in &texts {
        let Content::Text(text) = piece else { continue };
        let from_end = total.saturating_sub(before);
        let first = text.floor_char_boundary(keep.saturating_sub(before));
        let last = text.ceil_char_boundary(from_end.saturating_sub(keep));
        head.push_str(text.get(..first).unwrap_or(""));
        tail.push_str(text.get(last.max(first)..).unwrap_or(""));
        before = before.saturating_add(text.len());
    }
    let dropped = total.saturating_sub(head.len()).saturating_sub(tail.len());
    let note = if dropped == 0 { String::new() } else { format!("\n[… {dropped} bytes left out …]\n") };
    rest.insert(0, Content::Text([head, note, tail].concat()));
    rest
}

/// Tells the model of the arguments that a call ran with in place of its own.
pub(crate) fn other_arguments(arguments: &Arguments) -> Content {
    Content::Text(format!("Run with other arguments than yours: {}", arguments.as_str()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use entourage_core::message::{Media, MediaSource};

    fn limits(text: usize, media: usize, metadata: usize) -> Limits {
        Limits::default().with_tool_output(text).with_tool_media(media).with_tool_metadata(metadata)
    }

    fn file(bytes: usize) -> Media {
        Media::new("image/png", MediaSource::Base64("A".repeat(bytes)))
    }

    fn text(piece: &Content) -> &str {
        if let Content::Text(text) = piece { text } else { "" }
    }

    fn texts(output: &ToolOutput) -> Vec<&str> {
        let is_text = |piece: &&Content| matches!(piece, Content::Text(_));
        output.content.iter().filter(is_text).map(text).collect()
    }

    #[test]
    fn files_and_metadata_over_their_bounds_are_left_out_and_named() {
        let output =
            ToolOutput::text("See:").with_media(file(900)).with_media(file(500)).with_media(file(100));
        let output = bounded(output.with_metadata(json!("x".repeat(400))), &limits(100, 1_200, 300));
        let files = output.content.iter().filter(|piece| matches!(piece, Content::Media(_))).count();
        assert_eq!((files, output.metadata.is_none()), (2, true));
        let texts = texts(&output);
        assert_eq!(texts.first(), Some(&"See:"));
        assert!(texts.get(1).is_some_and(|text| text.contains("a file of 573 bytes")), "{texts:?}");
        assert!(texts.get(2).is_some_and(|text| text.contains("metadata left out")), "{texts:?}");
    }

    #[test]
    fn metadata_that_no_reader_takes_is_left_out() {
        let deep = (0..120).fold(json!(1), |inner, _| json!([inner]));
        let output = bounded(ToolOutput::text("x").with_metadata(deep), &Limits::default());
        assert!(output.metadata.is_none() && texts(&output).concat().contains("nests deeper"));
    }

    #[test]
    fn what_fits_is_kept_as_it_is() {
        let output = ToolOutput::text("é".repeat(50)).with_media(file(4)).with_metadata(json!({"a": [1]}));
        assert_eq!(bounded(output.clone(), &Limits::default()), output);
    }

    #[test]
    fn limits_that_are_no_limits_end_where_a_store_does() {
        let output = ToolOutput::text("x".repeat(TEXT + 1)).with_media(file(MEDIA));
        let output = bounded(output, &limits(usize::MAX, usize::MAX, usize::MAX));
        let bytes: usize = texts(&output).iter().map(|text| text.len()).sum();
        assert!(bytes < TEXT + 1_000 && output.content.len() == 2, "{bytes}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// The kept part of any output is bounded.
        #[test]
        fn any_output_is_bounded(pieces in proptest::collection::vec(("[aé🚀]{0,30}", proptest::option::of(0_usize..300)), 0..2_000)) {
            let content = pieces.into_iter().flat_map(|(text, file_of)| {
                let media = file_of.map(|bytes| Content::Media(file(bytes)));
                std::iter::once(Content::Text(text)).chain(media)
            });
            let mut output = ToolOutput::default();
            output.content = content.collect();
            let kept = bounded(output, &limits(1_000, 5_000, 0));
            let bytes: usize = texts(&kept).iter().map(|text| text.len()).sum();
            prop_assert!(bytes <= 1_000 + 200 && kept.content.len() <= PIECES + 3, "{bytes} {}", kept.content.len());
        }
    }

    #[test]
    fn cm19_invalid_base64_becomes_an_error_result() {
        let image = |data: &str| Media::new("image/png", MediaSource::Base64(data.into()));
        for (data, fine) in [
            ("aGk=", true),
            ("aGkh", true),
            ("YQ==", true),
            ("a+/9", true),
            ("", false),
            ("====", false),
            ("aGk", false),
            ("a===", false),
            ("aG k", false),
            ("aGk\n", false),
            ("a-_=", false),
            ("a=k=", false),
        ] {
            let output = ToolOutput::text("See:").with_media(image(data)).with_metadata(json!(1)).stopping();
            let checked = checked(output.clone());
            if fine {
                assert_eq!(checked, output, "{data:?}");
                continue;
            }
            assert!(checked.is_error && checked.stop_turn && checked.metadata.is_some(), "{data:?}");
            assert!(
                matches!(checked.content.as_slice(), [Content::Text(text)] if text.contains("image/png"))
            );
        }
        let linked = ToolOutput::default()
            .with_media(Media::new("image/png", MediaSource::Url("https://example.invalid/a".into())));
        assert_eq!(checked(linked.clone()), linked);
    }
}
