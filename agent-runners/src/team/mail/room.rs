//! The mailbox of a run: it records what is sent and delivered.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use entourage_core::{
    Error, ErrorKind, Result,
    event::{Event, Recorded},
    run::{RunContext, Task},
    session::SessionState,
    tool::Labels,
};
use serde_json::Value;
use tokio::sync::Notify;

use super::{
    Delivered, EVERYONE, LEAD, MessageKind, TeamMessage, labels,
    mailbox::{Brought, Mailbox},
    shown,
};
use crate::graph::{Attempting, Beside, GraphControl, with_text};

/// Most messages of one run.
const MOST: usize = 10_000;

/// Most bytes of messages that are delivered at once: a result that is cut keeps this much of its end.
const AT_ONCE: usize = 32 * 1024;

/// Name of the note of the messages that a result shows, in its data for programs.
pub(super) const RECEIPT: &str = "entourage.mail";

/// Most bytes of messages that the lead reads when the work is over.
const AT_END: usize = 256 * 1024;

/// Time after which a call that waits looks whether it waits in vain, or the run is to pause.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// The reason for which a call waits no longer for a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// It waited enough.
    Enough,
    /// Whoever is asked waits for the sender.
    Circular,
    /// All who work wait, and whoever is asked is none of them.
    Vain,
}

/// The mailbox of a team's run.
pub(crate) struct Room {
    /// The run of the team.
    cx: RunContext,
    control: GraphControl,
    mailbox: Mutex<Mailbox>,
    /// What calls of an earlier process brought, by place: their results may not be stored.
    earlier: Mutex<HashMap<Arc<str>, Brought>>,
    arrived: Notify,
}

/// Messages for whoever reads them next, and their labels.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    pub(crate) text: String,
    pub(crate) labels: Labels,
}

impl Mail {
    /// Adds the messages to a prompt of the lead.
    pub(crate) fn tell(&self, prompt: &mut String) {
        if !self.text.is_empty() {
            // Writing to a string cannot fail.
            let _ = write!(prompt, "\n\nThere are messages for you:\n\n{}", self.text);
        }
    }
}

impl Room {
    /// Opens the mailbox with all that the run recorded.
    ///
    /// # Errors
    /// Those of a record that cannot be read.
    pub(crate) fn open(
        members: impl IntoIterator<Item = Arc<str>>,
        control: GraphControl,
        cx: &RunContext,
    ) -> Result<Arc<Self>> {
        let mut mailbox = Mailbox::new(members.into_iter().chain([LEAD.into()]));
        for record in cx.records("team") {
            recall(&mut mailbox, &record)?;
        }
        let earlier = Mutex::new(mailbox.brought());
        let mailbox = Mutex::new(mailbox);
        Ok(Arc::new(Self { cx: cx.clone(), control, mailbox, earlier, arrived: Notify::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, Mailbox> {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the ids of those who can be written to, apart from `sender`.
    pub(super) fn others(&self, sender: &str) -> Vec<Arc<str>> {
        self.lock().recipients().filter(|id| &***id != sender).cloned().collect()
    }

    /// Checks that a message can be sent: its recipient exists, and what it answers was asked of its sender by its
    /// recipient.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`], in words for a model.
    pub(super) fn check(&self, message: &TeamMessage) -> Result<()> {
        let mailbox = self.lock();
        let known = &*message.to == EVERYONE || mailbox.recipients().any(|id| *id == message.to);
        let invalid = |text: String| Err(Error::new(ErrorKind::InvalidInput, text));
        if !known {
            let others = mailbox.recipients().filter(|id| **id != message.from).map(AsRef::as_ref);
            let ids: Vec<_> = others.chain([EVERYONE]).collect();
            return invalid(format!("there is no `{}`; write to one of {}", message.to, ids.join(", ")));
        }
        if let Some(of) = message.of.as_deref() {
            let asked = |request: &&Arc<TeamMessage>| {
                let to_all = &*request.to == EVERYONE && request.from != message.from;
                request.kind == MessageKind::Request && (to_all || request.to == message.from)
            };
            match mailbox.message(of).filter(asked) {
                None => {
                    let text = "give the id of the message that you answer";
                    return invalid(format!("there was no request `{of}` to you; {text}"));
                }
                Some(request) if request.from != message.to => {
                    let (asker, to) = (&request.from, &message.to);
                    let text = format!("`{of}` was asked by `{asker}` and not by `{to}`; answer `{asker}`");
                    return invalid(text);
                }
                Some(_) => {}
            }
        }
        if mailbox.count() >= MOST && mailbox.sent(&message.call).is_none() {
            return invalid(format!("{MOST} messages were sent, which is the most; go on without"));
        }
        Ok(())
    }

    /// Sends a message, gives it an id and returns that. When this returns, it is stored. One that was sent before, by
    /// the same call, is not sent again.
    ///
    /// # Errors
    /// The store's; an error when the team's run is over.
    pub(super) async fn post(&self, mut message: TeamMessage) -> Result<Arc<str>> {
        let id = {
            let mut mailbox = self.lock();
            if let Some(id) = mailbox.sent(&message.call) {
                return Ok(Arc::clone(id));
            }
            message.id = format!("m{}", mailbox.count().saturating_add(1)).into();
            let message = self.cx.append_with(|_, _| Ok(message))?;
            mailbox.post(&message);
            Arc::clone(&message.id)
        };
        self.cx.commit().await?;
        self.arrived.notify_waiters();
        if self.lock().has_mail(LEAD) {
            // The graph may be over; the lead reads what is left then.
            drop(self.control.call_supervisor().await);
        }
        Ok(id)
    }

    /// Returns what a prompt brings `to`, who reads it at `place`: what waits when it is first made, and the same
    /// whenever it is made again.
    ///
    /// # Errors
    /// An error when the team's run is over.
    pub(crate) fn with_prompt(&self, to: &str, place: &str) -> Result<Mail> {
        self.prompted(Delivered::by_prompt(to, place, None), AT_ONCE)
    }

    /// Returns what is left for the lead when the work is over.
    ///
    /// # Errors
    /// An error when the team's run is over.
    pub(crate) fn at_end(&self, place: &str) -> Result<Mail> {
        let mut mail = self.prompted(Delivered::by_prompt(LEAD, place, None), AT_END)?;
        match self.lock().left(LEAD) {
            0 => {}
            left => mail.text += &format!("\n({left} later messages are left out)"),
        }
        Ok(mail)
    }

    fn prompted(&self, delivery: Delivered, bytes: usize) -> Result<Mail> {
        let mut mailbox = self.lock();
        let place = Arc::clone(&delivery.place);
        let prompted = |delivered: &Delivered| delivered.call.is_none();
        // No mail is recorded too: what comes later must not be taken for a part of the prompt.
        if !mailbox.has_delivered(&place, prompted) {
            mailbox.begin(&delivery);
            let messages = mailbox.waiting(&delivery.to, bytes);
            self.hand_out(&mut mailbox, &messages, delivery)?;
        }
        let messages = mailbox.delivered(&place, prompted);
        Ok(Mail { text: shown(&messages), labels: labels(&messages) })
    }

    /// Returns what the result of a call brings: what waits, after what an earlier process delivered here and did not
    /// store. When this returns, the delivery is stored. `by` is the recipient, its session and the call.
    ///
    /// # Errors
    /// The store's; an error when the team's run is over.
    pub(super) async fn with_result(&self, by: (&str, &str, &str), reader: &RunContext) -> Result<Mail> {
        let (to, place, call) = by;
        let messages = {
            let mut messages = self.lost(place, call, reader);
            let mut mailbox = self.lock();
            messages.extend(mailbox.waiting(to, AT_ONCE));
            if messages.is_empty() {
                return Ok(Mail::default());
            }
            // An earlier try of the same call was given some of them.
            let given = mailbox.delivered(place, |it| it.call.as_deref() == Some(call));
            let is_new = |message: &&Arc<TeamMessage>| given.iter().all(|it| it.id != message.id);
            let new: Vec<_> = messages.iter().filter(is_new).cloned().collect();
            if !new.is_empty() {
                self.hand_out(&mut mailbox, &new, Delivered::by_call(by))?;
            }
            messages
        };
        self.cx.commit().await?;
        Ok(Mail { text: shown(&messages), labels: labels(&messages) })
    }

    fn hand_out(
        &self,
        mailbox: &mut Mailbox,
        messages: &[Arc<TeamMessage>],
        mut delivery: Delivered,
    ) -> Result<()> {
        delivery.messages = messages.iter().map(|message| Arc::clone(&message.id)).collect();
        mailbox.deliver(&self.cx.append_with(|_, _| Ok(delivery))?);
        Ok(())
    }

    /// Returns the messages that calls of an earlier process brought `place`, and that no stored result has a receipt
    /// of: that process died in between. The texts of results prove nothing, since any page can forge a message.
    fn lost(&self, place: &str, call: &str, reader: &RunContext) -> Vec<Arc<TeamMessage>> {
        let Some(brought) = self.earlier().remove(place) else { return Vec::new() };
        let recorded = reader.effects().recorded();
        let receipts = recorded.iter().filter_map(|event| match event {
            Event::ToolFinished(finished) => finished.metadata.as_ref()?.get(RECEIPT)?.as_array(),
            _ => None,
        });
        let known: HashSet<&str> = receipts.flatten().filter_map(Value::as_str).collect();
        let window = reader.read(SessionState::run_window);
        // What was recorded before the window of a resumed run was settled by then; a call that runs again was not.
        let settled = |by: &str| by != call && seq_of(by).is_some_and(|seq| seq < window);
        let mailbox = self.lock();
        let lost = brought.iter().filter(|(id, by)| !known.contains(id.as_ref()) && !settled(by));
        let lost = lost.filter_map(|(id, _)| mailbox.message(id));
        // A call that waits for a response brings that itself.
        let mut lost: Vec<_> = lost.filter(|message| !mailbox.is_awaited(message)).cloned().collect();
        lost.sort_by(|one, other| one.order().cmp(&other.order()));
        lost
    }

    /// Returns the ids of the messages that a call brought.
    pub(super) fn brought_by(&self, place: &str, call: &str) -> Vec<Arc<str>> {
        let of = |delivered: &Delivered| delivered.call.as_deref() == Some(call);
        self.lock().delivered(place, of).iter().map(|message| Arc::clone(&message.id)).collect()
    }

    fn earlier(&self) -> MutexGuard<'_, HashMap<Arc<str>, Brought>> {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the response to a request, which the sender gets by this alone while it waits; until `enough` ends,
    /// and not where nobody could answer.
    ///
    /// # Errors
    /// Those of [`Room::with_result`].
    pub(super) async fn response(
        &self,
        request: &Arc<str>,
        by: (&str, &str, &str),
        enough: impl Future<Output = ()>,
    ) -> Result<Result<Mail, Unanswered>> {
        let is_circular = {
            let mut mailbox = self.lock();
            mailbox.awaits(request);
            mailbox.response(request).is_none() && mailbox.is_circular(request)
        };
        let waits = Waits { room: self, request };
        let in_vain = self.in_vain(request);
        tokio::pin!(enough, in_vain);
        let response = loop {
            let arrived = self.arrived.notified();
            if let Some(response) = self.lock().response(request) {
                break response;
            }
            if is_circular {
                return Ok(Err(Unanswered::Circular));
            }
            tokio::select! {
                biased;
                () = arrived => {}
                () = &mut enough => return Ok(Err(Unanswered::Enough)),
                () = &mut in_vain => return Ok(Err(Unanswered::Vain)),
            }
        };
        // What is handed out is never dropped: no time limit from here on.
        self.hand_over(&response, by).await?;
        drop(waits);
        let messages = [response];
        Ok(Ok(Mail { text: shown(&messages), labels: labels(&messages) }))
    }

    /// Ends once nobody who could answer a request begins before a wait ends.
    async fn in_vain(&self, request: &str) {
        let mut before = false;
        // At a single look somebody may be about to begin.
        loop {
            tokio::time::sleep(LOOK).await;
            let working = self.control.working().await;
            let now = working.is_ok_and(|working| self.lock().is_vain(request, working));
            if now && before {
                return;
            }
            before = now;
        }
    }

    async fn hand_over(&self, response: &Arc<TeamMessage>, by: (&str, &str, &str)) -> Result<()> {
        let is_new = {
            let mut mailbox = self.lock();
            let is_new = mailbox.waits(response);
            if is_new {
                let messages = [Arc::clone(response)];
                self.hand_out(&mut mailbox, &messages, Delivered::by_call(by))?;
            }
            is_new
        };
        if is_new {
            return self.cx.commit().await;
        }
        // The same call of an earlier process was given it.
        if let Some(brought) = self.earlier().get_mut(by.1) {
            brought.remove(&response.id);
        }
        Ok(())
    }
}

impl Beside for Room {
    fn recall(&self, record: &Recorded) -> Result<()> {
        recall(&mut self.lock(), record)
    }

    fn brief(&self, task: Task, attempt: Attempting<'_>) -> Result<Task> {
        let Attempting { node, agent, child, .. } = attempt;
        let mail = self.prompted(Delivered::by_prompt(agent, child.as_str(), Some(node)), AT_ONCE)?;
        Ok(match mail.text.as_str() {
            "" => task,
            text => {
                let labels = task.labels | mail.labels;
                with_text(task, text).with_labels(labels)
            }
        })
    }

    fn is_calling(&self) -> bool {
        self.lock().has_mail(LEAD)
    }
}

/// A call that waits for a response.
struct Waits<'a> {
    room: &'a Room,
    request: &'a str,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.room.lock().awaits_no_more(self.request);
    }
}

/// Returns the number of the event that a call's id names.
fn seq_of(call: &str) -> Option<u64> {
    call.rsplit_once("$$")?.0.rsplit_once('.')?.1.parse().ok()
}

fn recall(mailbox: &mut Mailbox, record: &Recorded) -> Result<()> {
    if let Some(message) = record.get::<TeamMessage>()? {
        mailbox.post(&message);
    } else if let Some(delivered) = record.get::<Delivered>()? {
        mailbox.deliver(&delivered);
    }
    Ok(())
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Room").field("session", self.cx.session()).finish_non_exhaustive()
    }
}
