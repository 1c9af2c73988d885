//! Interim (1xx) responses: a peer may send as many as it likes before its response, and none of them is passed on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::Request;
use tokio::sync::Notify;

/// The most interim responses to one request.
const MAX_INTERIM: u32 = 100;

/// The longest head of a response. The client reads no more at once, so that it notices too many interim responses early.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Resolves once the peer has sent too many interim responses to `request`. The request must then be dropped, which
/// closes its connection.
pub fn too_many_interim_responses<B>(request: &mut Request<B>) -> impl Future<Output = ()> + Send + use<B> {
    let exceeded = Arc::new(Notify::new());
    let (count, notify) = (AtomicU32::new(0), Arc::clone(&exceeded));
    hyper::ext::on_informational(request, move |_| {
        if count.fetch_add(1, Ordering::Relaxed) == MAX_INTERIM {
            notify.notify_one();
        }
    });
    async move { exceeded.notified().await }
}
