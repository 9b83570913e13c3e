//! The messages that are new in a request: those after the model's last one.
//!
//! Warnings are about these only. Earlier messages were warned of when they were new; repeating that at every step
//! would hide new warnings and cost time in proportion to the conversation.

use std::sync::Arc;

use entourage_core::{
    message::{Content, Media, Message, Part, Role},
    provider::{Request, Warning, WarningKind},
};

use crate::media::describe;

/// The new messages with their indices, newest first.
pub(crate) fn messages(request: &Request) -> impl Iterator<Item = (usize, &Arc<Message>)> {
    let places = (0..request.messages.len()).rev();
    places
        .map_while(|place| Some((place, request.messages.get(place)?)))
        .take_while(|(_, message)| message.role() != Role::Assistant)
}

/// Warns of each new file that is replaced by a note.
pub(crate) fn warn_of_files(
    request: &Request,
    note: impl Fn(&Media) -> Option<String>,
    warnings: &mut Vec<Warning>,
) {
    let mut new: Vec<_> = messages(request).map(|(_, message)| message).collect();
    new.reverse();
    for file in new.into_iter().flat_map(|message| files(message)) {
        if let Some(note) = note(file) {
            warnings.push(Warning::new(WarningKind::Media, describe(file), note));
        }
    }
}

/// The files in a message, including those in tool results.
fn files(message: &Message) -> impl Iterator<Item = &Media> {
    let own = message.parts().iter().filter_map(|part| match part {
        Part::Media(file) => Some(file),
        _ => None,
    });
    let returned =
        message.tool_results().flat_map(|result| &result.content).filter_map(|content| match content {
            Content::Media(file) => Some(file),
            _ => None,
        });
    own.chain(returned)
}

/// True if only system messages come before the one at `place`. Meant for new system messages, of which there are few.
pub(crate) fn leads(request: &Request, place: usize) -> bool {
    request.messages.iter().take(place).all(|message| message.role() == Role::System)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_model_has_answered_is_not_new() {
        let all = [
            Message::system("s"),
            Message::user("a"),
            Message::assistant("b"),
            Message::user("c"),
            Message::system("d"),
        ];
        let request = Request::new("m", all.into_iter().collect());
        let texts: Vec<_> = messages(&request).map(|(place, message)| (place, message.text())).collect();
        assert_eq!(texts, [(4, "d".to_owned()), (3, "c".to_owned())]);
        assert_eq!((leads(&request, 0), leads(&request, 1), leads(&request, 4)), (true, true, false));
        assert_eq!(messages(&Request::new("m", Default::default())).count(), 0);
    }
}
