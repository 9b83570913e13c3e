//! Bounds on messages, and estimates of the memory that they take. Pure.

use entourage_core::{
    Result,
    bound::{EVENT, Flaw, VALUE, check, value},
    message::{Content, Media, MediaSource, Message, Part, ToolResult, json_bytes},
};

/// Checks a message that the program passes in.
pub(crate) fn check_message(message: &Message) -> Result<()> {
    for part in message.parts() {
        let value = match part {
            Part::Opaque(block) => Some(&*block.data),
            Part::Reasoning(reasoning) => reasoning.signature.as_ref().and_then(|it| it.item.as_ref()),
            _ => None,
        };
        if let Some(value) = value {
            check(value, VALUE).map_err(|flaw| flaw.refused("a block of the message"))?;
        }
    }
    // Text takes at most six times its bytes in JSON, so few messages have to be counted.
    if weight(message).saturating_mul(6) > EVENT && json_bytes(message, EVENT) > EVENT {
        return Err(Flaw::Large(EVENT).refused("the message"));
    }
    Ok(())
}

/// Estimated bytes of the texts and files of a message. Looks at each part, not at its text.
pub(crate) fn weight(message: &Message) -> usize {
    message.parts().iter().map(part).fold(64, usize::saturating_add)
}

fn part(part: &Part) -> usize {
    match part {
        Part::Text(text) | Part::Refusal(text) => text.len(),
        Part::Reasoning(reasoning) => {
            let signed = reasoning.signature.as_ref();
            signed
                .map_or(0, |it| it.data.len().saturating_add(it.item.as_ref().map_or(0, value)))
                .saturating_add(reasoning.text.len())
        }
        Part::Media(file) => media_weight(file),
        Part::ToolCall(call) => {
            let why = call.malformed.as_ref().map_or(0, String::len);
            [call.id.len(), call.name.len(), call.arguments.as_str().len(), why].into_iter().sum()
        }
        Part::ToolResult(answer) => result_weight(answer),
        Part::Opaque(block) => value(&block.data),
        other => json_bytes(other, usize::MAX),
    }
    .saturating_add(64)
}

/// Estimated bytes of a result.
pub(crate) fn result_weight(result: &ToolResult) -> usize {
    let pieces = result.content.iter().map(|piece| match piece {
        Content::Text(text) => text.len(),
        Content::Media(file) => media_weight(file),
        other => json_bytes(other, usize::MAX),
    });
    pieces.fold(result.call.len().saturating_add(result.name.len()), |sum, piece| {
        sum.saturating_add(piece).saturating_add(32)
    })
}

/// Bytes of a file with its name and type.
pub(crate) fn media_weight(media: &Media) -> usize {
    let source = match &media.source {
        MediaSource::Base64(source) | MediaSource::Url(source) => source.len(),
        other => json_bytes(other, usize::MAX),
    };
    let name = media.name.as_ref().map_or(0, String::len);
    source.saturating_add(media.mime.len()).saturating_add(name)
}
