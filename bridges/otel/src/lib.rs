//! The shortest way from Entourage's runs to an OpenTelemetry collector.
//!
//! [`Otlp`] takes spans to a collector as OTLP over HTTP with protobuf, in batches, from threads of its own. It sets
//! nothing global: give [`Otlp::subscriber`] to [`Spans`](entourage_runtime::telemetry::Spans), or put [`Otlp::layer`]
//! into a subscriber of yours.

mod client;
mod exporter;

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use entourage_core::{Error, ErrorKind, Result};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    trace::{BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider},
};
use secrecy::{ExposeSecret, SecretString};
use tracing::{Dispatch, Subscriber};
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::{Registry, layer::SubscriberExt, registry::LookupSpan};

use crate::{
    client::Client,
    exporter::{Exporter, Losses},
};

/// Most spans that wait to be sent; further ones are dropped.
const QUEUE: usize = 8_192;
const BATCH: usize = 512;

/// Exports spans to a collector.
///
/// # Lost spans
/// Spans are sent every second, or when 512 wait. [`Otlp::shutdown`] sends the rest. A drop does so too, within at
/// most one second. Lost are spans that the collector does not take in that time, and spans that wait when the process
/// is killed. While the collector is down or slow, at most 8,192 spans wait and further ones are dropped; runs never
/// wait for it.
///
/// ```
/// use entourage_runtime::{Runtime, telemetry::Spans};
/// use entourage_otel::Otlp;
///
/// # fn main() -> entourage_core::Result<()> {
/// let otlp = Otlp::builder("http://127.0.0.1:4318").service_name("my-agents").build()?;
/// let runtime = Runtime::builder().observer(Spans::new().to(otlp.subscriber())).build();
/// // … and at the program's end:
/// # drop(runtime);
/// otlp.shutdown()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping it ends the export"]
pub struct Otlp {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    losses: Losses,
    patience: Duration,
}

impl Otlp {
    /// Builds an exporter to the collector at this address, such as `http://127.0.0.1:4318`. `/v1/traces` is added
    /// unless the address ends with it.
    pub fn builder(endpoint: impl Into<String>) -> OtlpBuilder {
        OtlpBuilder {
            endpoint: endpoint.into(),
            service: "entourage".to_owned(),
            headers: Vec::new(),
            timeout: Duration::from_secs(10),
        }
    }

    /// A subscriber that only exports, for [`Spans::to`](entourage_runtime::telemetry::Spans::to).
    #[must_use]
    pub fn subscriber(&self) -> Dispatch {
        Dispatch::new(Registry::default().with(self.layer()))
    }

    /// The export as a layer for an existing subscriber. It exports all spans that reach it, other crates' included;
    /// add a filter for the target `entourage` to export only those.
    #[must_use]
    pub fn layer<S>(&self) -> OpenTelemetryLayer<S, SdkTracer>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        tracing_opentelemetry::layer()
            .with_tracer(self.tracer.clone())
            // Attributes say what a span is about; these would describe this library's own code.
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_target(false)
            .with_level(false)
    }

    /// Sends waiting spans and blocks until they are sent, for at most the time of one request. On a tokio runtime,
    /// call it in `spawn_blocking` if other tasks have to continue meanwhile.
    ///
    /// # Errors
    /// [`ErrorKind::Transport`] when the collector did not take these spans, or others since the last call: they are
    /// lost.
    pub fn flush(&self) -> Result<()> {
        let sent = self.provider.force_flush();
        told(sent.map_err(|error| error.to_string()), &self.losses)
    }

    /// Sends waiting spans and ends the export; spans that end later are dropped. Blocks for at most the time of one
    /// request (see [`OtlpBuilder::timeout`]).
    ///
    /// # Errors
    /// [`ErrorKind::Transport`] when the collector did not take the spans in that time, or others since the last
    /// [`Otlp::flush`]: they are lost.
    pub fn shutdown(mut self) -> Result<()> {
        let patience = self.patience;
        // The drop that follows has nothing to do.
        self.patience = Duration::ZERO;
        let sent = self.provider.shutdown_with_timeout(patience);
        told(sent.map_err(|error| error.to_string()), &self.losses)
    }
}

/// The result of an attempt to send what waits, with the batches that were lost in the background before it.
fn told(sent: Result<(), String>, losses: &Losses) -> Result<()> {
    match (sent, losses.take()) {
        (Ok(()), None) => Ok(()),
        (Err(cause), None) => Err(not_sent(&cause)),
        (_, Some((spans, cause))) => Err(not_sent(&cause).with("spans", spans.to_string())),
    }
}

impl Drop for Otlp {
    fn drop(&mut self) {
        if !self.patience.is_zero() {
            let patience = self.patience.min(Duration::from_secs(1));
            // If this fails, nobody is left to tell.
            drop(self.provider.shutdown_with_timeout(patience));
        }
    }
}

impl fmt::Debug for Otlp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Otlp").finish_non_exhaustive()
    }
}

fn not_sent(why: &str) -> Error {
    Error::new(
        ErrorKind::Transport,
        "the collector did not take all spans; is it there, and is its address right?",
    )
    .with("cause", why)
}

/// Builds an [`Otlp`].
#[must_use = "a builder does nothing until `build`"]
pub struct OtlpBuilder {
    endpoint: String,
    service: String,
    headers: Vec<(String, SecretString)>,
    timeout: Duration,
}

impl OtlpBuilder {
    /// Name of the program in traces. Default `entourage`.
    pub fn service_name(mut self, name: impl Into<String>) -> Self {
        self.service = name.into();
        self
    }

    /// Adds a header to every request, such as a key. Its value is never shown.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), SecretString::from(value.into())));
        self
    }

    /// Longest time for one request, at least 1 ms. Default 10 seconds.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = time.max(Duration::from_millis(1));
        self
    }

    /// Starts the export. The collector is not contacted yet, so it may start later.
    ///
    /// The exporter below reads `OTEL_EXPORTER_OTLP_HEADERS`, `…_TIMEOUT` and `…_COMPRESSION` from the environment.
    /// Settings made here take precedence, except that headers of the environment are added.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an address that is no HTTP address, a header that cannot be one, or when no thread can
    /// be started.
    pub fn build(self) -> Result<Otlp> {
        let endpoint = self.traces()?;
        let mut headers = HashMap::new();
        for (name, value) in &self.headers {
            client::check_header(name, value)?;
            headers.insert(name.clone(), value.expose_secret().to_owned());
        }
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_http_client(Client::new(self.timeout)?)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(endpoint)
            .with_timeout(self.timeout)
            .with_headers(headers)
            .build()
            .map_err(|error| {
                Error::new(ErrorKind::Config, "the export cannot be set up").with("cause", error.to_string())
            })?;
        let losses = Losses::default();
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE)
            .with_max_export_batch_size(BATCH)
            .with_scheduled_delay(Duration::from_secs(1))
            .build();
        let processor = BatchSpanProcessor::builder(Exporter::new(exporter, losses.clone()))
            .with_batch_config(batches)
            .build();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(processor)
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)))
            .with_resource(Resource::builder_empty().with_service_name(self.service).build())
            .build();
        let tracer = provider.tracer("entourage");
        Ok(Otlp { provider, tracer, losses, patience: self.timeout })
    }

    fn traces(&self) -> Result<String> {
        let refused = |why: &str| {
            let text = "the collector's address is an http or https one, such as http://127.0.0.1:4318";
            Error::new(ErrorKind::Config, text).with("cause", why)
        };
        let url = reqwest::Url::parse(&self.endpoint).map_err(|error| refused(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(refused("another scheme"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refused("a name or password in it; send it as a header"));
        }
        let path = self.endpoint.trim_end_matches('/');
        Ok(if path.ends_with("/v1/traces") { path.to_owned() } else { format!("{path}/v1/traces") })
    }
}

impl fmt::Debug for OtlpBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Arc<[&str]> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("OtlpBuilder")
            .field("service", &self.service)
            .field("headers", &headers)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
