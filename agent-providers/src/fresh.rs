//! The messages that are new in a request: those after the model's last one.
//!
//! Warnings speak of them only. What came before was warned of when it was new; to say it again at every step would
//! hide the rest and cost time with the length of the conversation.

use std::sync::Arc;

use entourage_core::{
    message::{Message, Role},
    provider::Request,
};

/// The new messages with their places, newest first.
pub(crate) fn messages(request: &Request) -> impl Iterator<Item = (usize, &Arc<Message>)> {
    let places = (0..request.messages.len()).rev();
    places
        .map_while(|place| Some((place, request.messages.get(place)?)))
        .take_while(|(_, message)| message.role() != Role::Assistant)
}

/// Whether only system messages come before the one at `place`. Meant for new messages of the system: there are few.
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
