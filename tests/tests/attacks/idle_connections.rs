//! Connections to providers that are kept between calls: a caller may name any number of providers, and each may keep its
//! connection open.

use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use farthing_tests::left_out;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// In each network. They are more than the gateway may have open files.
const PROVIDERS: u8 = 200;
const NETWORKS: u8 = 3;

/// Calls of the victim to its provider.
const CALLS: usize = 10;

/// What its limits of calls and connections need, and 256 for all else.
const FILES: usize = 376;

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

fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

#[test]
fn connections_kept_to_many_providers_leave_files_to_others() {
    run(async {
        let limited = ["prlimit", "--nofile=512:512"];
        if Command::new(limited[0]).arg("--version").stdout(Stdio::null()).status().is_err() {
            return left_out(
                "idle_connections::connections_kept_to_many_providers_leave_files_to_others: no prlimit",
            );
        }
        let (attacker, victim) = (Merchant::new().await, Merchant::new().await);
        let ready = attacker.instance.ready();
        let servers = ["--database-url", &ready.database_url, "--nats-url", &ready.nats_url];
        let flags = ["--allow-address=127.0.0.0/8", "--max-calls=20", "--max-connections=40"];
        let gateway = SideGateway::under(attacker.instance, &limited, &servers, &flags).await;
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
