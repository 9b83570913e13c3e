//! A wire on a connection: the base of every provider in this crate.
//!
//! A wire encodes requests and decodes replies, both without I/O; the service here sends the requests and reads the
//! replies. Nothing here knows a wire's JSON.

use std::{fmt, sync::Arc};

use entourage_core::{
    Result,
    message::History,
    provider::{CallContext, Delta, DeltaStream, Model, Profile, Request, Warning},
    tool::ToolSpec,
};

use crate::{
    body::KeptTools,
    http::{Endpoint, Failing, Protocol, Settings, Target},
    models::DefaultModel,
    stream::{Decode, Deltas},
};

use crate::models::DEFAULT_MODEL;

/// A wire protocol, with the particulars of one service that speaks it.
pub(crate) trait Wire: fmt::Debug + Send + Sync + Sized + 'static {
    /// The wire's name: in opaque parts, in signatures and in recordings.
    const NAME: &'static str;

    /// True, each for itself, if prompt tokens exclude cached ones, and if reply tokens exclude reasoning.
    const COUNTS_APART: (bool, bool) = (false, false);

    /// The decoder of one reply.
    type Decoder: Decode + Send + Unpin + 'static;

    /// Path of the service's list of models, if a default model can be chosen from it.
    const MODELS: Option<&'static [&'static str]>;

    /// The address of a request.
    fn address(&self, request: &Request) -> Address;

    /// The tools as JSON items joined by commas. They seldom change between calls, so their bytes are kept.
    fn encode_tools(&self, tools: &[ToolSpec], strict: bool) -> Vec<u8>;

    /// The whole body, with warnings about settings that it cannot express. `tools` comes from [`Wire::encode_tools`];
    /// empty for none.
    fn encode(&self, request: &Request, tools: &[u8], vendor: &str) -> Encoded;

    /// A decoder for the reply to `request`.
    fn decoder(&self, request: &Request, failing: Failing) -> Self::Decoder;

    /// Facts about a model of a service beyond the catalogue, from the wire alone.
    fn profile(&self, vendor: &str, model: &str) -> Profile;
}

/// The address of a request, below the base address of its service.
#[derive(Debug, Default)]
pub(crate) struct Address {
    pub(crate) path: Vec<String>,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) headers: Vec<(&'static str, String)>,
}

impl Address {
    pub(crate) fn path(segments: &[&str]) -> Self {
        Self { path: segments.iter().map(|&segment| segment.to_owned()).collect(), ..Self::default() }
    }
}

/// An encoded request.
#[derive(Debug, Default)]
pub(crate) struct Encoded {
    pub(crate) body: Vec<u8>,
    pub(crate) warnings: Vec<Warning>,
}

/// A wire at an address.
pub(crate) struct Service<W> {
    endpoint: Endpoint,
    wire: W,
    default_model: DefaultModel,
    tools: KeptTools,
}

impl<W: Wire> Service<W> {
    /// Checks the settings without connecting.
    pub(crate) fn new(settings: Settings, wire: W) -> Result<Self> {
        let (cache_apart, reasoning_apart) = W::COUNTS_APART;
        let protocol = Protocol { name: W::NAME, cache_apart, reasoning_apart };
        Ok(Self {
            endpoint: Endpoint::new(Settings { protocol, ..settings })?,
            wire,
            default_model: DefaultModel::default(),
            tools: KeptTools::default(),
        })
    }

    /// The wire, with the habits of this service.
    pub(crate) fn wire(&self) -> &W {
        &self.wire
    }

    /// Name of the service.
    pub(crate) fn vendor(&self) -> &str {
        self.endpoint.vendor()
    }

    /// The base address of calls, without query.
    pub(crate) fn base_url(&self) -> String {
        let mut base = self.endpoint.base().clone();
        base.set_query(None);
        base.to_string()
    }

    /// Facts about the model called `name`: from the catalogue first, then from the wire.
    pub(crate) fn profile(&self, name: &str) -> Profile {
        let known = crate::catalog::Catalog::builtin().profile(self.vendor(), name).unwrap_or_default();
        let mut profile = known.or(&self.wire.profile(self.vendor(), name));
        profile.size = profile.size.or_else(|| crate::catalog::size_in(name));
        profile
    }

    /// The connection to the service.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The model to ask: `name`, or the server's own where that asks for it.
    pub(crate) async fn chosen(&self, name: &Arc<str>, cx: &CallContext) -> Result<Arc<str>> {
        match W::MODELS {
            Some(path) if name.is_empty() || &**name == DEFAULT_MODEL => {
                self.default_model.resolve(&self.endpoint, path, cx).await
            }
            _ => Ok(Arc::clone(name)),
        }
    }

    /// Starts a call.
    pub(crate) async fn stream(&self, mut request: Request, cx: &CallContext) -> Result<DeltaStream> {
        request.model = self.chosen(&request.model, cx).await?;
        let strict = request.params.strict_tools == Some(true);
        let tools = self.tools.get(&request.tools, strict, |tools| self.wire.encode_tools(tools, strict));
        let Encoded { body, warnings } = self.wire.encode(&request, &tools, self.vendor());
        let address = self.wire.address(&request);
        // The history may be large and shared; this snapshot is not needed while the reply comes.
        request.messages = History::default();
        let reply = self.post(&address, body, cx).await?;
        let decoder = self.wire.decoder(&request, reply.failing.clone());
        let warnings = warnings.into_iter().map(|warning| Delta::Warning(Box::new(warning)));
        let first: Vec<_> = reply.info().into_iter().chain(warnings).collect();
        Ok(Box::pin(Deltas::new(reply, decoder, first)))
    }

    async fn post(&self, address: &Address, body: Vec<u8>, cx: &CallContext) -> Result<crate::http::Reply> {
        let path: Vec<_> = address.path.iter().map(String::as_str).collect();
        let query: Vec<_> = address.query.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let headers: Vec<_> = address.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.endpoint.post(Target { path: &path, query: &query, headers: &headers }, body, cx).await
    }
}

impl<W: fmt::Debug> fmt::Debug for Service<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("endpoint", &self.endpoint)
            .field("wire", &self.wire)
            .finish_non_exhaustive()
    }
}

/// A model of `provider` with the known facts about it.
pub(crate) fn model<W: Wire>(
    provider: Arc<dyn entourage_core::provider::Provider>,
    service: &Service<W>,
    name: Arc<str>,
) -> Model {
    let profile = service.profile(&name);
    Model::new(provider, name).with_profile(profile)
}

/// Makes the public provider of a wire: a cheap handle on a [`Service`].
#[allow(unused_macros, reason = "no wire may be compiled in")]
macro_rules! provider {
    ($(#[$doc:meta])* $name:ident($wire:ty), $builder:ident) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name(std::sync::Arc<$crate::service::Service<$wire>>);

        impl $name {
            /// Settings for a service. Its address is that of the wire's own service unless another is given.
            pub fn builder() -> $builder {
                $builder::default()
            }

            /// A handle on the model that the service knows as `name`, with the catalogue's facts about it.
            #[must_use]
            pub fn model(&self, name: impl Into<std::sync::Arc<str>>) -> entourage_core::provider::Model {
                $crate::service::model(std::sync::Arc::new(self.clone()), &self.0, name.into())
            }

            /// The base address of calls, without query.
            #[must_use]
            pub fn base_url(&self) -> String {
                self.0.base_url()
            }
        }

        #[async_trait::async_trait]
        impl entourage_core::provider::Provider for $name {
            fn name(&self) -> &str {
                self.0.vendor()
            }

            async fn stream(
                &self,
                request: entourage_core::provider::Request,
                cx: &entourage_core::provider::CallContext,
            ) -> entourage_core::Result<entourage_core::provider::DeltaStream> {
                self.0.stream(request, cx).await
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.0).finish()
            }
        }
    };
}

/// Declares the settings of every wire's builder, which keeps them in a field `settings`, and its `Debug` without
/// secrets.
#[allow(unused_macros, reason = "no wire may be compiled in")]
macro_rules! settings {
    ($builder:ident, $($field:ident),*) => {
        impl $builder {
            /// Sets the base address of the wire's paths, such as `http://127.0.0.1:8080/v1`. A query is kept, and its
            /// values, except those of `alt` and `api-version`, are treated as secrets.
            pub fn base_url(mut self, url: impl Into<String>) -> Self {
                self.settings.base_url = url.into();
                self
            }

            /// Sets the key. It appears in no error, log or `Debug` output.
            pub fn api_key(mut self, key: impl Into<String>) -> Self {
                self.settings.key = Some(secrecy::SecretString::from(key.into()));
                self
            }

            /// Adds a header to every call, replacing one of ours of the same name. The value is treated as a secret:
            /// where a service repeats it outside its reply, it is replaced by `[key]`, if it has at least 6
            /// characters.
            pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
                self.settings.headers.push((name.into(), secrecy::SecretString::from(value.into())));
                self
            }

            /// Sets the service's name, as stored with each call. Default: that of a known service at this host, else
            /// the host.
            pub fn vendor_name(mut self, name: impl Into<String>) -> Self {
                self.settings.vendor = name.into();
                self
            }

            /// Sends the key as `Authorization: Bearer …`, even if the wire has a header of its own for it.
            pub fn bearer(mut self) -> Self {
                self.settings.auth = $crate::http::Auth::Bearer;
                self
            }

            /// Sends the bare key in this header, for gateways that require it.
            pub fn key_header(mut self, name: &'static str) -> Self {
                self.settings.auth = $crate::http::Auth::Header(name);
                self
            }

            /// Sends the calls through a client of your own: a function from a request to its answer, whose body is
            /// read as it comes.
            ///
            /// Checked before it is asked: the hosts that the call may ask. It must
            /// - ask the request's address and no other, and follow no redirect: the key would leave with it;
            /// - keep the request's headers, which hold the key (marked as sensitive), out of logs and errors;
            /// - stop when its future or the body is dropped, which is how calls are cancelled.
            ///
            /// Timeouts of calls, bounds on replies, and errors remain as they are: an [`entourage_core::Error`] keeps
            /// its kind, an I/O error is a timeout or a refused connection if it is one, and any other is
            /// [`Transport`](entourage_core::ErrorKind::Transport), after which the call may have been received. The
            /// client brings TLS, proxies, a connect timeout and a new attempt on connections that were closed.
            ///
            /// ```ignore
            /// builder.http_client(move |request| client.request(request.map(Full::new))) // hyper-util's client
            /// ```
            pub fn http_client<R, B, E>(
                mut self,
                client: impl Fn(http::Request<bytes::Bytes>) -> R + Send + Sync + 'static,
            ) -> Self
            where
                R: Future<Output = std::result::Result<http::Response<B>, E>> + Send + 'static,
                B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
                B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
                E: Into<Box<dyn std::error::Error + Send + Sync>>,
            {
                self.settings.client = Some($crate::http::Given::new(client));
                self
            }

            /// Lets a key travel over plain `http` to another machine, which is refused otherwise.
            pub fn allow_insecure(mut self) -> Self {
                self.settings.allow_insecure = true;
                self
            }
        }

        impl std::fmt::Debug for $builder {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let headers: Vec<_> = self.settings.headers.iter().map(|(name, _)| name).collect();
                f.debug_struct(stringify!($builder))
                    .field("vendor", &self.settings.vendor)
                    .field("has_key", &self.settings.key.is_some())
                    .field("headers", &headers)
                    .field("http_client", &self.settings.client.is_some())
                    $(.field(stringify!($field), &self.$field))*
                    .finish_non_exhaustive()
            }
        }
    };
}

pub(crate) use {provider, settings};
