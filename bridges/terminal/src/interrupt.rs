//! Ctrl-C between runs. Whoever follows a run hears it from then on, in place of the system that would end the process;
//! so a question that is asked between two runs has to hear it as well.

use tokio::sync::watch;

/// Ctrl-C, as far as no run has it.
#[derive(Debug, Default)]
pub(crate) struct Interrupts(watch::Sender<State>);

#[derive(Debug, Default)]
struct State {
    /// Number of runs that are followed.
    followed: usize,
    /// True once the process does not end by itself at Ctrl-C.
    is_heard: bool,
}

impl Interrupts {
    /// Gives Ctrl-C to whoever follows a run, until the value is dropped.
    pub(crate) fn follow(&self) -> Followed<'_> {
        self.0.send_modify(|state| {
            state.followed += 1;
            state.is_heard = true;
        });
        Followed(self)
    }

    /// Completes at a Ctrl-C that no run has. Never where it ends the process.
    pub(crate) async fn pressed(&self) {
        // An error cannot be: this value has the sender.
        let _ = self.0.subscribe().wait_for(|state| state.is_heard).await;
        while tokio::signal::ctrl_c().await.is_ok() {
            if self.0.borrow().followed == 0 {
                return;
            }
        }
        // There is no way to hear of it.
        std::future::pending::<()>().await;
    }
}

/// A run that is followed.
#[derive(Debug)]
pub(crate) struct Followed<'a>(&'a Interrupts);

impl Drop for Followed<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|state| state.followed -= 1);
    }
}
