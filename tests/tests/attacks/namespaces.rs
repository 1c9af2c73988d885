//! Names that lead to internal addresses which exist: in a network and a mount namespace of its own, with servers at these
//! addresses that must never see a connection. An instance in the namespace has no allowance for any address.
//!
//! The test runs itself again in the namespace. Where none can be made, it is left out, and says so.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use farthing_tests::client::Response;
use farthing_tests::dns::{Answer, NameServer};
use farthing_tests::instance::Instance;
use farthing_tests::left_out;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::run;
use farthing_tests::servers;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Set inside the namespace.
const INSIDE: &str = "FARTHING_TEST_INSIDE_NAMESPACE";

/// A public address, which may be called.
const PUBLIC: &str = "93.184.216.34";

/// Addresses that may not be called, each with a server.
const INTERNAL: [&str; 11] = [
    "127.0.0.1",
    "::1",
    "169.254.169.254",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.0.1",
    "100.64.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "fd00:ec2::254",
    "fec0::1",
];

/// Makes the addresses, and files of names, before it runs its arguments. Ends with [`NO_NAMESPACE`] if it cannot.
const SETUP: &str = r#"
files=$1; shift
{
    ip link set lo up
    ip link add internal type dummy 2>/dev/null && device=internal || device=lo
    ip link set "$device" up
    for address in $ADDRESSES; do
        case $address in
            127.0.0.1 | ::1) ;;
            *:*) ip -6 address add "$address/128" dev "$device" nodad ;;
            *) ip address add "$address/32" dev "$device" ;;
        esac || exit 77
    done
    mount --bind "$files/resolv.conf" /etc/resolv.conf && mount --bind "$files/hosts" /etc/hosts
} || exit 77
exec "$@"
"#;

/// The exit code of [`SETUP`] where there is no namespace.
const NO_NAMESPACE: i32 = 77;

const HOSTS: &str = "\
127.0.0.1 localhost
93.184.216.34 public.hosts.test
169.254.169.254 metadata.hosts.test
fd00:ec2::254 metadata6.hosts.test
93.184.216.34 mixed.hosts.test
10.0.0.1 mixed.hosts.test
";

#[test]
fn no_name_leads_to_an_internal_address_that_exists() {
    if std::env::var_os(INSIDE).is_some() {
        return run(inside());
    }
    let files = std::env::temp_dir().join(format!("farthing-names-{}", std::process::id()));
    std::fs::create_dir_all(&files).unwrap();
    std::fs::write(files.join("resolv.conf"), "nameserver 127.0.0.1\noptions timeout:1 attempts:2\n")
        .unwrap();
    std::fs::write(files.join("hosts"), HOSTS).unwrap();
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let own_user: &[&str] = if is_root { &[] } else { &["--user", "--map-current-user", "--keep-caps"] };
    let ran = Command::new("unshare")
        .args(own_user)
        .args(["--mount", "--net", "sh", "-c", SETUP, "setup"])
        .arg(&files)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "namespaces::no_name_leads_to_an_internal_address_that_exists", "--nocapture"])
        .env("ADDRESSES", [&INTERNAL[..], &[PUBLIC]].concat().join(" "))
        .env(INSIDE, "1")
        // Given servers cannot be reached from there: it starts its own.
        .env_remove(servers::DATABASE_URL)
        .env_remove(servers::NATS_URL)
        .stdin(Stdio::null())
        .output();
    std::fs::remove_dir_all(&files).unwrap();
    let ran = match ran {
        Ok(ran) => ran,
        Err(error) => return left_out(&format!("names of internal addresses: no `unshare`: {error}")),
    };
    let said = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
    if ran.status.code() == Some(NO_NAMESPACE) || said.starts_with("unshare: ") {
        let why = said.lines().next().unwrap_or("no reason was given");
        return left_out(&format!("names of internal addresses: no namespace can be made here: {why}"));
    }
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
}

/// A server that counts its connections.
struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Server {
    /// A server at port 80 of `address` that answers everything with `{}`.
    async fn start(address: &str) -> Self {
        let address: IpAddr = address.parse().unwrap();
        let address = SocketAddr::new(address, 80);
        let listener = TcpListener::bind(address).await.unwrap_or_else(|error| panic!("{address}: {error}"));
        let connections: Arc<AtomicUsize> = Arc::default();
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let _ = stream.read(&mut [0; 4_096]).await;
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
                    let _ = stream.write_all(answer).await;
                });
            }
        });
        Self { address, connections }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// What the name server says; `rebound.test`, which was asked for so often, changes with every lookup of both families.
fn answer(name: &str, asked: usize) -> Answer {
    match name {
        "public.test" => Answer::of(&[PUBLIC], 60),
        "mixed.test" => Answer::of(&[PUBLIC, "10.0.0.1"], 60),
        "mapped.test" => Answer::of(&["::ffff:10.0.0.1"], 60),
        "nat64.test" => Answer::of(&["64:ff9b::a00:1"], 60),
        "zero.test" => Answer::of(&["0.0.0.0"], 60),
        "zero6.test" => Answer::of(&["::"], 60),
        "alias.test" => Answer::alias("internal2.test", &[INTERNAL[2]]),
        "rebound.test" if (asked / 2).is_multiple_of(2) => Answer::of(&[PUBLIC], 0),
        "rebound.test" => Answer::of(&["169.254.169.254", "fd00:ec2::254"], 0),
        _ => match name.strip_prefix("internal").and_then(|rest| rest.strip_suffix(".test")) {
            Some(number) => Answer::of(&[INTERNAL[number.parse::<usize>().unwrap()]], 60),
            None => Answer::NoSuchName,
        },
    }
}

async fn inside() {
    let public = Server::start(PUBLIC).await;
    let mut internal = Vec::new();
    for address in INTERNAL {
        internal.push(Server::start(address).await);
    }
    // Each of these addresses can be reached here.
    for server in &internal {
        TcpStream::connect(server.address)
            .await
            .unwrap_or_else(|error| panic!("{}: {error}", server.address));
        eventually("the connection is counted", async || (server.connections() == 1).then_some(())).await;
    }
    let asked = AtomicUsize::new(0);
    let _names = NameServer::start_at("127.0.0.1:53", move |name| {
        let rebound = usize::from(name == "rebound.test");
        answer(name, asked.fetch_add(rebound, Ordering::SeqCst))
    })
    .await;
    let instance = Instance::of_test(1).await;
    let merchant = Merchant::of(instance).await;
    merchant.credit_own("10").await;
    let gateway = SideGateway::start(instance, &[]).await;
    let call = async |host: &str| -> Response {
        let call = forward("GET", &format!("http://{host}/")).bearer(&merchant.secret_key);
        call.send(gateway.address).await.unwrap()
    };
    let mut reached = 0;
    for host in ["public.test", "public.hosts.test", PUBLIC] {
        call(host).await.expect(200);
        reached += 1;
    }
    let mut forbidden: Vec<String> =
        (0..INTERNAL.len()).map(|number| format!("internal{number}.test")).collect();
    forbidden.extend(
        INTERNAL
            .map(|address| if address.contains(':') { format!("[{address}]") } else { address.to_owned() }),
    );
    forbidden.extend(
        [
            "mixed.test",
            "mapped.test",
            "nat64.test",
            "zero.test",
            "zero6.test",
            "alias.test",
            "localhost",
            "metadata.hosts.test",
            "metadata6.hosts.test",
            "mixed.hosts.test",
            "0.0.0.0",
            "[::ffff:10.0.0.1]",
        ]
        .map(str::to_owned),
    );
    for host in &forbidden {
        call(host).await.refused(400, "forward_url_forbidden");
    }
    let mut refused = 0;
    for _ in 0..60 {
        let response = call("rebound.test").await;
        if response.status == 200 {
            reached += 1;
        } else {
            response.refused(400, "forward_url_forbidden");
            refused += 1;
        }
    }
    assert!(reached > 3 && refused > 0, "the name changed: {reached} reached, {refused} refused");
    assert_eq!(public.connections(), reached);
    for server in &internal {
        assert_eq!(server.connections(), 1, "{} was called", server.address);
    }
    merchant.nothing_is_held().await;
    drop(gateway);
    instance.stop().await;
    instance.clear();
}
