//! The mailbox of a run: it records what is sent and delivered.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use entourage_core::{
    Error, ErrorKind, Result, SessionId,
    event::{Event, Recorded},
    run::{RunContext, Task},
    tool::Labels,
};
use tokio::sync::Notify;

use super::{Delivered, EVERYONE, LEAD, TeamMessage, labels, mailbox::Mailbox, mark, shown};
use crate::graph::{Beside, GraphControl, with_text};

/// Most messages of one run.
const MOST: usize = 10_000;

/// Most messages that are delivered at once.
const AT_ONCE: usize = 50;

/// The mailbox of a team's run.
pub(crate) struct Room {
    /// The run of the team.
    cx: RunContext,
    control: GraphControl,
    mailbox: Mutex<Mailbox>,
    arrived: Notify,
}

/// Messages for whoever reads them next, and their labels.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    pub(crate) text: String,
    pub(crate) labels: Labels,
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
        Ok(Arc::new(Self { cx: cx.clone(), control, mailbox: Mutex::new(mailbox), arrived: Notify::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, Mailbox> {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the ids of those who can be written to, apart from `sender`.
    pub(super) fn others(&self, sender: &str) -> Vec<Arc<str>> {
        self.lock().recipients().filter(|id| &***id != sender).cloned().collect()
    }

    /// Checks that a message can be sent: its recipient exists, and it answers a request that there was.
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
        if let Some(of) = message.of.as_deref().filter(|of| mailbox.message(of).is_none()) {
            return invalid(format!(
                "there was no request `{of}`; give the id of the message that you answer"
            ));
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
            let message = Arc::new(message);
            let record = Recorded::new::<TeamMessage>(Arc::clone(&message));
            self.cx.effects().append(&self.cx, None, &mut |_, _| Ok(record.clone()))?;
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
        let mut mailbox = self.lock();
        let prompted = |delivered: &Delivered| delivered.call.is_none();
        // No mail is recorded too: what comes later must not be taken for a part of the prompt.
        if !mailbox.has_delivered(place, prompted) {
            let messages = mailbox.waiting(to, AT_ONCE);
            self.hand_out(&mut mailbox, &messages, (to, place, None))?;
        }
        let messages = mailbox.delivered(place, prompted);
        Ok(Mail { text: shown(&messages), labels: labels(&messages) })
    }

    /// Returns what the result of a call brings `to`. When this returns, the delivery is stored.
    ///
    /// # Errors
    /// The store's; an error when the team's run is over.
    pub(super) async fn with_result(&self, to: &str, place: &str, call: &str) -> Result<Mail> {
        let messages = {
            let mut mailbox = self.lock();
            let messages = mailbox.waiting(to, AT_ONCE);
            if messages.is_empty() {
                return Ok(Mail::default());
            }
            self.hand_out(&mut mailbox, &messages, (to, place, Some(call)))?;
            messages
        };
        self.cx.commit().await?;
        Ok(Mail { text: shown(&messages), labels: labels(&messages) })
    }

    fn hand_out(
        &self,
        mailbox: &mut Mailbox,
        messages: &[Arc<TeamMessage>],
        (to, place, call): (&str, &str, Option<&str>),
    ) -> Result<()> {
        let ids = messages.iter().map(|message| Arc::clone(&message.id)).collect();
        let (to, place, call) = (to.into(), place.into(), call.map(Into::into));
        let delivered = Arc::new(Delivered { to, place, call, messages: ids });
        let record = Recorded::new::<Delivered>(Arc::clone(&delivered));
        self.cx.effects().append(&self.cx, None, &mut |_, _| Ok(record.clone()))?;
        mailbox.deliver(&delivered);
        Ok(())
    }

    /// Returns the messages that calls at `place` brought, and that the record of the run there does not show: its
    /// process died in between.
    pub(super) fn lost(&self, place: &str, reader: &RunContext) -> Mail {
        let brought = self.lock().delivered(place, |delivered| delivered.call.is_some());
        if brought.is_empty() {
            return Mail::default();
        }
        let recorded = reader.effects().recorded();
        let results = recorded.iter().filter_map(|event| match event {
            Event::ToolFinished(finished) => Some(finished.result.to_text()),
            _ => None,
        });
        let results: Vec<String> = results.collect();
        let is_lost = |message: &Arc<TeamMessage>| {
            let mark = mark(&message.id);
            !results.iter().any(|result| result.contains(&mark))
        };
        let lost: Vec<_> = brought.into_iter().filter(is_lost).collect();
        Mail { text: shown(&lost), labels: labels(&lost) }
    }

    /// Waits for the response to a request, which the sender gets by this alone while it waits.
    ///
    /// # Errors
    /// Those of [`Room::with_result`].
    pub(super) async fn response(&self, request: &Arc<str>, by: (&str, &str, &str)) -> Result<Mail> {
        self.lock().awaits(request);
        let waits = Waits { room: self, request };
        loop {
            let arrived = self.arrived.notified();
            let response = self.lock().response(request);
            if let Some(response) = response {
                let messages = [response];
                let stored = {
                    let mut mailbox = self.lock();
                    let [response] = &messages;
                    let waits = mailbox.waits(response);
                    if waits {
                        let (to, place, call) = by;
                        self.hand_out(&mut mailbox, &messages, (to, place, Some(call)))?;
                    }
                    waits
                };
                if stored {
                    self.cx.commit().await?;
                }
                drop(waits);
                return Ok(Mail { text: shown(&messages), labels: labels(&messages) });
            }
            arrived.await;
        }
    }
}

impl Beside for Room {
    fn recall(&self, record: &Recorded) -> Result<()> {
        recall(&mut self.lock(), record)
    }

    fn brief(&self, task: Task, agent: &str, child: &SessionId) -> Result<Task> {
        let mail = self.with_prompt(agent, child.as_str())?;
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
