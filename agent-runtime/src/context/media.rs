//! Files in a conversation with a model that cannot take them. Pure.
//!
//! The media types that a service takes, and their form, are the business of its wire.

use std::sync::Arc;

use entourage_core::{
    message::{Content, History, Media, Message, Part},
    provider::Profile,
};

/// The conversation as a model of this profile can take it: each file that the model is known not to see, in a prompt
/// or in a tool result, is replaced by a short note. Without such files the history is returned unchanged and shared.
///
/// Images and films need [`Profile::vision`]. Texts and sounds are left to the wire. Any other file needs
/// [`Profile::documents`] or, if that is unknown, vision.
#[must_use]
pub fn shown_to(history: &History, profile: &Profile) -> History {
    let blind = profile.vision == Some(false);
    let unread = profile.documents.or(profile.vision) == Some(false);
    if !blind && !unread {
        return history.clone();
    }
    replaced(history, |media| match media.mime.split_once('/').map(|(kind, _)| kind) {
        Some("image" | "video") => blind,
        Some("text" | "audio") => false,
        _ => unread,
    })
}

/// The history without media: each file, in a prompt or in a tool result, is replaced by a short note.
#[must_use]
pub fn without_media(history: &History) -> History {
    replaced(history, |_| true)
}

fn replaced(history: &History, hidden: impl Fn(&Media) -> bool) -> History {
    let hides = |message: &Message| message.parts().iter().any(|part| part_hides(part, &hidden));
    if !history.iter().any(|message| hides(message)) {
        return history.clone();
    }
    let seen = history.iter().map(|message| {
        if !hides(message) {
            return Arc::clone(message);
        }
        let parts = message.parts().iter().map(|part| noted(part, &hidden)).collect();
        Arc::new(Message::new(message.role(), parts))
    });
    seen.collect()
}

fn part_hides(part: &Part, hidden: &impl Fn(&Media) -> bool) -> bool {
    match part {
        Part::Media(media) => hidden(media),
        Part::ToolResult(result) => {
            result.content.iter().any(|piece| matches!(piece, Content::Media(media) if hidden(media)))
        }
        _ => false,
    }
}

fn noted(part: &Part, hidden: &impl Fn(&Media) -> bool) -> Part {
    match part {
        Part::Media(media) if hidden(media) => Part::Text(note(media)),
        Part::ToolResult(result) if part_hides(part, hidden) => {
            let content = result.content.iter().map(|piece| match piece {
                Content::Media(media) if hidden(media) => Content::Text(note(media)),
                other => other.clone(),
            });
            let content = content.collect();
            let mut shown = (**result).clone();
            shown.content = content;
            Part::ToolResult(Arc::new(shown))
        }
        other => other.clone(),
    }
}

fn note(media: &Media) -> String {
    let name = media.name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
    format!("[{}{name}: not shown, this model cannot see such a file]", media.mime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use entourage_core::message::{Arguments, MediaSource, Role, ToolCall, ToolResult};

    fn file(mime: &str) -> Media {
        Media::new(mime, MediaSource::Base64("aGk=".into()))
    }

    /// A prompt and a result, each with one file of each kind.
    fn conversation() -> History {
        let files = ["image/png", "application/pdf", "text/plain", "audio/wav"].map(file);
        let call = ToolCall::new("1", "look", Arguments::empty());
        let prompt = files.iter().cloned().map(Part::Media).collect();
        let content = files.into_iter().map(Content::Media).collect();
        [
            Message::new(Role::User, prompt),
            Message::new(Role::Assistant, vec![Part::ToolCall(call.clone())]),
            Message::tool([ToolResult::new(&call, content, true)]),
        ]
        .into_iter()
        .collect()
    }

    /// Media types of the files that are left in the prompt and in the result.
    fn left(history: &History) -> [Vec<String>; 2] {
        let mimes = |message: &Message| {
            let parts = message.parts().iter();
            parts
                .filter_map(|part| if let Part::Media(it) = part { Some(it.mime.clone()) } else { None })
                .collect()
        };
        let result = history.get(2).unwrap().tool_results().next().unwrap();
        let shown = result.content.iter();
        let shown = shown
            .filter_map(|piece| if let Content::Media(it) = piece { Some(it.mime.clone()) } else { None });
        [mimes(history.get(0).unwrap()), shown.collect()]
    }

    #[test]
    fn cm19_a_model_without_vision_gets_notes_in_prompts_and_in_results() {
        let all = ["image/png", "application/pdf", "text/plain", "audio/wav"];
        for (vision, documents, kept) in [
            (None, None, &all[..]),
            (Some(true), Some(true), &all[..]),
            (Some(false), None, &all[2..]),
            (Some(false), Some(true), &all[1..]),
            (Some(false), Some(false), &all[2..]),
            (None, Some(false), &["image/png", "text/plain", "audio/wav"][..]),
        ] {
            let mut profile = Profile::default();
            (profile.vision, profile.documents) = (vision, documents);
            assert_eq!(left(&shown_to(&conversation(), &profile)), [kept, kept], "{vision:?} {documents:?}");
        }
        let bare = without_media(&conversation());
        assert_eq!(left(&bare), [vec![], Vec::<String>::new()]);
        let result = bare.get(2).unwrap().tool_results().next().unwrap();
        assert!(result.is_error, "what was an error stays one");
        assert!(result.to_text().starts_with("[image/png: not shown"), "{}", result.to_text());
    }

    #[test]
    fn what_needs_no_note_is_shared() {
        let history: History = [Message::user("Hi"), Message::assistant("Hi.")].into_iter().collect();
        assert!(Arc::ptr_eq(without_media(&history).get(0).unwrap(), history.get(0).unwrap()));
        let mixed = conversation();
        assert!(Arc::ptr_eq(without_media(&mixed).get(1).unwrap(), mixed.get(1).unwrap()));
    }
}
