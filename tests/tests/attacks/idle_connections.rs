//! Connections to providers that outlive their calls: a caller may name any number of providers, and each may keep its
//! connection open between calls, or read no more of a request that it has answered.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use farthing_tests::client::{Connection, Request, chunked};
use farthing_tests::instance::Instance;
use farthing_tests::left_out;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::process::open_files;
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// In each network. They are more than the gateway may have open files.
const PROVIDERS: u8 = 200;
const NETWORKS: u8 = 3;

/// Calls of the victim to its provider.
const CALLS: usize = 10;

/// What its limits of calls and connections need, and 256 for all else.
const FILES: usize = 396;

/// Answers at every address of this machine, and closes no connection. Returns its port, and the addresses at which connections have arrived.
async fn keeping_provider() -> (u16, Arc<Mutex<Vec<IpAddr>>>) {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let arrived = Arc::<Mutex<Vec<_>>>::default();
    let arrivals = Arc::clone(&arrived);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            arrivals.lock().unwrap().push(stream.local_addr().unwrap().ip());
            tokio::spawn(answer_all(stream));
        }
    });
    (port, arrived)
}

/// Answers each request at its head, reads nothing more of it, and closes no connection.
async fn provider_that_reads_no_more() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                if !matches!(stream.read_buf(&mut head).await, Ok(1..)) {
                    break;
                }
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
            open.push(stream);
        }
    });
    port
}

/// Sends a request with a body that takes no end, until it is answered. Returns the first line of the answer; a connection
/// with an unread body may be reset before its answer is read.
async fn call_without_end(gateway: SocketAddr, request: &Request) -> Option<String> {
    let mut connection = Connection::open(gateway).await.unwrap();
    connection.send_head(request).await.unwrap();
    let Connection { mut write, mut read, .. } = connection;
    let writing = async {
        let piece = chunked(&[b'x'; 8_192]);
        while write.write_all(&piece).await.is_ok() {}
        std::future::pending::<()>().await;
    };
    tokio::select! {
        head = read.head() => head.ok().flatten().map(|head| head.first_line),
        () = writing => unreachable!(),
    }
}

async fn answer_all(mut stream: TcpStream) {
    let (mut head, mut bytes) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut bytes).await {
        head.extend_from_slice(&bytes[..count]);
        if head.ends_with(b"\r\n\r\n") {
            head.clear();
            let answered = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
            if answered.is_err() {
                return;
            }
        }
    }
}

/// A gateway that may have 512 files open, and serves few calls at once.
async fn gateway_with_few_files(instance: &Instance, test: &str) -> Option<SideGateway> {
    let limited = ["prlimit", "--nofile=512:512"];
    if Command::new(limited[0]).arg("--version").stdout(Stdio::null()).status().is_err() {
        left_out(&format!("idle_connections::{test}: no prlimit"));
        return None;
    }
    let ready = instance.ready();
    let servers = ["--database-url", &ready.database_url, "--nats-url", &ready.nats_url];
    let flags = ["--allow-address=127.0.0.0/8", "--max-calls=20", "--max-connections=40"];
    Some(SideGateway::under(instance, &limited, &servers, &flags).await)
}

#[test]
fn connections_kept_to_many_providers_leave_files_to_others() {
    run(async {
        let (attacker, victim) = (Merchant::new().await, Merchant::new().await);
        let test = "connections_kept_to_many_providers_leave_files_to_others";
        let Some(gateway) = gateway_with_few_files(attacker.instance, test).await else { return };
        let (port, arrived) = keeping_provider().await;
        let call = async |merchant: &Merchant, host: &str| {
            let call = forward("GET", &format!("http://{host}:{port}/")).bearer(&merchant.secret_key);
            assert_eq!(call.send(gateway.address).await.unwrap().status, 200, "{host}");
        };
        for network in 1..=NETWORKS {
            for host in 1..=PROVIDERS {
                call(&attacker, &format!("127.0.{network}.{host}")).await;
            }
        }
        let files = open_files(gateway.pid());
        assert!(files < FILES, "{files} open files");
        for _ in 0..CALLS {
            call(&victim, "127.1.0.1").await;
        }
        let of_victim = IpAddr::from([127, 1, 0, 1]);
        let opened = arrived.lock().unwrap().iter().filter(|address| **address == of_victim).count();
        assert!(opened < CALLS, "none of the victim's connections was kept");
    });
}

/// The request of a call that was answered early is sent no further once its provider reads no more. Callers' connections end with
/// it, of which one address has half.
#[test]
fn providers_that_answer_early_and_read_no_more_leave_files_to_others() {
    run(async {
        let (attacker, victim) = (Merchant::new().await, Merchant::new().await);
        let test = "providers_that_answer_early_and_read_no_more_leave_files_to_others";
        let Some(gateway) = gateway_with_few_files(attacker.instance, test).await else { return };
        let early = provider_that_reads_no_more().await;
        let call = forward("POST", &format!("http://127.0.0.1:{early}/"))
            .bearer(&attacker.secret_key)
            .header("Transfer-Encoding", "chunked");
        let mut statuses = BTreeMap::<_, usize>::new();
        for _ in 0..512 {
            *statuses.entry(call_without_end(gateway.address, &call).await).or_default() += 1;
        }
        let files = open_files(gateway.pid());
        assert!(files < FILES, "{files} open files, {statuses:?}");
        let (port, _) = keeping_provider().await;
        for _ in 0..CALLS {
            let call = forward("GET", &format!("http://127.0.0.2:{port}/")).bearer(&victim.secret_key);
            let mut caller = Connection::open_from([127, 0, 0, 3].into(), gateway.address).await.unwrap();
            caller.send(&call).await.unwrap();
            assert_eq!(caller.response("GET").await.unwrap().status, 200, "{statuses:?}");
        }
        eventually("the attacker's address has connections again", async || {
            let call = forward("GET", &format!("http://127.0.0.2:{port}/")).bearer(&victim.secret_key);
            call.send(gateway.address).await.ok().filter(|response| response.status == 200)
        })
        .await;
        let known = [None, Some("HTTP/1.1 200 OK"), Some("HTTP/1.1 503 Service Unavailable")];
        assert!(statuses.keys().all(|line| known.contains(&line.as_deref())), "{statuses:?}");
        assert!(statuses[&Some("HTTP/1.1 200 OK".to_owned())] > 20, "{statuses:?}");
    });
}
