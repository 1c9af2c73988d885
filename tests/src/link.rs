//! A way between two processes that a test can cut: a proxy that passes bytes, whatever they are.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use tokio::io::{copy, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::left_out;

/// An address in a network for documents, which nobody has.
const SOMEWHERE: &str = "192.0.2.1:9";

/// How a way is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Connections are closed, and every new one.
    Closed,
    /// Nothing passes any more, and nobody is told.
    Silent,
    /// Nothing passes any more. Where one end closes a connection, the other end is told.
    Hanging,
}

/// A way to one address; it lives as long as the test process.
pub struct Link {
    state: Arc<watch::Sender<Option<Cut>>>,
    /// Where it begins.
    pub address: SocketAddr,
}

impl Link {
    /// A way to `to`, where nobody needs to listen yet.
    pub async fn to(to: SocketAddr) -> Self {
        Self::begin_at(Ipv4Addr::LOCALHOST.into(), to).await
    }

    /// A way that begins at an address of this machine in a network: to the program, its end is on another machine. It
    /// takes connections from this address alone. `None` where there is no network: then this says that the test is left
    /// out.
    pub async fn over_a_network(to: SocketAddr) -> Option<Self> {
        let Some(address) = address_in_a_network() else {
            let test = std::thread::current().name().unwrap_or_default().to_owned();
            left_out(&format!("{test}: this machine has no address in a network"));
            return None;
        };
        Some(Self::begin_at(address, to).await)
    }

    async fn begin_at(address: IpAddr, to: SocketAddr) -> Self {
        let listener = TcpListener::bind((address, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(watch::Sender::new(None));
        let cut = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((from, caller)) = listener.accept().await {
                if caller.ip() != address.ip() {
                    continue;
                }
                tokio::spawn(pass(from, to, cut.subscribe()));
            }
        });
        Self { state, address }
    }

    /// Cuts the way.
    pub fn cut(&self, cut: Cut) {
        self.state.send_replace(Some(cut));
    }

    /// New connections pass again. Those that were cut are closed.
    pub fn restore(&self) {
        self.state.send_replace(None);
    }
}

/// Passes what comes until the way is cut. A silent connection stays open until the way is restored; then it is closed.
async fn pass(mut from: TcpStream, to: SocketAddr, mut cut: watch::Receiver<Option<Cut>>) {
    let is_whole = cut.borrow_and_update().is_none();
    // Both ends are kept until the connection may be closed.
    let connected = if is_whole { TcpStream::connect(to).await.ok() } else { None };
    if let Some(mut to) = connected {
        tokio::select! {
            biased;
            _ = cut.wait_for(Option::is_some) => {}
            _ = copy_bidirectional(&mut from, &mut to) => return,
        }
        return hang(&mut from, cut).await;
    }
    hang(&mut from, cut).await;
}

/// Passes nothing until the connection may be closed.
async fn hang(from: &mut TcpStream, mut cut: watch::Receiver<Option<Cut>>) {
    let is_hanging = *cut.borrow_and_update() == Some(Cut::Hanging);
    let mut swallowed = tokio::io::sink();
    tokio::select! {
        _ = cut.wait_for(|cut| matches!(cut, None | Some(Cut::Closed))) => {}
        _ = copy(from, &mut swallowed), if is_hanging => {}
    }
}

/// The address of this machine that others would see. Nothing is sent.
fn address_in_a_network() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(SOMEWHERE).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

/// A port of this machine that nobody listens at.
pub fn free_address() -> SocketAddr {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("an address")
}
