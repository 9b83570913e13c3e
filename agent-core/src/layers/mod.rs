//! What happens around every model call, one file each: a layer turns a provider into a provider.
//!
//! | layer | what it does to a call |
//! |---|---|
//! | [`Recorder`], [`Replay`] | writes down what the caller got, or answers from what was written |
//! | [`ResponseCache`] | answers an equal request without asking again |
//! | [`Fallback`] | asks another model when one cannot begin |
//! | [`CredentialRefresh`] | gets a new credential when the one in use is refused, once |
//! | [`Retry`] | asks again after a failure that may pass |
//! | [`RateLimit`] | lets it wait until the service can take it |
//! | [`Timeout`] | ends it when the model is silent or slow |
//! | [`BudgetLayer`] | sets aside what it may cost, and settles what it cost |
//! | [`Check`] | holds the stream to its contract |
//!
//! # Order
//! The table goes from the outside in: the first layer is asked first. [`Model::layer`](crate::provider::Model::layer)
//! wraps what is there, so a chain of calls reads from the last row up. Leave out what you do not need; the others keep
//! their places, for these reasons:
//!
//! 1. **Record and replay** outermost: a replay then needs nothing below it, no key, no wait and no budget.
//! 2. **Cache** before all that waits or pays: a hit costs nothing and takes no turn.
//! 3. **Fallback** around one stack for each of its models: the next is asked once this one's retries are used up.
//! 4. **Refresh** outside retry: the second pass has all its retries, and a call refreshes once whatever happens.
//! 5. **Retry** outside all that belongs to one attempt: its turn, its time, its money.
//! 6. **Rate limit** inside retry, so that each request counts and a call that waits to try again keeps nobody out;
//!    outside the timeout, because waiting for a turn is not the model's silence.
//! 7. **Timeout** inside retry: an attempt that stalls is tried again. To bound a call as a whole, its waits included,
//!    put a second one around all, with [`Timeout::total`] alone: retry is told of it and begins nothing that could
//!    not end in time.
//! 8. **Budget** next to the provider: what is set aside and settled is what one request costs.
//! 9. **Check** innermost: it judges the provider, not the layers.
//!
//! The same layers in another order compile, and do this:
//!
//! | wrong | what goes wrong |
//! |---|---|
//! | first-delta or idle timeout outside retry | a wait between attempts is taken for a silent model, and a stalled attempt ends the call |
//! | retry outside refresh | each attempt may refresh again, and the second pass has only the retries that are left |
//! | retry outside fallback | a short outage moves the call to another model, and a retry begins with the failed one again |
//! | rate limit outside retry | several requests count as one, and a call keeps its turn while it waits |
//! | timeout outside rate limit | a full queue is taken for a silent model |
//! | budget outside retry | one attempt is set aside for several |
//! | budget outside cache | a played reply reserves money, counts as a call, and is refused when the budget is used up |
//! | check outside retry | a retry hides the broken stream that it should have found |
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
//! use std::time::Duration;
//! use entourage_core::{
//!     ErrorKind, agent::ReactAgent, layers::{Check, Retry, Timeout}, provider::FinishReason,
//!     testkit::{Script, ScriptedProvider},
//! };
//!
//! let stalls = || Script::new().text("Hel").delay(Duration::from_secs(600)).finish(FinishReason::Stop);
//! let timeout = Timeout::new().idle(Duration::from_secs(30));
//!
//! // Right: from the inside out. The stalled attempt is void, and another one follows.
//! let service = ScriptedProvider::new().step(stalls()).text("Hello!");
//! let model = service.model().layer(Check::new()).layer(timeout).layer(Retry::new());
//! let agent = ReactAgent::builder("a", model).build().unwrap();
//! assert_eq!(agent.ask("Hello?").await.unwrap(), "Hello!");
//!
//! // Wrong: nobody is left who could try again.
//! let service = ScriptedProvider::new().step(stalls());
//! let model = service.model().layer(Check::new()).layer(Retry::new()).layer(timeout);
//! let agent = ReactAgent::builder("a", model).build().unwrap();
//! assert_eq!(agent.ask("Hello?").await.unwrap_err().kind(), ErrorKind::Timeout);
//! # });
//! ```
//!
//! # Writing one
//! Keep the contract of [`Provider`]: hand on what comes as it comes, say [`Delta::Restart`](crate::provider::Delta)
//! before asking anew, drop the inner stream as soon as it is of no use, and keep the inner provider's name.

mod attempt;
mod budget;
mod cache;
mod check;
mod fallback;
mod rate_limit;
mod record;
mod refresh;
mod retry;
mod tally;
mod timeout;

pub(crate) use budget::{Account, reply_charge};
pub use budget::{Budget, BudgetLayer, BudgetLimits, BudgetState, Charge, Exhausted, Reservation, Spend};
pub use cache::{CacheStats, ResponseCache};
pub use check::Check;
pub use fallback::{Fallback, FallbackStats, ModelChoice, ModelUsage, Tier, UsageReport};
pub use rate_limit::{Priority, RateLimit, RateLimitBuilder};
pub use record::{Recorder, Replay};
pub use refresh::{CredentialRefresh, Refresh};
pub use retry::Retry;
pub use timeout::Timeout;

use std::sync::Arc;

use crate::provider::Provider;

/// Wraps a provider in behaviour. A closure from provider to provider is a layer.
pub trait Layer {
    /// `inner` with this behaviour around it.
    fn layer(self, inner: Arc<dyn Provider>) -> Arc<dyn Provider>;
}

impl<F: FnOnce(Arc<dyn Provider>) -> Arc<dyn Provider>> Layer for F {
    fn layer(self, inner: Arc<dyn Provider>) -> Arc<dyn Provider> {
        self(inner)
    }
}
