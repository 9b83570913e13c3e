//! Layers around every model call, one file or folder each. A layer turns a provider into a provider.
//!
//! | layer | effect on a call |
//! |---|---|
//! | [`Recorder`], [`Replay`] | records what the caller got, or answers from a recording |
//! | [`ResponseCache`] | answers an equal request from memory |
//! | [`Fallback`] | asks another model if one cannot begin |
//! | [`CredentialRefresh`] | gets a new credential when the current one is refused, once |
//! | [`Retry`] | retries after a temporary failure |
//! | [`RateLimit`] | queues it until the service can take it |
//! | [`Timeout`] | ends it when the model is silent or slow |
//! | [`BudgetLayer`] | reserves what it may cost, and settles what it cost |
//! | [`Check`] | checks the stream against its contract |
//!
//! # Order
//! The table goes from the outside in: the first layer is asked first.
//! [`Model::layer`](entourage_core::provider::Model::layer) wraps the layers that are there, so a chain of calls reads
//! from the last row up. Leave out what you do not need; the others keep their places, for these reasons:
//!
//! 1. **Record and replay** outermost: a replay then needs nothing below it, no key, no wait and no budget.
//! 2. **Cache** outside all layers that wait or pay: a hit costs nothing and takes no slot.
//! 3. **Fallback** around one stack for each of its models: the next model is asked once this one's retries are used
//!    up.
//! 4. **Refresh** outside retry: the second pass has all its retries, and a call refreshes at most once.
//! 5. **Retry** outside all that belongs to one attempt: its slot, its timeout, its reservation.
//! 6. **Rate limit** inside retry, so that each request counts and a call that backs off holds no slot; outside the
//!    timeout, since a wait for a slot is not the model's silence.
//! 7. **Timeout** inside retry: a stalled attempt is retried. To bound a call as a whole, waits included, put a second
//!    one around all layers, with [`Timeout::with_total`] alone: retry is told of it and begins no attempt that could
//!    not end in time.
//! 8. **Budget** next to the provider: one request is reserved and settled at a time.
//! 9. **Check** innermost: it judges the provider, not the layers.
//!
//! The same layers in another order compile, and do this:
//!
//! | wrong | effect |
//! |---|---|
//! | first-delta or idle timeout outside retry | a wait between attempts counts as a silent model, and a stalled attempt ends the call |
//! | retry outside refresh | each attempt may refresh again, and the second pass has only the remaining retries |
//! | retry outside fallback | a short outage moves the call to another model, and a retry begins with the failed one again |
//! | rate limit outside retry | several requests count as one, and a call keeps its slot while it backs off |
//! | one rate limit twice in a stack | each call waits for the slot that it holds, until the limit's own time is up |
//! | timeout outside rate limit | a full queue counts as a silent model |
//! | budget outside retry | one reservation serves several attempts |
//! | budget outside cache | a cached reply reserves money, counts as a call, and is refused when the budget is used up |
//! | check outside retry | a retry hides the broken stream that the check should have found |
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
//! use std::time::Duration;
//! use entourage_core::{ErrorKind, provider::FinishReason};
//! use entourage_runners::ReactAgent;
//! use entourage_runtime::{AgentExt, layers::{Check, Retry, Timeout}};
//! use entourage_testkit::{Script, ScriptedProvider};
//!
//! let stalls = || Script::new().text("Hel").delay(Duration::from_secs(600)).finish(FinishReason::Stop);
//! let timeout = Timeout::new().with_idle(Duration::from_secs(30));
//!
//! // Right: from the inside out. The stalled attempt is void, and another one follows.
//! let service = ScriptedProvider::new().step(stalls()).text("Hello!");
//! let model = service.model().layer(Check::new()).layer(timeout).layer(Retry::new());
//! let agent = ReactAgent::builder("a", model).build().unwrap();
//! assert_eq!(agent.ask("Hello?").await.unwrap(), "Hello!");
//!
//! // Wrong: the timeout ends the call, retries included.
//! let service = ScriptedProvider::new().step(stalls());
//! let model = service.model().layer(Check::new()).layer(Retry::new()).layer(timeout);
//! let agent = ReactAgent::builder("a", model).build().unwrap();
//! assert_eq!(agent.ask("Hello?").await.unwrap_err().kind(), ErrorKind::Timeout);
//! # });
//! ```
//!
//! # Writing one
//! Keep the contract of [`Provider`](entourage_core::provider::Provider): pass deltas on as they come, send
//! [`Delta::Restart`](entourage_core::provider::Delta) before another attempt, drop the inner stream as soon as it is
//! of no use, and keep the inner provider's name.

mod attempt;
mod budget;
mod cache;
mod check;
mod estimate;
mod fallback;
mod forecast;
mod rate_limit;
mod record;
mod refresh;
mod retry;
mod tally;
mod timeout;

pub use budget::BudgetLayer;
pub use cache::{CacheStats, ResponseCache};
pub use check::Check;
pub use fallback::{Fallback, FallbackStats, ModelChoice, ModelUsage, Tier, UsageReport};
pub use forecast::Forecast;
pub use rate_limit::{Priority, RateLimit, RateLimitBuilder};
pub use record::{Recorder, Replay};
pub use refresh::{CredentialRefresh, Refresh};
pub use retry::Retry;
pub use timeout::Timeout;
