//! The shared parts of forwarding: the HTTP client, the drain slots and the tokens that end work at shutdown.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use farthing_core::command::Opened;
use farthing_core::event::ProviderKeyType;
use farthing_core::idempotency::ClaimId;
use farthing_core::ids::{MerchantId, RequestId};
use farthing_core::meter::OnDisconnect;
use farthing_core::partition::Partition;
use farthing_egress::{AddressGuard, Connector, MAX_HEAD_BYTES};
use farthing_log::appender::ClaimEnd;
use farthing_telemetry::Metrics;
use hyper_util::client::legacy::Client;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::drain::ReadingOn;
use super::drain_slots::{DrainSlot, DrainSlots, Drainer};
use super::request_body::RequestBody;
use super::stored_rate::StoredRate;
use super::turns::{AnswerTurn, Turns};
use super::usage::Decoders;
use crate::app::App;
use crate::body_memory::BodyKind;
use crate::metrics::ProviderLabel;

/// Idle connections kept per provider.
const MAX_IDLE_PER_HOST: usize = 512;

/// How long an idle connection is kept.
const IDLE_CONNECTION: Duration = Duration::from_mins(1);

/// Forwards calls; shared by all calls of a gateway.
pub(crate) struct Forwarder {
    pub(crate) app: Arc<App>,
    pub(super) client: Client<Connector, RequestBody>,
    pub(super) guard: Arc<AddressGuard>,
    /// Calls in flight and pending settlements. Shutdown waits for all of them.
    pub(crate) tasks: TaskTracker,
    /// Cancelled at shutdown: calls stop waiting for their providers and are settled.
    pub(super) stop_waiting: CancellationToken,
    /// Cancelled at the end of shutdown: pending settlements are given up.
    pub(super) abort: CancellationToken,
    /// Drain slots of calls on the callers' own provider keys.
    drain_slots: DrainSlots,
    /// Drain slots of calls on managed provider keys. They are separate because the instance pays for these calls.
    managed_drain_slots: DrainSlots,
    /// The decoders of compressed responses.
    pub(super) decoders: Decoders,
    /// The turns of the bodies that pass.
    pub(super) turns: Turns,
}

/// The ids and settings of an open call that its end depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenCall {
    /// The partition of its merchant.
    pub(super) partition: Partition,
    pub(super) request_id: RequestId,
    pub(super) merchant_id: MerchantId,
    /// Whoever made the call, of those who share the merchant's drain slots.
    pub(super) drainer: Drainer,
    /// The meter's rule for a caller who disconnects.
    pub(super) on_disconnect: OnDisconnect,
    /// The owner of the provider key: the caller or this instance.
    pub(super) provider_key_type: ProviderKeyType,
    /// Its provider in the metrics.
    pub(super) provider: ProviderLabel,
}

impl OpenCall {
    /// The call that was opened as `opened` says.
    pub(super) fn new(
        partition: Partition,
        request_id: RequestId,
        opened: Opened,
        (provider_key_type, provider): (ProviderKeyType, ProviderLabel),
    ) -> Self {
        let Opened { merchant_id, on_disconnect, customer_id, spend_key_id, .. } = opened;
        let drainer = match (customer_id, spend_key_id) {
            (Some(id), _) => Drainer::Customer(id),
            (None, Some(id)) => Drainer::SpendKey(id),
            (None, None) => Drainer::Merchant,
        };
        Self { partition, request_id, merchant_id, drainer, on_disconnect, provider_key_type, provider }
    }
}

impl Forwarder {
    /// Stores so many bytes of a merchant's answers in a second, until the gateway is told to stop.
    pub(crate) fn new(
        app: Arc<App>,
        (guard, connector): (Arc<AddressGuard>, Connector),
        tasks: TaskTracker,
        stop_waiting: CancellationToken,
        abort: CancellationToken,
        decoders: Decoders,
        (stored_rate, stop): (Option<NonZeroU64>, CancellationToken),
    ) -> Self {
        let client = Client::builder(hyper_util::rt::TokioExecutor::new())
            .pool_timer(hyper_util::rt::TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTION)
            .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
            .http1_max_buf_size(MAX_HEAD_BYTES)
            .build(connector);
        Self {
            app,
            client,
            guard,
            tasks,
            stop_waiting,
            abort,
            drain_slots: DrainSlots::default(),
            managed_drain_slots: DrainSlots::default(),
            decoders,
            turns: Turns::new(stored_rate.map(|rate| StoredRate::new(rate, stop))),
        }
    }

    /// Waits until the answer that `closing` stores may be stored, if it stores one. Few others of the merchant are until
    /// the turn is dropped. A gateway that is told to stop waits for no rate any more; after its grace period it has no time
    /// for turns either.
    pub(super) async fn answer_turn(
        &self,
        merchant_id: MerchantId,
        closing: Option<&(ClaimId, ClaimEnd)>,
    ) -> Option<AnswerTurn> {
        let Some((_, ClaimEnd::Answer(sealed))) = closing else { return None };
        let turn = self.turns.of_answer(merchant_id, sealed.len());
        self.stop_waiting.run_until_cancelled(turn).await.flatten()
    }

    /// Adds what its calls share to `metrics`.
    pub(crate) fn register(&self, metrics: &Metrics) {
        let slots = [("caller", self.drain_slots.clone()), ("managed", self.managed_drain_slots.clone())];
        metrics.gauges_from(
            "farthing_drain_slots_taken",
            "Calls that go on after their caller has disconnected, by the owner of the provider key",
            "provider_key",
            move || slots.iter().map(|(name, slots)| ((*name).to_owned(), slots.taken())).collect(),
        );
        let decoders = self.decoders.clone();
        metrics.gauge_from(
            "farthing_decoders_waiting",
            "Compressed responses that wait for their turn to be decoded",
            move || decoders.waiting(),
        );
        let decoders = self.decoders.clone();
        metrics.gauge_from(
            "farthing_decoder_memory_bytes",
            "Memory of the decoders of compressed responses",
            move || decoders.memory(),
        );
        let memory = self.app.body_memory.clone();
        metrics.gauges_from(
            "farthing_long_body_memory_bytes",
            "Memory of long bodies that are held whole",
            "kind",
            move || {
                BodyKind::NAMED.iter().map(|(kind, name)| ((*name).to_owned(), memory.bytes(*kind))).collect()
            },
        );
    }

    /// Resolves once the caller has disconnected and the drain window has elapsed; earlier if its drain slot is revoked, and
    /// immediately after the disconnect if no slot is free. If the response begins before, `reading_on` says how long it
    /// may still be read.
    pub(super) async fn drained(
        &self,
        disconnected: CancellationToken,
        call: OpenCall,
        reading_on: &mut Option<ReadingOn>,
    ) {
        disconnected.cancelled().await;
        if let Some(slot) = self.drain_slot(call) {
            reading_on.insert(ReadingOn::begin(slot)).over().await;
        }
    }

    /// Takes a drain slot for a call whose caller has disconnected; `None` if its meter cancels such calls or no slot is
    /// free. Without a slot the provider's connection is closed: the call is charged for the usage reported so far, as
    /// `partial`. If none was reported, a call on a managed provider key is charged its hold, and any other counts as
    /// a call if a response had begun and its meter counts calls; else it fails as `caller_gone`.
    pub(super) fn drain_slot(&self, call: OpenCall) -> Option<DrainSlot> {
        let OpenCall { request_id, merchant_id, drainer, on_disconnect, provider_key_type, .. } = call;
        match on_disconnect {
            OnDisconnect::Complete => {}
            OnDisconnect::Cancel => return None,
        }
        let slots = match provider_key_type {
            ProviderKeyType::Managed => &self.managed_drain_slots,
            ProviderKeyType::Unmanaged => &self.drain_slots,
        };
        let slot = slots.take(merchant_id, drainer);
        if slot.is_none() {
            tracing::warn!(
                event = "forward.drain_slots_exhausted",
                %request_id,
                %merchant_id,
                "no drain slot is free; the provider's connection is closed"
            );
        }
        slot
    }
}
