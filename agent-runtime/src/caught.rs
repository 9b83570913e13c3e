//! Panics of the program's code, caught: while it is called, while it is polled, when it is dropped, and when the
//! payload of the panic is dropped.

use std::{
    any::Any,
    fmt,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::future::BoxFuture;

/// Calls code of the program, `run`.
///
/// # Errors
/// The text of its panic.
pub fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(panic_text)
}

/// Drops `value`. A panic in its drop goes no further; the process's panic hook reports it.
pub(crate) fn drop_caught<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        // Its drop may panic in turn, and so may that panic's payload: leaking it is the one way that ends.
        let _leaked: &mut _ = Box::leak(payload);
    }
}

/// Returns the text of a panic, and drops its payload.
pub(crate) fn panic_text(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("no message").to_owned();
    drop_caught(payload);
    text
}

/// A future of the program whose panics are its output: in its making, in its polls, and none in its drop.
pub struct Caught<'a, T>(State<'a, T>);

enum State<'a, T> {
    Running(BoxFuture<'a, T>),
    /// Its making panicked with this text.
    Unmade(String),
    Over,
}

impl<'a, T> Caught<'a, T> {
    /// Calls `make`, and keeps its future.
    pub fn new(make: impl FnOnce() -> BoxFuture<'a, T>) -> Self {
        Self(caught(make).map_or_else(State::Unmade, State::Running))
    }
}

impl<T> Future for Caught<'_, T> {
    /// The error is the text of the panic.
    type Output = Result<T, String>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Running(future) = &mut self.0 {
            let ended = match caught(|| future.as_mut().poll(task)) {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(output)) => Ok(output),
                Err(text) => Err(text),
            };
            drop_caught(std::mem::replace(&mut self.0, State::Over));
            return Poll::Ready(ended);
        }
        match std::mem::replace(&mut self.0, State::Over) {
            State::Unmade(text) => Poll::Ready(Err(text)),
            State::Running(_) | State::Over => Poll::Pending,
        }
    }
}

impl<T> Drop for Caught<'_, T> {
    fn drop(&mut self) {
        drop_caught(std::mem::replace(&mut self.0, State::Over));
    }
}

impl<T> fmt::Debug for Caught<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Caught")
    }
}
