//! Connections to providers that are kept between calls: a caller may name any number of providers, and each may keep its
//! connection open.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use farthing_tests::left_out;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// More providers than the gateway may have open files.
const PROVIDERS: u8 = 200;
const NETWORKS: u8 = 3;

/// What its limits of calls and connections need, and 256 for all else.
const FILES: usize = 376;

/// Answers at every address of this machine, and closes no connection.
async fn keeping_provider() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer_all(stream));
        }
    });
    port
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
            return left_out("idle_connections::connections_kept_to_many_providers: there is no prlimit");
        }
        let (attacker, victim) = (Merchant::new().await, Merchant::new().await);
        let ready = attacker.instance.ready();
        let servers = ["--database-url", &ready.database_url, "--nats-url", &ready.nats_url];
        let flags = ["--allow-address=127.0.0.0/8", "--max-calls=20", "--max-connections=40"];
        let gateway = SideGateway::under(attacker.instance, &limited, &servers, &flags).await;
        let port = keeping_provider().await;
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
        call(&victim, "127.1.0.1").await;
        // What the victim calls again is still kept: one connection serves both calls.
        let before = open_files(gateway.pid());
        call(&victim, "127.1.0.1").await;
        eventually("the second call opened no further connection", async || {
            (open_files(gateway.pid()) <= before).then_some(())
        })
        .await;
    });
}
