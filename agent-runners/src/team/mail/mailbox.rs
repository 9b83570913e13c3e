//! Messages that wait and that were delivered: a fold over their records. Pure.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use entourage_core::tool::CallId;

use super::{Delivered, EVERYONE, MessageKind, TeamMessage};

/// Bytes that a message takes beside its text.
const OVERHEAD: usize = 200;

/// Ids of messages, each with the last call that brought it.
pub(super) type Brought = BTreeMap<Arc<str>, Arc<str>>;

/// The messages of a run.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    /// Messages that wait for each recipient, oldest first.
    waiting: BTreeMap<Arc<str>, VecDeque<Arc<TeamMessage>>>,
    messages: HashMap<Arc<str>, Arc<TeamMessage>>,
    by_call: HashMap<Arc<str>, Arc<str>>,
    /// Response to each request.
    responses: HashMap<Arc<str>, Arc<TeamMessage>>,
    /// Deliveries at each place, oldest first.
    delivered: HashMap<Arc<str>, Vec<Arc<Delivered>>>,
    /// Place of the newest attempt at each item, by its recipient.
    attempts: HashMap<(Arc<str>, Arc<str>), Arc<str>>,
    /// Requests whose response a call waits for.
    awaited: HashMap<Arc<str>, usize>,
}

impl Mailbox {
    /// Creates the mailbox of these recipients.
    pub(super) fn new(recipients: impl IntoIterator<Item = Arc<str>>) -> Self {
        let waiting = recipients.into_iter().map(|id| (id, VecDeque::new())).collect();
        Self { waiting, ..Self::default() }
    }

    pub(super) fn recipients(&self) -> impl Iterator<Item = &Arc<str>> {
        self.waiting.keys()
    }

    pub(super) fn count(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn message(&self, id: &str) -> Option<&Arc<TeamMessage>> {
        self.messages.get(id)
    }

    /// Returns the id of the message that a call has sent.
    pub(super) fn sent(&self, call: &str) -> Option<&Arc<str>> {
        self.by_call.get(call)
    }

    /// Adds a message that was not sent before.
    pub(super) fn post(&mut self, message: &Arc<TeamMessage>) {
        self.messages.insert(Arc::clone(&message.id), Arc::clone(message));
        self.by_call.insert(Arc::clone(&message.call), Arc::clone(&message.id));
        if let (MessageKind::Response, Some(of)) = (message.kind, &message.of) {
            self.responses.entry(Arc::clone(of)).or_insert_with(|| Arc::clone(message));
        }
        if &*message.to == EVERYONE {
            let others = self.waiting.iter_mut().filter(|(recipient, _)| **recipient != message.from);
            others.for_each(|(_, waiting)| waiting.push_back(Arc::clone(message)));
        } else if let Some(waiting) = self.waiting.get_mut(&message.to) {
            waiting.push_back(Arc::clone(message));
        }
    }

    /// True when a message waits for this recipient that no call of its own waits for.
    pub(super) fn has_mail(&self, recipient: &str) -> bool {
        self.waiting.get(recipient).is_some_and(|waiting| waiting.iter().any(|it| !self.is_awaited(it)))
    }

    /// Returns the messages that wait for this recipient and that no call of its own waits for: the oldest one, and
    /// those after it while all of them have at most `bytes` of text.
    pub(super) fn waiting(&self, recipient: &str, bytes: usize) -> Vec<Arc<TeamMessage>> {
        let waiting = self.waiting.get(recipient).into_iter().flatten();
        let mut taken = 0_usize;
        let fits = |message: &&Arc<TeamMessage>| {
            let first = taken == 0;
            taken = taken.saturating_add(message.text.len()).saturating_add(OVERHEAD);
            first || taken <= bytes
        };
        waiting.filter(|message| !self.is_awaited(message)).take_while(fits).cloned().collect()
    }

    /// Number of messages that wait for this recipient.
    pub(super) fn left(&self, recipient: &str) -> usize {
        self.waiting.get(recipient).map_or(0, VecDeque::len)
    }

    /// Returns what calls brought, by place.
    pub(super) fn brought(&self) -> HashMap<Arc<str>, Brought> {
        let mut brought: HashMap<_, Brought> = HashMap::new();
        for delivered in self.delivered.values().flatten() {
            let Some(call) = &delivered.call else { continue };
            let here = brought.entry(Arc::clone(&delivered.place)).or_default();
            here.extend(delivered.messages.iter().map(|id| (Arc::clone(id), Arc::clone(call))));
        }
        brought
    }

    /// Takes note of the delivery that begins an attempt at an item. What an attempt before it was given, by prompt or
    /// by results, waits again: this one has no memory of that. Requests that its recipient has answered do not.
    pub(super) fn begin(&mut self, delivered: &Delivered) {
        let Some(item) = &delivered.item else { return };
        let attempt = (Arc::clone(&delivered.to), Arc::clone(item));
        let before = self.attempts.insert(attempt, Arc::clone(&delivered.place));
        let Some(before) = before.filter(|place| *place != delivered.place) else { return };
        let own = self.messages.values().filter(|message| message.from == delivered.to);
        let answered: HashSet<_> = own.filter_map(|message| message.of.clone()).collect();
        let given = self.delivered(&before, |it| it.to == delivered.to);
        let Some(waiting) = self.waiting.get_mut(&delivered.to) else { return };
        for message in given.into_iter().filter(|message| !answered.contains(&message.id)) {
            if let Err(place) = waiting.binary_search_by(|it| it.order().cmp(&message.order())) {
                waiting.insert(place, message);
            }
        }
    }

    /// Takes note of a delivery: the messages wait no more.
    pub(super) fn deliver(&mut self, delivered: &Arc<Delivered>) {
        self.begin(delivered);
        if let Some(waiting) = self.waiting.get_mut(&delivered.to) {
            // They are the first ones, but for those that were awaited.
            for id in &delivered.messages {
                if let Some(place) = waiting.iter().position(|message| message.id == *id) {
                    waiting.remove(place);
                }
            }
        }
        self.delivered.entry(Arc::clone(&delivered.place)).or_default().push(Arc::clone(delivered));
    }

    /// Returns the messages of the deliveries at a place that `are` among.
    pub(super) fn delivered(&self, place: &str, are: impl Fn(&Delivered) -> bool) -> Vec<Arc<TeamMessage>> {
        let deliveries = self.delivered.get(place).into_iter().flatten().filter(|it| are(it));
        deliveries.flat_map(|it| &it.messages).filter_map(|id| self.messages.get(id).cloned()).collect()
    }

    /// True if a delivery at a place `is` one of these.
    pub(super) fn has_delivered(&self, place: &str, is: impl Fn(&Delivered) -> bool) -> bool {
        self.delivered.get(place).into_iter().flatten().any(|delivered| is(delivered))
    }

    /// Returns the response to a request.
    pub(super) fn response(&self, request: &str) -> Option<Arc<TeamMessage>> {
        self.responses.get(request).cloned()
    }

    /// True while this message waits for its recipient.
    pub(super) fn waits(&self, message: &TeamMessage) -> bool {
        self.waiting.get(&message.to).is_some_and(|waiting| waiting.iter().any(|it| it.id == message.id))
    }

    /// Notes that a call waits for the response to a request.
    pub(super) fn awaits(&mut self, request: &Arc<str>) {
        *self.awaited.entry(Arc::clone(request)).or_default() += 1;
    }

    /// Notes that it waits no more.
    pub(super) fn awaits_no_more(&mut self, request: &str) {
        if let Some(count) = self.awaited.get_mut(request) {
            *count -= 1;
            if *count == 0 {
                self.awaited.remove(request);
            }
        }
    }

    /// True if whoever got this request waits for an answer of its sender, by way of others too: nobody of them could
    /// ever answer.
    pub(super) fn is_circular(&self, request: &str) -> bool {
        let Some(request) = self.messages.get(request) else { return false };
        let (mut reached, mut next) = (vec![&request.to], 0);
        while let Some(member) = reached.get(next).copied() {
            next += 1;
            if *member == request.from {
                return true;
            }
            let asked = self.awaited.keys().filter_map(|id| self.messages.get(id));
            for of in asked.filter(|it| it.from == *member) {
                if !reached.contains(&&of.to) {
                    reached.push(&of.to);
                }
            }
        }
        false
    }

    /// True if all who work, of whom there are so many, wait for answers, and whoever got this request is none of them:
    /// nobody ends before a wait does, so that nobody begins who could answer.
    pub(super) fn is_vain(&self, request: &str, working: usize) -> bool {
        let Some(request) = self.messages.get(request) else { return false };
        let asked = || self.awaited.keys().filter_map(|id| self.messages.get(id));
        let sessions: HashSet<_> = asked().filter_map(|it| CallId::from(&*it.call).session()).collect();
        sessions.len() >= working && asked().all(|it| it.from != request.to)
    }

    pub(super) fn is_awaited(&self, message: &TeamMessage) -> bool {
        message.kind == MessageKind::Response
            && message.of.as_ref().is_some_and(|of| self.awaited.contains_key(of))
    }
}

#[cfg(test)]
mod tests {
    use entourage_core::tool::Labels;
    use proptest::prelude::*;

    use super::*;

    const IDS: [&str; 4] = ["ann", "bob", "eve", "lead"];

    fn message(number: usize, from: usize, to: usize) -> Arc<TeamMessage> {
        let to = if to < IDS.len() { IDS[to] } else { EVERYONE };
        Arc::new(TeamMessage {
            id: number.to_string().into(),
            call: format!("call {number}").into(),
            from: IDS[from].into(),
            to: to.into(),
            kind: MessageKind::Status,
            text: "Done.".into(),
            of: None,
            labels: Labels::empty(),
        })
    }

    #[derive(Debug, Clone)]
    enum Act {
        Post(usize, usize),
        Take(usize, usize, usize),
        Restart,
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            6 => (0..4_usize, 0..5_usize).prop_map(|(from, to)| Act::Post(from, to)),
            4 => (0..4_usize, 0..3_usize, 1..900_usize).prop_map(|(to, place, most)| Act::Take(to, place, most)),
            1 => Just(Act::Restart),
        ]
    }

    proptest! {
        #[test]
        fn lo09_each_message_arrives_once_and_in_the_order_of_each_pair(
            acts in proptest::collection::vec(act(), 0..120),
        ) {
            let new = || Mailbox::new(IDS.map(Arc::from));
            let (mut mailbox, mut record) = (new(), Vec::new());
            let mut sent: Vec<Arc<TeamMessage>> = Vec::new();
            let mut heard: BTreeMap<&str, Vec<Arc<TeamMessage>>> = BTreeMap::new();
            for act in acts.into_iter().chain((0..4).map(|to| Act::Take(to, 0, usize::MAX))) {
                match act {
                    Act::Post(from, to) => {
                        let message = message(sent.len(), from, to);
                        mailbox.post(&message);
                        record.push(Ok(Arc::clone(&message)));
                        sent.push(message);
                    }
                    Act::Take(to, place, most) => {
                        let messages = mailbox.waiting(IDS[to], most);
                        prop_assert_eq!(mailbox.has_mail(IDS[to]), !messages.is_empty());
                        heard.entry(IDS[to]).or_default().extend(messages.iter().cloned());
                        let messages = messages.iter().map(|message| Arc::clone(&message.id)).collect();
                        let delivered = Delivered::by_prompt(IDS[to], &format!("place {place}"), None);
                        let delivered = Arc::new(Delivered { messages, ..delivered });
                        mailbox.deliver(&delivered);
                        record.push(Err(delivered));
                    }
                    Act::Restart => {
                        mailbox = new();
                        for entry in &record {
                            match entry {
                                Ok(message) => mailbox.post(message),
                                Err(delivered) => mailbox.deliver(delivered),
                            }
                        }
                    }
                }
            }
            for to in IDS {
                let naive: Vec<_> = sent
                    .iter()
                    .filter(|it| &*it.to == to || (&*it.to == EVERYONE && &*it.from != to))
                    .map(|it| &it.id)
                    .collect();
                let heard: Vec<_> = heard.entry(to).or_default().iter().map(|it| &it.id).collect();
                prop_assert_eq!(heard, naive, "{}", to);
            }
        }

        #[test]
        fn lo09_what_an_attempt_was_given_reaches_the_next_one_and_nobody_else(
            steps in proptest::collection::vec((0..8_usize, 0..4_usize, 0..5_usize, 0..900_usize), 0..120),
        ) {
            let new = || Mailbox::new(IDS.map(Arc::from));
            let (mut mailbox, mut record) = (new(), Vec::new());
            let mut sent: Vec<Arc<TeamMessage>> = Vec::new();
            // The place of the newest attempt at each item, and what was read there.
            let mut places: BTreeMap<(usize, usize), Arc<str>> = BTreeMap::new();
            let mut read: BTreeMap<Arc<str>, Vec<Arc<str>>> = BTreeMap::new();
            let last = (0..IDS.len()).map(|to| (7, to, 0, usize::MAX));
            for (kind, of, with, most) in steps.into_iter().chain(last) {
                let delivery = match kind {
                    0..=2 => {
                        let mut message = TeamMessage::clone(&message(sent.len(), of, with));
                        let asked = sent.get(most % sent.len().max(1));
                        let asked = asked.filter(|it| kind == 0 && it.from != message.from);
                        message.of = asked.map(|it| Arc::clone(&it.id));
                        let message = Arc::new(message);
                        mailbox.post(&message);
                        record.push(Ok(Arc::clone(&message)));
                        sent.push(message);
                        continue;
                    }
                    3 | 4 => {
                        let place = Arc::from(format!("place {}", record.len()));
                        if let Some(before) = places.insert((of, with), Arc::clone(&place)) {
                            read.remove(&before);
                        }
                        Delivered::by_prompt(IDS[of], &place, Some(&format!("item {with}")))
                    }
                    5 => match places.get(&(of, with)) {
                        Some(place) => Delivered::by_call((IDS[of], place, &record.len().to_string())),
                        None => continue,
                    },
                    6 => {
                        mailbox = new();
                        for entry in &record {
                            match entry {
                                Ok(message) => mailbox.post(message),
                                Err(delivered) => mailbox.deliver(delivered),
                            }
                        }
                        continue;
                    }
                    _ => Delivered::by_prompt(IDS[of], &format!("end {}", record.len()), None),
                };
                mailbox.begin(&delivery);
                let messages = mailbox.waiting(IDS[of], most);
                // What comes at once is in order: another attempt may have read newer ones before.
                prop_assert!(messages.iter().is_sorted_by_key(|message| message.order()));
                let messages: Vec<_> = messages.iter().map(|message| Arc::clone(&message.id)).collect();
                read.entry(Arc::clone(&delivery.place)).or_default().extend(messages.iter().cloned());
                let delivered = Arc::new(Delivered { messages, ..delivery });
                mailbox.deliver(&delivered);
                record.push(Err(delivered));
            }
            let to_whom = |place: &Arc<str>| record.iter().find_map(|entry| {
                entry.as_ref().err().filter(|it| it.place == *place).map(|it| Arc::clone(&it.to))
            });
            for to in IDS {
                let here = read.iter().filter(|(place, _)| to_whom(place).as_deref() == Some(to));
                let mut here: Vec<_> = here.flat_map(|(_, ids)| ids).collect();
                here.sort();
                let is_its = |it: &&Arc<TeamMessage>| &*it.to == to || (&*it.to == EVERYONE && &*it.from != to);
                let answered = |id: &Arc<str>| sent.iter().any(|it| &*it.from == to && it.of.as_ref() == Some(id));
                let mut due: Vec<_> = sent.iter().filter(is_its).map(|it| &it.id).collect();
                due.retain(|id| !answered(id) || here.contains(id));
                due.sort();
                prop_assert_eq!(here, due, "{}", to);
            }
        }
    }
}
